"""`Group`: several trackers by name, as one."""

from collections.abc import Mapping
from typing import Any

import jax

from framework.errors import ModuleError
from framework.trackers.base import Tracker


class Group(Tracker):
    """Several trackers by name, updated, computed, reset and merged together.

    Args:
        trackers: trackers by name.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> group = Group({"loss": fw.trackers.Mean(), "accuracy": fw.trackers.Accuracy()})
        >>> group.update(loss=0.5, accuracy=(jnp.eye(2), jnp.array([0, 0])))
        >>> {name: float(value) for name, value in group.compute().items()}
        {'loss': 0.5, 'accuracy': 0.5}
    """

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self.trackers: dict[str, Tracker] = dict(trackers)

    def __getitem__(self, name: str) -> Tracker:
        return self.trackers[name]

    def update(self, **arguments: Any) -> None:
        """Updates the trackers that are named; the others stay as they are.

        Args:
            arguments: for each name what its tracker is updated with; a tuple for several arguments.

        Raises:
            ModuleError: if there is no tracker of a name; nothing is updated then.

        Example:
            >>> import framework as fw
            >>> group = Group({"loss": fw.trackers.Mean()})
            >>> group.update(loss=(2.0, 8))
            >>> float(group["loss"].weight)
            8.0
        """
        for name in arguments:
            if name not in self.trackers:
                raise ModuleError(
                    f"Group.update was given {name!r}, and has trackers for {', '.join(self.trackers) or 'nothing'}. "
                    f"Name one of those, or add the tracker when the group is made: `Group({{..., {name!r}: Mean()}})`."
                )
        for name, values in arguments.items():
            self.trackers[name].update(*(values if isinstance(values, tuple) else (values,)))

    def compute(self) -> dict[str, jax.Array]:
        """Returns the metric of each tracker by name.

        Example:
            >>> import framework as fw
            >>> Group({"loss": fw.trackers.Mean()}).compute()["loss"].shape
            ()
        """
        return {name: tracker.compute() for name, tracker in self.trackers.items()}

    def reset(self) -> None:
        """Resets every tracker.

        Example:
            >>> import framework as fw
            >>> group = Group({"loss": fw.trackers.Mean()})
            >>> group.update(loss=2.0)
            >>> group.reset()
            >>> float(group["loss"].weight)
            0.0
        """
        for tracker in self.trackers.values():
            tracker.reset()

    def merge(self, other: Any) -> None:
        """Merges each tracker with the one of its name.

        Args:
            other: a group with the same names, left as it is.

        Raises:
            ModuleError: if it is no group, or the names or classes of its trackers are others; nothing is merged then.

        Example:
            >>> import framework as fw
            >>> first, second = (Group({"loss": fw.trackers.Mean()}) for _ in range(2))
            >>> second.update(loss=2.0)
            >>> first.merge(second)
            >>> float(first["loss"].compute())
            2.0
        """
        mine = {name: type(tracker).__name__ for name, tracker in self.trackers.items()}
        theirs = {name: type(tracker).__name__ for name, tracker in getattr(other, "trackers", {}).items()}
        if not isinstance(other, Group) or mine != theirs:
            raise ModuleError(
                f"Group.merge was given a {type(other).__name__} with trackers {theirs}, and this group has {mine}. "
                f"Merge groups made alike: `group.merge(group.clone())`."
            )
        for name, tracker in self.trackers.items():
            tracker.merge(other.trackers[name])

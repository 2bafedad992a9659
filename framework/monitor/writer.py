"""What the training loop expects of everything that keeps its measurements."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


class Writer(Protocol):
    """Keeps the scalar values of a run; implement these three methods to send them anywhere.

    The order of calls is: any number of `scalars`, with steps that never decrease within a split; `drain`
    before each checkpoint is declared complete, so that no value is missing after a resume from it; `close`
    once at the end.

    Example:
      >>> class Printed:
      ...     def scalars(self, split, step, values):
      ...         print(split, step, values)
      ...     def drain(self):
      ...         pass
      ...     def close(self):
      ...         pass
      >>> writer: Writer = Printed()
      >>> writer.scalars("train", 1, {"loss": 0.5})
      train 1 {'loss': 0.5}
    """

    def scalars(self, split: str, step: int, values: Mapping[str, Any]) -> None:
        """Takes the values of one step, counted in completed optimizer updates, of a split like "train"."""
        ...

    def drain(self) -> None:
        """Returns when everything given so far is on disk; raises what went wrong since the last call."""
        ...

    def close(self) -> None:
        """Drains and releases files and threads; a second call does nothing."""
        ...


@runtime_checkable
class TextWriter(Writer, Protocol):
    """A `Writer` that also keeps texts and the hyperparameters of the run."""

    def text(self, split: str, step: int, tag: str, text: str, *, code: bool = False) -> None:
        """Takes a markdown text, or with `code` a text to show letter by letter."""
        ...

    def hparams(self, values: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Takes the hyperparameters of the run and the metrics that it is judged by."""
        ...

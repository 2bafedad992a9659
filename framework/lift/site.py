"""A call with particular objects, prepared: the warm path of a compiled function."""

import collections
import sys
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

from framework.lift.donation import UNSHARED, shared_error, unshare
from framework.lift.effects import Effects, apply, result_of
from framework.lift.lifted import moved_leaves
from framework.lift.program import Outcome, Program
from framework.module.graph import Graph, Slot, read_slot
from framework.module.layout import Node, epoch

_exhaust = collections.deque[Any](maxlen=0).extend  # runs an iterator to its end, in C


class Site:
    """Where the leaves of the objects of a call are, and the program for their structure.

    The leaves are remembered after a call, so that the next one need not gather them as long as nothing else wrote to
    an object in between. Only the newest site remembers, since another one would keep old arrays alive.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_donated_at",
        "_kept_at",
        "_leaves",
        "_leaves_at",
        "_nodes",
        "_roots",
        "_simple",
        "_slots",
        "_unshared",
        "_versions",
        "_writes",
        "program",
    )

    _newest: ClassVar["weakref.ref[Site] | None"] = None

    def __init__(self, program: Program, graph: Graph, roots: Sequence[Node]) -> None:
        self.program = program
        # A root holds its sites. Weak references let it go as soon as its last user does.
        self._roots = [weakref.ref(root) for root in roots]
        self._nodes = [weakref.ref(node) for node in graph.nodes]
        self._slots: list[Slot] = graph.slots
        self._count = epoch.count
        self._versions = [node._version for node in graph.nodes]
        self._simple = all(slot.inner is None and isinstance(slot.storage, dict) for slot in graph.slots)
        self._donated_at, self._kept_at = self._places(program.donated), self._places(program.kept)
        self._unshared = [UNSHARED] * len(program.donated)
        self._writes: dict[Effects, _Writes | None] = {}
        self._leaves: tuple[list[Any], list[Any]] | None = None
        self._leaves_at = -1

    def _places(self, leaves: Sequence[int]) -> tuple[list[Any], list[Any]]:
        slots = [self._slots[index] for index in leaves]
        return [slot.storage for slot in slots], [slot.key for slot in slots]

    def is_current(self, roots: Sequence[Node]) -> bool:
        """Tells whether the structure of the objects is still what was planned for."""
        for reference, root in zip(self._roots, roots, strict=True):
            if reference() is not root:
                return False
        if self._count != epoch.count:
            # Something changed somewhere; the versions tell cheaply whether it was in one of these objects.
            for reference, version in zip(self._nodes, self._versions, strict=True):
                node = reference()
                if node is None or node._version != version:
                    return False
            self._count = epoch.count
        return True

    def gather(self) -> tuple[list[Any], list[Any]]:
        """Returns the leaves to donate, none of which anybody else holds, and the others."""
        remembered, self._leaves = self._leaves, None
        if remembered is not None and self._leaves_at == epoch.writes:
            donated, kept = remembered
            del remembered
        elif self._simple:
            del remembered
            donated = list(map(dict.__getitem__, *self._donated_at))
            kept = list(map(dict.__getitem__, *self._kept_at))
        else:
            donated = [read_slot(self._slots[index]) for index in self.program.donated]
            kept = [read_slot(self._slots[index]) for index in self.program.kept]
        if list(map(sys.getrefcount, donated)) != self._unshared:
            self._unshare(donated)
        return donated, kept

    def _unshare(self, donated: list[Any]) -> None:
        copied = unshare(donated)
        if copied and self.program.source.options.donate == "strict":
            leaves = [self.program.donated[index] for index in copied]
            raise shared_error(leaves, self.graph(), self.program.source.name)

    def nodes(self) -> list[Node]:
        """Returns the objects of the call, in order; only while it is current, when all of them are alive."""
        return [node for reference in self._nodes if (node := reference()) is not None]

    def graph(self) -> Graph:
        """Returns the objects of the call as they were walked; only while it is current."""
        return Graph(self.nodes(), self._slots, self.program.structure)

    def write(self, outcome: Outcome, donated: list[Any], kept: list[Any]) -> Any:
        """Writes back what the call did, and returns its result in terms of the caller's objects."""
        effects, values = outcome.effects, outcome.values
        try:
            fast = self._writes[effects]
        except KeyError:
            fast = self._writes[effects] = self._prepare(effects)
        if fast is None:
            leaves: list[Any] = [None] * (len(donated) + len(kept))
            for index, leaf in zip((*self.program.donated, *self.program.kept), (*donated, *kept), strict=True):
                leaves[index] = leaf
            everything = apply(effects, self.nodes(), leaves, values)
            return result_of(effects, everything, values)
        order, storages, keys, next_donated, next_kept = fast
        _exhaust(map(dict.__setitem__, storages, keys, values if order is None else [values[at] for at in order]))
        epoch.writes += 1
        self._remember([values[at] for at in next_donated], kept, next_kept, values)
        if not effects.returned:
            return result_of(effects, (), values)
        return result_of(effects, self.nodes() if effects.returns_objects else (), values)

    def _remember(
        self, donated: list[Any], kept: list[Any], replaced: Sequence[tuple[int, int]], values: Sequence[Any]
    ) -> None:
        for position, at in replaced:
            kept[position] = values[at]
        self._leaves, self._leaves_at = (donated, kept), epoch.writes
        newest = None if Site._newest is None else Site._newest()
        if newest is not self:
            if newest is not None:
                newest._leaves = None
            Site._newest = weakref.ref(self)

    def _prepare(self, effects: Effects) -> "_Writes | None":
        """Lists the places that a call writes, and the outputs that are its leaves the next time."""
        if not (self._simple and effects.same_structure) or moved_leaves(effects):
            return None
        numbers = {leaf: effects.leaves[leaf].value for leaf in effects.written}  # pyright: ignore[reportAttributeAccessIssue]
        if any(leaf not in numbers for leaf in self.program.donated):
            return None
        storages, keys = self._places(list(numbers))
        order = None if list(numbers.values()) == list(range(len(numbers))) else list(numbers.values())
        donated = [numbers[leaf] for leaf in self.program.donated]
        kept = [(position, numbers[leaf]) for position, leaf in enumerate(self.program.kept) if leaf in numbers]
        return order, storages, keys, donated, kept


_Writes = tuple[list[int] | None, list[Any], list[Any], list[int], list[tuple[int, int]]]

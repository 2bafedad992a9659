"""A call with particular objects, prepared: the warm path of a compiled function."""

import operator
import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax

from framework.lift.donation import UNSHARED, shared_error, unshare
from framework.lift.effects import Effects, apply, result_of
from framework.lift.lifted import moved_leaves
from framework.lift.program import Outcome, Program
from framework.module.graph import Graph, LeafRef, NodeRef, Ref, Slot, Structure, raw_get, read_slot
from framework.module.hyper import is_array
from framework.module.layout import Layout, Node, epoch, layout_of

Layouts = tuple[Layout, ...]


class Site:
    """Where the leaves of the objects of a call are, and the program for their structure.

    The leaves are remembered after a call, so that the next one need not gather them as long as nothing else wrote to
    an object in between. Only the newest site remembers, since another one would keep old arrays alive.
    """

    __slots__ = (
        "__weakref__",
        "_count",
        "_donated_at",
        "_hashed",
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
        layouts = [layout for layout, _ in program.structure.nodes]
        self._hashed = [(index, *one) for index, layout in enumerate(layouts) for one in layout.hashed]
        self._versions = [node._version for node in graph.nodes]
        self._simple = all(slot.inner is None and isinstance(slot.storage, dict) for slot in graph.slots)
        self._donated_at, self._kept_at = self._places(program.donated), self._places(program.kept)
        self._unshared = UNSHARED * len(program.donated)
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
        return not self._hashed or self._same_content()

    def updated(self, roots: Sequence[Node], others: "Mapping[Layouts, Site]") -> "Site | Graph | None":
        """Looks at what changed in the objects since, without walking all of them.

        Args:
            roots: the first objects of the call.
            others: the calls that were prepared for the same objects with other hyperparameters.

        Returns:
            If only hyperparameters changed, the call prepared for the new ones or, the first time, its graph; None if
            objects or leaves came or went, or sit elsewhere.
        """
        if any(reference() is not root for reference, root in zip(self._roots, roots, strict=True)):
            return None
        nodes = self.nodes()
        if len(nodes) != len(self._nodes):
            return None
        records = list(self.program.structure.nodes)
        versions = list(self._versions)
        changed = [index for index, node in enumerate(nodes) if node._version != versions[index]]
        for index in changed:
            layout, refs = layout_of(nodes[index]), records[index][1]
            if not _same_children(nodes[index], layout, records[index][0], refs, nodes):
                return None
            records[index], versions[index] = (layout, refs), nodes[index]._version
        site = others.get(tuple(layout for layout, _ in records))
        if site is None:
            structure = self.program.structure
            return Graph(nodes, self._slots, Structure.of(tuple(records), structure.roots, structure.leaf_count))
        site._versions, site._count = versions, epoch.count
        return site

    def _same_content(self) -> bool:
        """Looks at hyperparameters that may have been changed in place, and makes their objects be looked at anew."""
        changed = [self._nodes[index]() for index, value, known in self._hashed if hash(value) != known]
        for node in changed:
            if node is not None:
                node._mark_changed()
        return not changed

    def unchanged(self) -> bool:
        """Tells at once that nothing at all has changed since the newest check; what was read by closure is looked at."""
        quiet = self._count == epoch.count and not self._hashed
        return quiet and (not self.program.captures or self.program.is_current())

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
        if sum(map(sys.getrefcount, donated)) != self._unshared:  # none has fewer
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
        deque(map(operator.setitem, *fast.places, values if fast.order is None else fast.order(values)), maxlen=0)
        for storage, name, at in fast.containers:
            dict.__setitem__(storage, name, values[at])
        epoch.writes += 1
        donated = list(values[: len(donated)]) if fast.donated is None else [values[at] for at in fast.donated]
        self._remember(donated, kept, fast.kept, values)
        if fast.nothing:
            return None
        return result_of(effects, self.nodes() if fast.objects else (), values)

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
        slots = self._slots
        plain = {leaf: at for leaf, at in numbers.items() if type(slots[leaf].storage) is dict}
        donated = [numbers[leaf] for leaf in self.program.donated]
        return _Writes(
            places=([slots[leaf].storage for leaf in plain], [slots[leaf].key for leaf in plain]),
            order=_in_order(list(plain.values())),
            containers=[
                (slots[leaf].storage, slots[leaf].key, at) for leaf, at in numbers.items() if leaf not in plain
            ],
            donated=None if donated == list(range(len(donated))) else donated,
            kept=[(position, numbers[leaf]) for position, leaf in enumerate(self.program.kept) if leaf in numbers],
            nothing=not effects.returned and effects.treedef == jax.tree.structure(None),
            objects=effects.returns_objects,
        )


def _same_children(node: Node, layout: Layout, before: Layout, refs: Sequence[Ref], nodes: Sequence[Node]) -> bool:
    """Tells whether the children of an object are the objects, and leaves in the places, that they were."""
    if layout.dynamic != before.dynamic or layout.kinds != before.kinds:
        return False
    storage = node._storage()
    for name, ref in zip(layout.dynamic, refs, strict=True):
        value = raw_get(storage, name)
        if not (is_array(value) if isinstance(ref, LeafRef) else isinstance(ref, NodeRef) and value is nodes[ref.node]):
            return False
    return True


class _Writes(NamedTuple):
    """How the effects of a call are written back where the structure stays.

    Attributes:
        places: of the written leaves of modules the storages, plain dicts, and the names.
        order: takes their values out of the output values; None if they come first and in order.
        containers: of each written leaf of a dict its storage, its name and the number of its output value.
        donated: the numbers of the output values that are donated the next time; None if they come first.
        kept: of each leaf that is written without being donated its position among those, and its output value.
        nothing: whether the call returns None.
        objects: whether it returns objects.
    """

    places: tuple[list[dict[Any, Any]], list[Any]]
    order: Callable[[Sequence[Any]], Sequence[Any]] | None
    containers: list[tuple[Any, Any, int]]
    donated: list[int] | None
    kept: list[tuple[int, int]]
    nothing: bool
    objects: bool


def _in_order(numbers: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
    if numbers == list(range(len(numbers))):
        return None
    return operator.itemgetter(*numbers) if len(numbers) > 1 else lambda values: [values[at] for at in numbers]

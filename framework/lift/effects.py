"""What a traced call did to its objects: leaves written, statics changed, attributes and objects created.

The call runs on twins. Afterwards the twins are walked again and compared with what they were: a leaf was written if
another array is in its slot, a structure changed if the interned layout is another one. Nothing has to be recorded
while the function runs.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from framework.module.graph import LeafRef, NestRef, NodeRef, Ref, Structure, blank, is_node, resolve, walk
from framework.module.hyper import is_array
from framework.module.layout import Node
from framework.module.ownership import check_write, note_write


@dataclass(frozen=True, eq=False)
class Effects:
    """The static description of what a call returns and leaves behind; equal only to itself.

    Attributes:
        before: structure of the objects when the call began.
        after: structure of the same objects (same numbers) and of new ones when it ended.
        leaves: for each leaf of `after` where it comes from: an input leaf (kept), or an output value (written).
        treedef: tree structure of the return value.
        returned: for each leaf of the return value a node number, an output value, or a static value.
        output_count: the number of output values.
        lines: for each object whose structure changed, by number, the user's lines that changed it.
    """

    before: Structure
    after: Structure
    leaves: "tuple[Input | Output, ...]"
    treedef: Any
    returned: "tuple[NodeRef | Output | Static, ...]"
    output_count: int
    lines: "Mapping[int, Mapping[Any, str]]" = field(default_factory=dict[int, Mapping[Any, str]])

    @property
    def same_structure(self) -> bool:
        """Whether every object has the structure it had, and no object is new."""
        return self.before.nodes == self.after.nodes

    @property
    def returns_objects(self) -> bool:
        """Whether an object is returned, or part of what is returned."""
        return any(isinstance(part, NodeRef) for part in self.returned)

    @functools.cached_property
    def changed(self) -> tuple[int, ...]:
        """Numbers of the objects that have other content or another structure than before."""
        return tuple(index for index in range(len(self.before.nodes)) if _is_changed(self, index))

    @property
    def written(self) -> tuple[int, ...]:
        """Numbers of the leaves that were written, for a call that kept the structure."""
        return tuple(index for index, source in enumerate(self.leaves) if isinstance(source, Output))


@dataclass(frozen=True, slots=True)
class Input:
    """A leaf that is the input leaf of this number."""

    leaf: int


@dataclass(frozen=True, slots=True)
class Output:
    """A leaf that is the output value of this number."""

    value: int


@dataclass(frozen=True, slots=True)
class Static:
    """A returned value that is not an array and is returned as it is."""

    value: Any


def collect(
    before: Structure, twins: Sequence[Node], leaves: Sequence[Any], result: Any, *, keep_scalars: bool
) -> tuple[Effects, list[Any]]:
    """Finds out what a function did to its twins.

    Args:
        before: structure of the twins when they were made.
        twins: the twins, in the order of `before`.
        leaves: the leaves they were made with, in order.
        result: what the function returned.
        keep_scalars: whether Python numbers in the result stay Python numbers or become arrays as under `jax.jit`.

    Returns:
        The effects, and the arrays that the transformation has to return.
    """
    flat, treedef = jax.tree.flatten(result, is_leaf=is_node)
    roots = list({id(leaf): leaf for leaf in flat if is_node(leaf)}.values())
    graph = walk(roots, known=twins)
    number = {id(node): index for index, node in enumerate(graph.nodes)}
    inputs = {id(leaf): Input(index) for index, leaf in reversed(list(enumerate(leaves)))}
    values: list[Any] = []
    outputs: dict[int, Output] = {}

    def output(value: Any) -> Output:
        if id(value) not in outputs:
            outputs[id(value)] = Output(len(values))
            values.append(value)
        return outputs[id(value)]

    own_slot = own_slots(before, graph.structure)
    sources: list[Input | Output] = []
    for index, leaf in enumerate(graph.gather()):
        own = own_slot.get(index)
        if own is not None and leaf is leaves[own]:
            sources.append(Input(own))  # two slots may hold one array: each keeps its own leaf
        else:
            sources.append(inputs[id(leaf)] if id(leaf) in inputs else output(leaf))

    def returned(leaf: Any) -> NodeRef | Output | Static:
        if is_node(leaf):
            return NodeRef(number[id(leaf)])
        scalar = isinstance(leaf, bool | int | float | complex)
        if is_array(leaf) or not (scalar or _is_static(leaf)) or (scalar and not keep_scalars):
            return output(leaf)
        return Static(leaf)

    parts = tuple(returned(leaf) for leaf in flat)
    lines = {index: dict(node._lines) for index, node in enumerate(graph.nodes) if node._lines}
    return Effects(before, graph.structure, tuple(sources), treedef, parts, len(values), lines), values


def _is_static(leaf: Any) -> bool:
    return not hasattr(leaf, "__jax_array__") and not hasattr(leaf, "shape")


def own_slots(before: Structure, after: Structure) -> dict[int, int]:
    """Maps leaf numbers after the call to leaf numbers before it, for nodes whose children are laid out as they were."""
    if before.nodes == after.nodes:
        return {leaf: leaf for leaf in range(before.leaf_count)}
    own: dict[int, int] = {}
    for (layout, refs), (new_layout, new_refs) in zip(before.nodes, after.nodes, strict=False):
        old = dict(zip(layout.dynamic, refs, strict=True))
        for name, ref in zip(new_layout.dynamic, new_refs, strict=True):
            if isinstance(ref, LeafRef) and isinstance(old.get(name), LeafRef):
                own[ref.leaf] = old[name].leaf  # pyright: ignore[reportAttributeAccessIssue]
            elif isinstance(ref, NestRef) and isinstance(was := old.get(name), NestRef) and was.treedef == ref.treedef:
                for child, child_was in zip(ref.children, was.children, strict=True):
                    if isinstance(child, LeafRef) and isinstance(child_was, LeafRef):
                        own[child.leaf] = child_was.leaf
    return own


def changed_leaves(effects: Effects, own: Mapping[int, int]) -> list[int]:
    """Lists the leaves after a call that are not what was in their place before: written, moved or new.

    Args:
        effects: what the call did.
        own: for each leaf after the call the leaf that was in its place, as `own_slots` returns it.
    """
    return [leaf for leaf, source in enumerate(effects.leaves) if leaf not in own or source != Input(own[leaf])]


def return_donated(effects: Effects, donated: Sequence[int]) -> tuple[Effects, tuple[int, ...]]:
    """Makes donated leaves that are still needed after the call outputs, since their input buffers are gone.

    Args:
        effects: the effects of one trace.
        donated: numbers of the leaves that are donated.

    Returns:
        The effects as seen from outside of the donating program, and the leaves that it has to return as well.
    """
    needed = {source.leaf for source in effects.leaves if isinstance(source, Input)} & set(donated)
    extra = {leaf: Output(effects.output_count + position) for position, leaf in enumerate(sorted(needed))}
    if not extra:
        return effects, ()
    leaves = tuple(extra.get(source.leaf, source) if isinstance(source, Input) else source for source in effects.leaves)
    return replace(effects, leaves=leaves, output_count=effects.output_count + len(extra)), tuple(extra)


def apply(effects: Effects, nodes: Sequence[Node], leaves: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Carries the effects of a call over to the caller's objects.

    Args:
        effects: what the call did.
        nodes: the caller's objects, numbered as `effects.before`.
        leaves: their leaves before the call, in order.
        values: the output values of the call.

    Returns:
        The caller's objects followed by the new objects of the call.

    Raises:
        LiftError: if an object that was changed belongs to another trace than the current one.
    """

    def leaf(source: Input | Output) -> Any:
        return leaves[source.leaf] if isinstance(source, Input) else values[source.value]

    after = [leaf(source) for source in effects.leaves]
    count = len(effects.before.nodes)
    for index in effects.changed:
        check_write(nodes[index], None)
        note_write(nodes[index], None)
    everything = [*nodes, *(blank(layout) for layout, _ in effects.after.nodes[count:])]
    for index in (*effects.changed, *range(count, len(everything))):
        layout, refs = effects.after.nodes[index]
        node = everything[index]
        structure_changed = index >= count or effects.before.nodes[index] != (layout, refs)
        node._fill(layout, [resolve(ref, everything, after) for ref in refs])
        if structure_changed:
            node._mark_changed()
            node._layout = layout
            if index in effects.lines:
                object.__setattr__(node, "_lines", {**(node._lines or {}), **effects.lines[index]})
    return everything


def _is_changed(effects: Effects, index: int) -> bool:
    (old, old_refs), (new, new_refs) = effects.before.nodes[index], effects.after.nodes[index]
    return old is not new or not all(_is_kept(effects, *refs) for refs in zip(old_refs, new_refs, strict=True))


def _is_kept(effects: Effects, old: Ref, new: Ref) -> bool:
    """Tells whether a child is what it was. Its number says nothing: numbers shift when an object gains a leaf."""
    if isinstance(old, LeafRef) and isinstance(new, LeafRef):
        return effects.leaves[new.leaf] == Input(old.leaf)
    if isinstance(old, NestRef) and isinstance(new, NestRef):
        pairs = zip(old.children, new.children, strict=False)
        return old.treedef == new.treedef and all(_is_kept(effects, *pair) for pair in pairs)
    return old == new


def result_of(effects: Effects, everything: Sequence[Any], values: Sequence[Any]) -> Any:
    """Returns what the function returned, in terms of the caller's objects.

    Args:
        effects: what the call did.
        everything: the caller's objects followed by the new ones, as `apply` returns them.
        values: the output values of the call.
    """

    def part(source: NodeRef | Output | Static) -> Any:
        if isinstance(source, NodeRef):
            return everything[source.node]
        return values[source.value] if isinstance(source, Output) else source.value

    return jax.tree.unflatten(effects.treedef, [part(source) for source in effects.returned])

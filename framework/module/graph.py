"""The objects reachable from some roots as a graph: nodes once each, leaves by slot, and the interned static structure.

A pytree is a tree, and an object that is used in two places would become two. The graph keeps such objects one: every
node has one number, and its leaves appear once.
"""

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from framework.module.fields import Kind
from framework.module.hyper import is_array, is_array_class
from framework.module.layout import Layout, Node, epoch, layout_of
from framework.module.ownership import check_read, compiling


# Tuples, since structures are hashed and compared whole; the tag keeps the node and the leaf of one number apart.
class NodeRef(NamedTuple):
    """A child that is the node of this number."""

    node: int
    tag: str = "node"


class LeafRef(NamedTuple):
    """A child that is the leaf of this number."""

    leaf: int
    tag: str = "leaf"


class NestRef(NamedTuple):
    """A child that is a tuple or a foreign pytree, with what is in it."""

    treedef: Any
    children: tuple[NodeRef | LeafRef, ...]
    tag: str = "nest"


@functools.cache
def _leaf_ref(number: int) -> LeafRef:
    return LeafRef(number)


@functools.cache
def _node_ref(number: int) -> NodeRef:
    return NodeRef(number)


Ref = NodeRef | LeafRef | NestRef


class Structure:
    """The static part of a graph, interned: equal structures are one object, so that comparing them costs nothing.

    Attributes:
        nodes: for each node its layout and, in the order of `layout.dynamic`, its children.
        roots: numbers of the root nodes.
        leaf_count: the number of leaves.
        paths: by roots, the paths of nodes and of leaves that were asked for so far.
    """

    __slots__ = ("__weakref__", "leaf_count", "nodes", "paths", "roots")

    _interned: ClassVar["weakref.WeakValueDictionary[Hashable, Structure]"] = weakref.WeakValueDictionary()

    def __init__(
        self, nodes: tuple[tuple[Layout, tuple[Ref, ...]], ...], roots: tuple[int, ...], leaf_count: int
    ) -> None:
        self.nodes, self.roots, self.leaf_count = nodes, roots, leaf_count
        self.paths: dict[tuple[int, ...], tuple[dict[int, str], dict[int, str]]] = {}

    @classmethod
    def of(
        cls, nodes: tuple[tuple[Layout, tuple[Ref, ...]], ...], roots: tuple[int, ...], leaf_count: int
    ) -> "Structure":
        """Returns the one structure with this content."""
        content = nodes, roots
        structure = cls._interned.get(content)
        if structure is None:
            structure = cls._interned.setdefault(content, cls(nodes, roots, leaf_count))
        return structure


class Slot(NamedTuple):
    """Where a leaf is kept: `storage[key]`, or inside the nest there, at position `inner`."""

    storage: Any
    key: Any
    inner: int | None
    node: int
    kind: type[Kind] | None


_slot: Callable[[tuple[Any, ...]], Slot] = functools.partial(tuple.__new__, Slot)  # past Python, for the walk


class Graph(NamedTuple):
    """A walked set of roots.

    Attributes:
        nodes: the objects, roots first.
        slots: for each leaf its place.
        structure: the static part.
    """

    nodes: list[Node]
    slots: list[Slot]
    structure: Structure

    def gather(self) -> list[Any]:
        """Returns the leaves, in order."""
        return [
            dict.__getitem__(slot.storage, slot.key)
            if slot.inner is None and isinstance(slot.storage, dict)
            else read_slot(slot)
            for slot in self.slots
        ]


def is_node(value: Any) -> bool:
    """Tells whether a value is a module, or a list or dict of a module."""
    return isinstance(value, Node)


def raw_get(storage: Any, key: Any) -> Any:
    """Reads from a storage past the check of captured reads."""
    return dict.__getitem__(storage, key) if isinstance(storage, dict) else list.__getitem__(storage, key)


def raw_set(storage: Any, key: Any, value: Any) -> None:
    """Writes to a storage past all checks; the caller has made sure that the structure stays."""
    epoch.writes += 1
    if isinstance(storage, dict):
        dict.__setitem__(storage, key, value)
    else:
        list.__setitem__(storage, key, value)


def flatten_nest(value: Any) -> tuple[list[Any], Any]:
    """Flattens a tuple or foreign pytree down to leaves and nodes."""
    return jax.tree.flatten(value, is_leaf=is_node)


def read_slot(slot: Slot) -> Any:
    """Returns the leaf in a slot."""
    value = raw_get(slot.storage, slot.key)
    return value if slot.inner is None else flatten_nest(value)[0][slot.inner]


def write_slot(slot: Slot, leaf: Any) -> None:
    """Puts a leaf into a slot, past all checks."""
    if slot.inner is not None:
        children, treedef = flatten_nest(raw_get(slot.storage, slot.key))
        children[slot.inner] = leaf
        leaf = jax.tree.unflatten(treedef, children)
    raw_set(slot.storage, slot.key, leaf)


def nodes_in(value: Any) -> list[Node]:
    """Returns the nodes that a stored value is or directly holds."""
    if isinstance(value, Node):
        return [value]
    return [] if is_array(value) else [child for child in flatten_nest(value)[0] if isinstance(child, Node)]


def descendants(root: Node) -> list[Node]:
    """Returns a node and everything below it, each object once."""
    return walk([root]).nodes


def walk_read(roots: Sequence[Node]) -> Graph:
    """As `walk`, for reading the leaves: refuses what a compiled function may not read, see `check_read`."""
    graph = walk(roots)
    if compiling.reads is not None:
        for slot, leaf in zip(graph.slots, graph.gather(), strict=True):
            check_read(
                graph.nodes[slot.node], slot.key, leaf if slot.inner is None else raw_get(slot.storage, slot.key)
            )
    return graph


def walk(roots: Sequence[Node], known: Sequence[Node] = ()) -> Graph:
    """Walks everything reachable from the roots, breadth first.

    Args:
        roots: nodes that come first in the numbering, each object once, and are the roots of the structure.
        known: nodes that are numbered before the roots, in this order, whether they can be reached or not.

    Returns:
        The graph; numbering depends on the structure only.
    """
    nodes: list[Node] = []
    numbers: dict[int, int] = {}
    slots: list[Slot] = []
    records: list[tuple[Layout, tuple[Ref, ...]]] = []

    def number(node: Node) -> int:
        found = numbers.get(id(node))
        if found is None:
            found = numbers[id(node)] = len(nodes)
            nodes.append(node)
        return found

    for node in known:
        number(node)
    root_numbers = tuple(number(root) for root in roots)
    for index, node in enumerate(nodes):  # grows while it is walked
        layout, storage = layout_of(node), node._storage()
        get: Any = dict.__getitem__ if isinstance(storage, dict) else list.__getitem__
        refs: list[Ref] = []
        for name, kind in zip(layout.dynamic, layout.kinds, strict=True):
            value = get(storage, name)
            if is_array_class(type(value)):
                refs.append(_leaf_ref(len(slots)))
                slots.append(_slot((storage, name, None, index, kind)))
            elif isinstance(value, Node):
                refs.append(_node_ref(number(value)))
            elif jax.tree_util.all_leaves((value,)):
                refs.append(_leaf_ref(len(slots)))
                slots.append(Slot(storage, name, None, index, kind))
            else:
                children, treedef = flatten_nest(value)
                inner: list[NodeRef | LeafRef] = []
                for position, child in enumerate(children):
                    if isinstance(child, Node):
                        inner.append(_node_ref(number(child)))
                    else:
                        inner.append(_leaf_ref(len(slots)))
                        slots.append(Slot(storage, name, position, index, kind))
                refs.append(NestRef(treedef, tuple(inner)))
        records.append((layout, tuple(refs)))
    return Graph(nodes, slots, Structure.of(tuple(records), root_numbers, len(slots)))


def blank(layout: Layout) -> Node:
    """Makes an object of the class of a layout, with its marks and no content; `__init__` is not called."""
    cls = layout.cls
    make: Any = cls.__new__ if issubclass(cls, list | dict) else object.__new__
    node: Node = make(cls)
    node._start_blank()
    return node


def build(structure: Structure, leaves: Sequence[Any]) -> list[Any]:
    """Makes new objects of a structure, with the same sharing.

    Args:
        structure: the static part.
        leaves: one value for each leaf.

    Returns:
        All nodes, in order; they belong to the current trace.
    """
    nodes: list[Any] = [blank(layout) for layout, _ in structure.nodes]
    for node, (layout, refs) in zip(nodes, structure.nodes, strict=True):
        node._fill(layout, [resolve(ref, nodes, leaves) for ref in refs])
    return nodes


def resolve(ref: Ref, nodes: Sequence[Any], leaves: Sequence[Any]) -> Any:
    """Returns the child that a reference stands for."""
    if isinstance(ref, LeafRef):
        return leaves[ref.leaf]
    if isinstance(ref, NodeRef):
        return nodes[ref.node]
    return jax.tree.unflatten(ref.treedef, [resolve(child, nodes, leaves) for child in ref.children])


def copy_leaf(leaf: Any) -> Any:
    """Copies the buffer of a leaf; a tracer or an abstract shape has none and stays."""
    if isinstance(leaf, Tracer | jax.ShapeDtypeStruct) or not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    return jnp.copy(leaf)

"""The structure of a module tree as plain records: which object holds what, and which leaf is where."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax

from framework.module.base import Module
from framework.module.codec import encode
from framework.module.containers import Tuple
from framework.module.graph import Graph, LeafRef, NestRef, NodeRef, raw_get
from framework.module.paths import leaf_paths, node_paths

Child = dict[str, Any]
"""A `{"leaf": number}`, `{"node": number}`, `{"value": encoded}` or `{"nest": [type, names, children]}`."""


@dataclass(frozen=True)
class NodeRecord:
    """One object of the tree.

    Attributes:
        path: the path of the object, empty for the root.
        cls: `module:qualname` of its class.
        kind: `module:qualname` of the kind of the leaves of a list or dict, None where there is none.
        content: pairs of encoded name and child, in the order of the object.
    """

    path: str
    cls: str
    kind: str | None
    content: list[tuple[Any, Child]]


@dataclass(frozen=True)
class LeafRecord:
    """One array of the tree.

    Attributes:
        path: the path of the leaf; two leaves may have the same, where dictionary keys look alike.
        shape: its shape.
        dtype: the name of its dtype, `key<fry>` and the like for random keys.
        kind: `module:qualname` of its kind, None for a leaf of a plain pytree.
        trained: whether that kind is trained.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    kind: str | None
    trained: bool


@dataclass(frozen=True)
class Structure:
    """The objects of a tree (the root first) and its leaves, by number."""

    nodes: list[NodeRecord]
    leaves: list[LeafRecord]


def class_path(cls: type) -> str:
    """Returns `module:qualname` of a class, whether or not it can be imported by it."""
    return f"{cls.__module__}:{cls.__qualname__}"


def describe(graph: Graph) -> Structure:
    """Returns the structure of a walked module with one root; no array is read.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> from framework.module.graph import walk
        >>> class Sum(fw.Module):
        ...     total: fw.State
        ...     def __init__(self):
        ...         self.total, self.unit = jnp.zeros(2), "m"
        >>> structure = describe(walk([Sum()]))
        >>> structure.nodes[0].content
        [('total', {'leaf': 0}), ('unit', {'value': 'm'})]
        >>> structure.leaves[0].path, structure.leaves[0].shape, structure.leaves[0].dtype
        ('total', (2,), 'float32')
    """
    names = node_paths(graph)
    nodes = [_node_record(graph, index, names[index]) for index in range(len(graph.nodes))]
    paths = leaf_paths(graph)
    leaves: list[LeafRecord] = []
    for index, (slot, leaf) in enumerate(zip(graph.slots, graph.gather(), strict=True)):
        kind = slot.kind
        trained = kind is not None and kind.trained
        named = None if kind is None else class_path(kind)
        leaves.append(LeafRecord(paths[index], tuple(leaf.shape), str(leaf.dtype), named, trained))
    return Structure(nodes, leaves)


def _node_record(graph: Graph, index: int, path: str) -> NodeRecord:
    node, (layout, refs) = graph.nodes[index], graph.structure.nodes[index]
    storage = node._storage()
    children: dict[Any, Child] = {
        name: _child(raw_get(storage, name), ref) for name, ref in zip(layout.dynamic, refs, strict=True)
    }
    children |= {name: {"value": encode(value)} for name, value in layout.statics}
    order = storage if isinstance(storage, dict) else range(len(storage))
    content = [(encode(name), children[name]) for name in order if name in children]
    kind = None if isinstance(node, Module) else getattr(node, "_kind", None)
    return NodeRecord(path, class_path(layout.cls), None if kind is None else class_path(kind), content)


def _child(value: Any, ref: Any) -> Child:
    if isinstance(ref, NestRef):
        try:
            return _nest(jax.tree.unflatten(ref.treedef, ref.children))
        except Exception:  # a foreign class may refuse to hold anything but arrays, in words of its own
            return {"nest": [f"foreign:{ref.treedef}", None, [_nest(child) for child in ref.children]]}
    return _nest(ref)


def _nest(value: Any) -> Child:
    """Describes a tuple or foreign pytree that holds references in place of leaves."""
    if isinstance(value, LeafRef):
        return {"leaf": value.leaf}
    if isinstance(value, NodeRef):
        return {"node": value.node}
    if isinstance(value, dict):
        return {"nest": ["dict", [encode(name) for name in value], [_nest(item) for item in value.values()]]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        named: Any = value
        kind = f"namedtuple:{class_path(type(named))}"
        return {"nest": [kind, list(named._fields), [_nest(item) for item in named]]}
    for sequence in (Tuple, tuple, list):
        if type(value) is sequence:
            return {"nest": [sequence.__name__, None, [_nest(item) for item in value]]}
    if jax.tree_util.all_leaves((value,)) or value is None:
        return {"value": encode(value)}
    raise TypeError(f"{type(value).__name__} is a pytree of its own kind")


def parts(child: Child, prefix: str = "") -> Iterator[tuple[str, Child]]:
    """Yields what a child consists of: leaves, nodes, values and the types of nests, with the rest of their
    paths.

    Example:
        >>> list(parts({"nest": ["list", None, [{"leaf": 3}, {"value": 7}]]}))
        [('', {'type': 'list'}), ('.0', {'leaf': 3}), ('.1', {'value': 7})]
    """
    if "nest" not in child:
        yield prefix, child
        return
    kind, names, children = child["nest"]
    yield prefix, {"type": kind}
    for name, item in zip(range(len(children)) if names is None else names, children, strict=True):
        yield from parts(item, f"{prefix}.{name}")

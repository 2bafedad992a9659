"""Leaf names such as `encoder.blocks.3.weight`, and choosing leaves by kind and by name pattern."""

import collections
import fnmatch
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from framework.errors import ModuleError
from framework.module.containers import as_leaf
from framework.module.fields import Kind, as_kind
from framework.module.graph import (
    Graph,
    LeafRef,
    NestRef,
    NodeRef,
    is_node,
    raw_get,
    walk,
    walk_read,
    write_slot,
)
from framework.module.hyper import is_array
from framework.module.layout import Layout, Node
from framework.module.ownership import check_write, note_write


def node_paths(graph: Graph, roots: Sequence[int] = (0,)) -> dict[int, str]:
    """Returns the first path of each node that can be reached from some roots.

    Args:
        graph: a walked graph.
        roots: numbers of the nodes that paths start from; with more than one, their position is the first part.

    Returns:
        A dict from node number to path; the path of a single root is empty.
    """
    return dict(_paths(graph, tuple(roots))[0])


def _paths(graph: Graph, roots: tuple[int, ...]) -> tuple[dict[int, str], dict[int, str]]:
    """Returns the paths of nodes and of leaves, which are those of all graphs of the structure."""
    known = graph.structure.paths.get(roots)
    if known is None:
        nodes: dict[int, str] = {}
        leaves: dict[int, str] = {}
        for ref, path in _visit(graph, roots):
            if isinstance(ref, NodeRef):
                nodes[ref.node] = path
            else:
                leaves[ref.leaf] = path
        known = graph.structure.paths[roots] = nodes, leaves
    return known


def _visit(graph: Graph, roots: Sequence[int]) -> Iterator[tuple[NodeRef | LeafRef, str]]:
    """Yields nodes and leaves depth first and in order, each once, by the path on which it is met first."""
    top = {root: "" if len(roots) == 1 else str(position) for position, root in reversed([*enumerate(roots)])}
    stack: list[tuple[NodeRef | LeafRef, str]] = [(NodeRef(root), top[root]) for root in reversed(roots)]
    seen: set[NodeRef | LeafRef] = set()
    while stack:
        ref, path = stack.pop()
        if ref in seen:
            continue
        seen.add(ref)
        yield ref, path
        if isinstance(ref, NodeRef):
            below = [(child, join(path, name)) for child, name in _children(graph, ref.node)]
            stack += [(child, name) for child, name in reversed(below) if getattr(child, "node", None) not in top]


def _texts(layout: Layout) -> dict[Any, str]:
    """Returns the parts of paths that stand for the children of an object; keys like `1` and `"1"` stay apart."""
    texts = {name: str(name) for name in layout.dynamic}
    count = collections.Counter(texts.values())
    return {name: text if count[text] == 1 else repr(name) for name, text in texts.items()}


def _children(graph: Graph, index: int) -> Iterator[tuple[NodeRef | LeafRef, str]]:
    layout, refs = graph.structure.nodes[index]
    texts = _texts(layout)
    for name, ref in zip(layout.dynamic, refs, strict=True):
        if isinstance(ref, NestRef):
            suffixes = nest_suffixes(raw_get(graph.nodes[index]._storage(), name))
            for suffix, child in zip(suffixes, ref.children, strict=True):
                yield child, join(texts[name], suffix)
        else:
            yield ref, texts[name]


def nest_suffixes(value: Any) -> list[str]:
    """Returns the names of what a tuple or a foreign pytree holds."""
    paths = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_node)[0]
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]


def join(parent: str, name: str) -> str:
    """Joins two parts of a path, each of which may be empty."""
    return f"{parent}.{name}" if parent and name else parent or name


def leaf_paths(graph: Graph, roots: Sequence[int] = (0,)) -> dict[int, str]:
    """Returns the path of each leaf that can be reached from some roots, in depth-first order.

    Args:
        graph: a walked graph.
        roots: see `node_paths`.

    Returns:
        A dict from leaf number to path, each leaf once, under its first path.
    """
    return dict(_paths(graph, tuple(roots))[1])


def by_name(graph: Graph, chosen: Mapping[int, str]) -> dict[str, int]:
    """Turns leaf names around.

    Args:
        graph: a walked graph, for the error text.
        chosen: names of some leaves, by leaf number.

    Returns:
        The leaf numbers by name.

    Raises:
        ModuleError: if two leaves have one name, as in `{"a": {"b": x}, "a.b": y}`.
    """
    found: dict[str, int] = {}
    for leaf, path in chosen.items():
        if found.setdefault(path, leaf) != leaf:
            raise ModuleError(
                f"two leaves of {type(graph.nodes[0]).__name__} are both called {path!r}, so that one would be lost where "
                f"leaves are chosen by name. Use keys without dots in the dict that holds them."
            )
    return found


def matches(selector: Any, path: str, kind: type[Kind] | None) -> bool:
    """Tells whether a leaf is selected.

    Args:
        selector: a kind (`fw.Param`), a path pattern in which `*` stands for any characters, a function of the path, or
            a tuple of these, of which one must match.
        path: the path of the leaf.
        kind: the kind of the leaf.

    Returns:
        Whether the leaf is selected.

    Example:
        >>> matches("encoder.*", "encoder.weight", None), matches(("head.*", "*.bias"), "encoder.bias", None)
        (True, True)
    """
    if isinstance(selector, tuple):
        return any(matches(part, path, kind) for part in selector)
    if isinstance(selector, str):
        return fnmatch.fnmatchcase(path, selector)
    if callable(selector) and not inspect.isclass(selector) and not hasattr(selector, "__metadata__"):
        return bool(selector(path))
    return kind is not None and issubclass(kind, as_kind(selector))


def select(module: Node, selector: Any = Kind) -> dict[str, Any]:
    """Returns leaves of an object by path.

    Args:
        module: a module.
        selector: which leaves: a kind, a path pattern such as `"encoder.*"`, a function of the path, or a tuple of them.

    Returns:
        A dict from path to array; a shared leaf appears once, under its first path.

    Example:
        >>> import framework as fw
        >>> model = fw.nn.Sequential(fw.nn.Linear(2, 3, rngs=fw.Rngs(0)), fw.nn.BatchNorm(3))
        >>> list(fw.select(model, "*.bias")), list(fw.select(model, fw.State))
        (['layers.0.bias', 'layers.1.bias'], ['layers.1.mean', 'layers.1.variance'])
    """
    graph = walk_read([module])
    leaves = graph.gather()
    chosen = {leaf: path for leaf, path in leaf_paths(graph).items() if matches(selector, path, graph.slots[leaf].kind)}
    return {path: leaves[leaf] for path, leaf in by_name(graph, chosen).items()}


def update(module: Node, leaves: Mapping[str, Any]) -> None:
    """Replaces leaves of an object by path.

    Args:
        module: a module, changed in place.
        leaves: a mapping from path to array; shapes and dtypes may differ from what is there.

    Raises:
        ModuleError: if a path does not exist, or a value is no array; nothing is changed then.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> model = fw.nn.Linear(1, 1, rngs=fw.Rngs(0))
        >>> fw.update(model, {"weight": jnp.ones((1, 1))})
        >>> model.weight.tolist()
        [[1.0]]
    """
    graph = walk([module])
    names = leaf_paths(graph)
    numbers = by_name(graph, {leaf: path for leaf, path in names.items() if path in leaves})
    for path, value in leaves.items():
        if path not in numbers:
            known = ", ".join(sorted(names.values())) or "none"
            raise ModuleError(
                f"{type(module).__name__} has no leaf {path!r}, so that nothing was updated. Its leaves are: {known}."
            )
        if not is_array(value):
            raise ModuleError(
                f"the leaf {path!r} of {type(module).__name__} cannot become {value!r}: leaves are arrays. Pass "
                f"`jnp.asarray(...)`."
            )
    for path in leaves:
        slot = graph.slots[numbers[path]]
        check_write(graph.nodes[slot.node], slot.key)
        note_write(graph.nodes[slot.node], slot.key)
    for path, value in leaves.items():
        write_slot(graph.slots[numbers[path]], as_leaf(value))

"""Puts saved leaves and hyperparameters into an existing object, when everything was read and checked."""

from collections.abc import Sequence
from typing import Any, cast

import jax

from framework.checkpoint.matching import Match, name_key
from framework.checkpoint.structure import Child, NodeRecord, Structure, class_path
from framework.module.base import Module
from framework.module.codec import decode, encode
from framework.module.containers import Tuple
from framework.module.graph import Graph, flatten_nest, raw_get
from framework.module.layout import Node


def rebuild(saved: Structure, present: Structure, graph: Graph, match: Match, leaves: Sequence[Any]) -> None:
    """Makes an object what the checkpoint says.

    Every new content is made before the first one is put in place, and putting it in place cannot fail.

    Args:
        saved: the structure of the checkpoint.
        present: the structure of the object.
        graph: the walked object; objects of it that the checkpoint has stay the same objects.
        match: what of the one is what of the other, without problems.
        leaves: the arrays of the checkpoint, by leaf number.
    """
    nodes = [
        graph.nodes[match.nodes[number]] if number in match.nodes else _blank(record, match)
        for number, record in enumerate(saved.nodes)
    ]
    builder = _Builder(present, graph, match, nodes, leaves)
    contents = [builder.content(number, record) for number, record in enumerate(saved.nodes)]
    for node, content in zip(nodes, contents, strict=True):
        _put(node, content)
    for node in nodes[1:]:
        if isinstance(node, Module):
            node._held = True


def _blank(record: NodeRecord, match: Match) -> Node:
    cls: Any = match.classes[record.cls]
    if issubclass(cls, Module):
        node = object.__new__(cls)
        node._start_blank()
        return node
    return cls(kind=None if record.kind is None else match.classes[record.kind])


def _put(node: Any, content: dict[Any, Any]) -> None:
    """Replaces the content of an object in place, and tells every plan that has seen it to look again."""
    storage = node._storage()
    if isinstance(storage, dict):
        dict.clear(cast("dict[Any, Any]", storage))
        dict.update(cast("dict[Any, Any]", storage), content)
    else:
        list.__setitem__(storage, slice(None), list(content.values()))
    node._mark_changed()


class _Builder:
    """Makes the content of objects from its description."""

    def __init__(self, present: Structure, graph: Graph, match: Match, nodes: Sequence[Node], leaves: Sequence[Any]):
        self.present, self.graph, self.match, self.nodes, self.leaves = present, graph, match, nodes, leaves

    def content(self, number: int, record: NodeRecord) -> dict[Any, Any]:
        """Returns the content of one object by name, in its order."""
        there = self.match.nodes.get(number)
        old: dict[str, tuple[Any, Any]] = {}
        if there is not None:
            storage = self.graph.nodes[there]._storage()
            names = storage if isinstance(storage, dict) else range(len(storage))
            old = {name_key(encode(name)): (name, raw_get(storage, name)) for name in names}
        made: dict[Any, Any] = {}
        for encoded, child in record.content:
            key = name_key(encoded)
            name, before = old[key] if key in old else (decode(encoded, allow=self.match.allow), None)
            made[name] = self._child((number, key, ""), child, before)
        return made

    def _child(self, key: tuple[int, str, str], child: Child, before: Any) -> Any:
        """Returns a new child.

        Args:
            key: the saved object, the encoded name, and the path inside of the attribute.
            child: its description.
            before: what is in this place now; hyperparameters that did not change are taken from there.
        """
        if "leaf" in child:
            return self.leaves[child["leaf"]]
        if "node" in child:
            return self.nodes[child["node"]]
        if "value" in child:
            return self.match.values.get(key, before)
        kind, names, children = child["nest"]
        labels = range(len(children)) if names is None else names
        kind, _, detail = kind.partition(":")
        parts = flatten_nest(before)[0] if kind == "foreign" else before
        made = [
            self._child((*key[:2], f"{key[2]}.{label}"), part, self._part(parts, kind, position, label))
            for position, (label, part) in enumerate(zip(labels, children, strict=True))
        ]
        if kind == "foreign":
            return jax.tree.unflatten(flatten_nest(before)[1], made)
        if kind == "dict":
            return dict(zip((decode(label, allow=self.match.allow) for label in labels), made, strict=True))
        if kind == "namedtuple":
            cls: Any = type(before) if class_path(type(before)) == detail else self.match.classes[detail]
            return tuple.__new__(cls, made)
        return {"Tuple": Tuple, "tuple": tuple, "list": list}[kind](made)

    def _part(self, before: Any, kind: str, position: int, label: Any) -> Any:
        if kind == "dict":
            return before.get(decode(label, allow=self.match.allow)) if isinstance(before, dict) else None
        sequence = isinstance(before, tuple | list) and position < len(before)
        return before[position] if sequence else None

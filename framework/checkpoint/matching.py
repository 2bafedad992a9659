"""Compares a saved structure with the object that it is restored into, and says what does not fit."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from framework.checkpoint.structure import Child, NodeRecord, Structure, class_path, parts
from framework.module.base import Module
from framework.module.codec import ALLOWED, CodecError, decode
from framework.module.containers import Dict, List
from framework.module.fields import Kind
from framework.module.graph import Graph
from framework.module.importing import ImportRefused, load


@dataclass
class Match:
    """What of the saved structure is what of the object.

    Attributes:
        nodes: number of the object for each saved node that is there already.
        leaves: number of the leaf for each saved leaf that is there already.
        values: the hyperparameters that change, by saved node, encoded name and path inside of the attribute.
        changed: the paths of these hyperparameters.
        classes: classes and kinds by their `module:qualname`, as far as they are needed.
        problems: for each kind of misfit the texts of its cases.
        allow: packages that values may be imported from.
    """

    nodes: dict[int, int] = field(default_factory=dict)
    leaves: dict[int, int] = field(default_factory=dict)
    values: dict[tuple[int, str, str], Any] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    classes: dict[str, type] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    allow: tuple[str, ...] = ALLOWED

    def problem(self, kind: str, text: str) -> None:
        """Notes a misfit."""
        self.problems.setdefault(kind, []).append(text)


def name_key(encoded: Any) -> str:
    """Returns a hashable form of an encoded name or value that tells `1`, `True` and `"1"` apart."""
    return json.dumps(encoded)


class Matcher:
    """Walks the saved structure and the structure of the object side by side.

    Args:
        saved: the structure of the checkpoint.
        present: the structure of the object.
        graph: the walked object.
        allow: packages that classes and functions may be imported from, besides the modules of the object's
            classes.
        own: whether the object was itself saved to or restored from this place before. Then whatever changed
            since was changed by training, and is undone; else the object has to have been built alike.
    """

    def __init__(self, saved: Structure, present: Structure, graph: Graph, *, allow: Sequence[str], own: bool) -> None:
        self.saved, self.present, self.graph, self.own = saved, present, graph, own
        self.match = Match(classes=_classes_in(graph))
        modules = {cls.__module__ for cls in self.match.classes.values()}
        self.match.allow = (*ALLOWED, *allow, *sorted(modules - {"builtins"}))

    def run(self) -> Match:
        """Returns the match; it may be carried out if it has no problems."""
        self._pair(0, 0)
        if not self.match.problems:
            for number in range(len(self.saved.nodes)):
                if number not in self.match.nodes:
                    self._new_node(number)
        return self.match

    def _pair(self, saved_number: int, present_number: int) -> None:
        stack = [(saved_number, present_number)]
        taken: dict[int, int] = {}
        while stack:
            saved_index, present_index = stack.pop(0)
            known = self.match.nodes.get(saved_index)
            if known is not None or present_index in taken:
                if known != present_index:
                    self._sharing(saved_index, present_index, known)
                continue
            saved, present = self.saved.nodes[saved_index], self.present.nodes[present_index]
            if not _same_class(saved.cls, present.cls):
                text = f"{_shown(saved.path)} is {saved.cls} and here {present.cls}"
                self._differs("class", text, anyway=present_index == 0)
                continue
            self.match.nodes[saved_index] = present_index
            taken[present_index] = saved_index
            stack += self._pair_content(saved_index, saved, present_index, present)

    def _sharing(self, saved_index: int, present_index: int, known: int | None) -> None:
        path = self.present.nodes[present_index].path
        other = self.saved.nodes[saved_index].path if known is not None else path
        saved = f"the same object as {other}" if known is not None else "an object of its own"
        self._differs("sharing", f"{_shown(path)} is {saved} in the checkpoint and is not in this object")

    def _pair_content(
        self, saved_index: int, saved: NodeRecord, present_index: int, present: NodeRecord
    ) -> list[tuple[int, int]]:
        children = {name_key(name): (name, child) for name, child in present.content}
        pairs: list[tuple[int, int]] = []
        for name, child in saved.content:
            there = children.pop(name_key(name), (name, None))[1]
            pairs += self._pair_child(saved_index, present_index, name, child, there)
        for name, child in children.values():
            for suffix, part in parts(child):
                self._missing(present_index, _place(present.path, name, suffix), name, part, {})
        return pairs

    def _pair_child(
        self, saved_index: int, present_index: int, name: Any, child: Child, there: Child | None
    ) -> list[tuple[int, int]]:
        pairs: list[tuple[int, int]] = []
        present = {} if there is None else dict(parts(there))
        for suffix, part in parts(child):
            path = _place(self.saved.nodes[saved_index].path, name, suffix)
            other = present.pop(suffix, {})
            if "value" in part:
                if other and "value" not in other:
                    self._missing(present_index, path, name, other, part)
                self._value((saved_index, name_key(name), suffix), path, part["value"], other)
            elif "type" in part:
                self._type(path, part["type"], other)
            elif "leaf" in part and "leaf" in other:
                self._leaf(part["leaf"], other["leaf"])
            elif "node" in part and "node" in other:
                pairs.append((part["node"], other["node"]))
            elif not other or "value" in other:
                self._unexpected(present_index, path, name, part, other)
            else:
                saved, here = self._what(part, self.saved), self._what(other, self.present)
                self._differs("class", f"{path} is {saved} and here {here}")
        for suffix, part in present.items():
            self._missing(present_index, _place(self.present.nodes[present_index].path, name, suffix), name, part, {})
        return pairs

    def _differs(self, kind: str, text: str, *, anyway: bool = False) -> None:
        if anyway or not self.own:
            self.match.problem(kind, text)

    def _what(self, part: Child, structure: Structure) -> str:
        if "type" in part:
            return f"a {part['type'].replace(':', ' ')}".replace("Tuple", "tuple")
        return "an array" if "leaf" in part else structure.nodes[part["node"]].cls

    def _leaf(self, saved_number: int, present_number: int) -> None:
        saved, present = self.saved.leaves[saved_number], self.present.leaves[present_number]
        if saved.shape != present.shape:
            self._differs("shape", f"{saved.path} has {saved.shape} and here {present.shape}")
        if saved.dtype != present.dtype:
            self._differs("dtype", f"{saved.path} is {saved.dtype} and here {present.dtype}")
        self.match.leaves[saved_number] = present_number

    def _value(self, key: tuple[int, str, str], path: str, encoded: Any, other: Child) -> None:
        if "value" in other and name_key(other["value"]) == name_key(encoded):
            return
        try:
            self.match.values[key] = decode(encoded, allow=self.match.allow)
            self.match.changed.append(path)
        except CodecError as error:
            self.match.problem("hyperparameter", f"{path} ({error})")

    def _type(self, path: str, kind: str, other: Child) -> None:
        name, _, detail = kind.partition(":")
        if other.get("type") == kind:
            return
        if other and "value" not in other:
            saved, here = self._what({"type": kind}, self.saved), self._what(other, self.present)
            self._differs("class", f"{path} is {saved} and here {here}")
        if name == "namedtuple":
            self._class(path, detail, tuple)
        elif name == "foreign":
            self.match.problem("class", f"{path} is the pytree {detail}, which only an object that has one can take")

    def _missing(self, present_index: int, path: str, name: Any, part: Child, instead: Child) -> None:
        """Judges what the object has and the checkpoint has not, or has a hyperparameter instead of."""
        if self.own or "type" in part:
            return
        if "value" in part:
            node = self.graph.nodes[present_index]
            if isinstance(node, Module) and not hasattr(type(node), str(name)):
                self.match.problem("missing", path)
            return
        leaves = self._leaves_below(part, self.present)
        if not instead or any(leaf.trained for leaf in leaves):
            for found in [leaf.path for leaf in leaves] or [path]:
                self.match.problem("missing", found)

    def _unexpected(self, present_index: int, path: str, name: Any, part: Child, other: Child) -> None:
        """Judges what the checkpoint has and the object has not, or has a hyperparameter instead of.

        State that a module, list or dict gained in training comes back; that is what its class has declared
        or a dict may hold. Trained leaves are made by constructors: they come back only to a module that has
        none yet, as layers do that find their sizes at the first call.
        """
        if self.own:
            return
        node = self.graph.nodes[present_index]
        leaves = self._leaves_below(part, self.saved)
        if "leaf" in part and isinstance(node, Module):
            kind = type(node)._kinds.get(name) if isinstance(name, str) else None
            empty = other.get("value") is None
            fits = kind is not None and empty and not (leaves[0].trained and self._has_trained(present_index))
        else:
            fits = not any(leaf.trained for leaf in leaves)
        if not fits:
            for found in [leaf.path for leaf in leaves] or [path]:
                self.match.problem("unexpected", found)

    def _has_trained(self, present_index: int) -> bool:
        children = (part for _, child in self.present.nodes[present_index].content for _, part in parts(child))
        return any(self.present.leaves[part["leaf"]].trained for part in children if "leaf" in part)

    def _leaves_below(self, part: Child, structure: Structure) -> list[Any]:
        if "leaf" in part:
            return [structure.leaves[part["leaf"]]]
        found: dict[int, Any] = {}
        nodes = [part["node"]]
        for number in nodes:  # grows while it is walked
            for _, child in structure.nodes[number].content:
                for _, inner in parts(child):
                    if "leaf" in inner:
                        found[inner["leaf"]] = structure.leaves[inner["leaf"]]
                    elif "node" in inner and inner["node"] not in nodes:
                        nodes.append(inner["node"])
        return list(found.values())

    def _new_node(self, number: int) -> None:
        record = self.saved.nodes[number]
        self._class(record.path, record.cls, Module, List, Dict)
        if record.kind is not None:
            self._class(record.path, record.kind, Kind)
        for name, child in record.content:
            for suffix, part in parts(child):
                path = _place(record.path, name, suffix)
                if "value" in part:
                    self._value((number, name_key(name), suffix), path, part["value"], {})
                elif "type" in part:
                    self._type(path, part["type"], {})

    def _class(self, path: str, named: str, *bases: type) -> None:
        found = self.match.classes.get(named)
        try:
            found = load(named, self.match.allow) if found is None else found
        except ImportRefused as error:
            self.match.problem("class", f"{_shown(path)} ({error})")
            return
        if not (isinstance(found, type) and issubclass(found, bases)):
            self.match.problem("class", f"{_shown(path)}, because {named} is no class of a module here")
            return
        self.match.classes[named] = found


def _same_class(saved: str, present: str) -> bool:
    """Tells whether two class paths mean one class; a script that is run is `__main__`, whatever its name."""
    (home, _, name), (other_home, _, other_name) = saved.partition(":"), present.partition(":")
    return name == other_name and (home == other_home or "__main__" in (home, other_home))


def _classes_in(graph: Graph) -> dict[str, type]:
    """Returns the classes, kinds and named tuples that occur in an object, by path."""
    found: list[Any] = []
    for node, (layout, _) in zip(graph.nodes, graph.structure.nodes, strict=True):
        kinds = node._kinds.values() if isinstance(node, Module) else layout.kinds
        found += [layout.cls, *(kind for kind in kinds if kind is not None)]
    for slot in graph.slots:
        value = slot.storage[slot.key] if slot.inner is not None else None
        if isinstance(value, tuple):
            found += [type(part) for part in (value, *value) if hasattr(part, "_fields")]
    return {class_path(cls): cls for cls in found}


def _place(parent: str, name: Any, suffix: str) -> str:
    text = f"{name if isinstance(name, str | int) else json.dumps(name)}{suffix}"
    return f"{parent}.{text}" if parent else text


def _shown(path: str) -> str:
    return path or "the object itself"

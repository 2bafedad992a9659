"""The static part of one mutable object, interned: what JAX calls its aux data.

Two objects with equal class, leaf names and hyperparameters share one `Layout`, so that comparing tree structures is
comparing pointers, and the type-strict comparison of hyperparameters is paid once, when one of them changes.
"""

import operator
import weakref
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from framework.errors import user_line
from framework.module.fields import Kind
from framework.module.hyper import hashed_by_content, key


class Node:
    """Marks the mutable objects that transformations lift: modules and the containers in them."""

    __slots__ = ()

    _trace: object
    _layout: "Layout | None"
    _plans: Any
    _version: int
    _watched: bool
    _pending: Any
    _lines: dict[Any, str] | None

    def _start_blank(self) -> None:
        """Sets the marks of an object that was made without calling its constructor."""
        raise NotImplementedError

    def _storage(self) -> Any:
        """Returns the dict or list that holds the content, for reading and writing past all checks."""
        raise NotImplementedError

    def _make_layout(self) -> "Layout":
        """Computes the layout from the content."""
        raise NotImplementedError

    def _fill(self, layout: "Layout", children: Any) -> None:
        """Replaces the content by the statics of a layout and the given children, past all checks."""
        raise NotImplementedError

    def _mark_changed(self, layout: "Layout | None" = None) -> None:
        """Notes that the structure changed, which makes every plan that saw this object look again.

        Args:
            layout: the layout now, if it is known.
        """
        object.__setattr__(self, "_layout", layout)
        object.__setattr__(self, "_version", self._version + 1)
        if self._watched:
            epoch.advance()


class _Epoch:
    """Counts changes of all objects that a plan has seen, so that a plan of the same count needs no second look.

    Attributes:
        count: the number of structural changes.
        writes: the number of times that an array was put over an array.
    """

    __slots__ = ("count", "writes")

    def __init__(self) -> None:
        self.count = self.writes = 0

    def advance(self) -> None:
        self.count += 1


epoch = _Epoch()


def note_line(node: Node, name: Any) -> None:
    """Writes down which of the user's lines changed the structure of an object, for the diary of a compiled function."""
    lines = node._lines
    if lines is None:
        lines = {}
        object.__setattr__(node, "_lines", lines)
    lines[name] = user_line()


class Layout:
    """Class, child names and hyperparameters of one object.

    Attributes:
        cls: the class of the object.
        dynamic: names (attributes, indices, dictionary keys) of the children, in order.
        statics: pairs of name and frozen hyperparameter, in order.
        kinds: for each child the kind of the leaves in it, None where it is a node.
        names: all names in order (modules and dictionaries), or the length (lists).
        kind: of a container, the kind of arrays that may be put in.
        getter: returns the children from the storage, in order.
        hashed: hyperparameters whose content a user may change in place, with their hashes now.
    """

    __slots__ = ("__weakref__", "_next", "cls", "dynamic", "getter", "hashed", "kind", "kinds", "names", "statics")

    _interned: ClassVar["weakref.WeakValueDictionary[Hashable, Layout]"] = weakref.WeakValueDictionary()

    cls: type
    dynamic: tuple[Any, ...]
    statics: tuple[tuple[Any, Any], ...]
    kinds: tuple[type[Kind] | None, ...]
    names: tuple[Any, ...]
    kind: type[Kind] | None
    getter: Callable[[Any], tuple[Any, ...]]
    hashed: tuple[tuple[Any, int], ...]

    def __init__(
        self,
        cls: type,
        dynamic: tuple[Any, ...],
        statics: tuple[tuple[Any, Any], ...],
        kinds: tuple[type[Kind] | None, ...],
        names: tuple[Any, ...],
        kind: type[Kind] | None,
    ) -> None:
        self.cls, self.dynamic, self.statics, self.kinds, self.names = cls, dynamic, statics, kinds, names
        self.kind = kind
        self.getter = _getter(dynamic)
        self.hashed = tuple((item, hash(item)) for _, value in statics for item in hashed_by_content(value))
        self._next: weakref.WeakValueDictionary[Hashable, Layout] = weakref.WeakValueDictionary()

    @classmethod
    def of(
        cls,
        owner: type,
        dynamic: tuple[Any, ...],
        statics: tuple[tuple[Any, Any], ...],
        kinds: tuple[type[Kind] | None, ...],
        names: tuple[Any, ...] = (),
        kind: type[Kind] | None = None,
    ) -> "Layout":
        """Returns the one layout with this content."""
        hyperparameters = tuple((name, key(value)) for name, value in statics)
        content = owner, key(dynamic), hyperparameters, kinds, key(names), kind
        layout = cls._interned.get(content)
        if layout is None:
            layout = cls._interned.setdefault(content, cls(owner, dynamic, statics, kinds, names, kind))
        return layout

    def with_static(self, name: Any, value: Any) -> "Layout":
        """Returns the layout after a hyperparameter was set, which is remembered: modes and flags go to and fro."""
        change = name, key(value)
        layout = self._next.get(change)
        if layout is None:
            statics = {**dict(self.statics), name: value}
            # The order of the statics is that of the names, of which a new one is last.
            names = self.names if name in self.names else (*self.names, name)
            layout = Layout.of(self.cls, self.dynamic, tuple(statics.items()), self.kinds, names, self.kind)
            self._next[change] = layout
        return layout

    def without_static(self, name: Any) -> "Layout":
        """Returns the layout after a hyperparameter was deleted."""
        layout = self._next.get(name)
        if layout is None:
            statics = tuple(item for item in self.statics if item[0] != name)
            names = tuple(other for other in self.names if other != name)
            layout = self._next[name] = Layout.of(self.cls, self.dynamic, statics, self.kinds, names, self.kind)
        return layout

    def __repr__(self) -> str:
        statics = ", ".join(f"{name}={value!r}" for name, value in self.statics)
        return f"{self.cls.__name__}[{', '.join(map(str, self.dynamic))}]({statics})"


def _getter(names: tuple[Any, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.itemgetter(*names)
    if not names:
        return lambda storage: ()
    (only,) = names
    return lambda storage: (storage[only],)


def layout_of(node: Node) -> Layout:
    """Returns the layout of an object, computing it if the structure changed since the last time."""
    layout = node._layout
    if layout is None:
        layout = node._make_layout()
        object.__setattr__(node, "_layout", layout)  # a mark and no change: any trace may look at an object
    return layout

"""Lists, dicts and tuples inside modules: the ordinary types, which notice being changed."""

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np

from framework._compat import current_trace
from framework.errors import ModuleError, user_line
from framework.module.fields import Kind
from framework.module.graph import descendants, nodes_in
from framework.module.hyper import NotAHyperparameter, freeze, is_array, key, portable
from framework.module.layout import Layout, Node, epoch, layout_of, note_line
from framework.module.lost import Pending, rebuilt_as_argument
from framework.module.ownership import OUTSIDE, check_read, check_reads, check_write, compiling, note_write, scopes


class MissingKind(TypeError):
    """An array was put where no annotation says whether it is trained."""


def is_dynamic(value: Any) -> bool:
    """Tells whether a stored value is a child: a leaf, a node, or a tuple or foreign pytree that holds some."""
    if isinstance(value, Node | Tuple) or is_array(value):
        return True
    if value is None or isinstance(value, str | int | float | complex | type | np.dtype):
        return False
    return any(is_array(leaf) or isinstance(leaf, Node) for leaf in _nest_leaves(value))


def _nest_leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):  # user dicts may have keys that JAX cannot sort
        return [leaf for item in value.values() for leaf in _nest_leaves(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _nest_leaves(item)]
    if callable(value):
        return [value]
    return jax.tree.leaves(value, is_leaf=lambda node: isinstance(node, Node))


def adopt(value: Any, kind: type[Kind] | None) -> Any:
    """Makes the form in which a value is stored in a module.

    Args:
        value: what was assigned.
        kind: the kind of leaf that the annotation of the attribute declares, or None.

    Returns:
        A node, a leaf array, a nest of them, or a frozen hyperparameter.

    Raises:
        MissingKind: if there are arrays and no kind.
        NotAHyperparameter: if the value is neither a child nor a possible hyperparameter.
    """
    if isinstance(value, Node):
        return value
    if is_array(value):
        if kind is None:
            raise MissingKind
        return as_leaf(value)
    if kind is not None and isinstance(value, bool | int | float | complex | np.generic):
        return as_leaf(value)
    if isinstance(value, list | dict) and (not value or is_dynamic(value)):
        return List(value, kind=kind) if isinstance(value, list) else Dict(value, kind=kind)
    if isinstance(value, tuple) and is_dynamic(value):
        if hasattr(value, "_fields"):
            return type(value)(*(_adopt_foreign(item, kind) for item in value))
        return Tuple(adopt(item, kind) for item in value)
    if not isinstance(value, tuple) and is_dynamic(value):
        return _adopt_foreign(value, kind)
    return freeze(value)


def _adopt_foreign(value: Any, kind: type[Kind] | None) -> Any:
    """Stores a pytree of a foreign type, such as an optax state, as it is, with arrays for leaves."""

    def leaf(item: Any) -> Any:
        if isinstance(item, Node):
            return item
        if kind is None:
            raise MissingKind
        if isinstance(item, bool | int | float | complex | np.generic) or is_array(item):
            return as_leaf(item)
        raise NotAHyperparameter(
            f"a {type(value).__name__} is a pytree whose leaves must be arrays, and one of them is {item!r}. Keep that "
            f"value in an attribute of its own"
        )

    return jax.tree.map(leaf, value, is_leaf=lambda item: isinstance(item, Node))


def as_leaf(value: Any) -> Any:
    """Makes an array of the device's dtypes that is not weakly typed, so that a step returns what it was given."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    array = value if isinstance(value, jax.Array) else jnp.asarray(value)
    return jax.lax.convert_element_type(array, array.dtype) if getattr(array, "weak_type", False) else array


class Tuple(tuple[Any, ...]):
    """A tuple that holds children; hyperparameters in it stay out of the leaves."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tuple, (tuple(map(portable, self)),)


def _flatten_tuple(value: Tuple) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    children = tuple(item for item in value if is_dynamic(item))
    statics = tuple((index, item) for index, item in enumerate(value) if not is_dynamic(item))
    return children, (len(value), _Typed(statics))


def _flatten_tuple_with_keys(value: Tuple) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    keyed = tuple((jax.tree_util.SequenceKey(i), item) for i, item in enumerate(value) if is_dynamic(item))
    return keyed, _flatten_tuple(value)[1]


def _unflatten_tuple(aux: tuple[int, Any], children: Iterable[Any]) -> Tuple:
    length, statics = aux
    fixed, rest = dict(statics.value), iter(children)
    return Tuple(fixed[index] if index in fixed else next(rest) for index in range(length))


class _Typed:
    """Compares a static value by type and content, as aux data of a tuple."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.key = value, key(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Typed) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


jax.tree_util.register_pytree_with_keys(Tuple, _flatten_tuple_with_keys, _unflatten_tuple, _flatten_tuple)


class _Container(Node):
    """What `List` and `Dict` share: marks, adoption of what is put in, and noticing changes."""

    __slots__ = ()

    _kind: type[Kind] | None

    def _start(self, kind: type[Kind] | None) -> None:
        self._kind, self._layout, self._version, self._watched = kind, None, 0, False
        self._plans = self._pending = self._lines = None
        self._trace = current_trace()

    def _start_blank(self) -> None:
        self._start(None)

    def _admit(self, value: Any, where: Any) -> Any:
        name, annotation = ("list", "list[fw.Param]") if isinstance(self, list) else ("dict", "dict[str, fw.Param]")
        try:
            return adopt(value, self._kind)
        except MissingKind:
            raise ModuleError(
                f"an array was put at {where!r} of a {name} in a module ({user_line()}), and the class does not say what "
                f"the arrays in it are. Annotate the attribute in the class body, as in `weights: {annotation}` for "
                f"trained leaves or with `fw.State` for others."
            ) from None
        except NotAHyperparameter as error:
            raise ModuleError(
                f"{where!r} of a {name} in a module cannot hold this value ({user_line()}): {error}."
            ) from None

    def _put(self, value: Any, where: Any) -> Any:
        """As `_admit`, for an object that others may hold: what is put in must not hold it in turn."""
        value = self._admit(value, where)
        for child in nodes_in(value):
            for node in descendants(child):
                if node is self:
                    raise ModuleError(
                        f"{where!r} of a {type(self).__name__.lower()} in a module was given an object that holds this "
                        f"{type(self).__name__.lower()} ({user_line()}); a pytree cannot contain itself. Pass the outer "
                        f"object to the method that needs it instead of storing it."
                    )
                if hasattr(node, "_held"):
                    object.__setattr__(node, "_held", True)
        return value

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        """Shows the container in a notebook as the list or dict that it is."""
        plain: Any = list(self) if isinstance(self, list) else dict(self)  # pyright: ignore
        return subtree_renderer(plain, path=path)

    def _check_whole_read(self) -> None:
        values = list.__iter__(self) if isinstance(self, list) else dict.values(self)  # pyright: ignore
        check_read(self, None, [item for item in values if is_array(item)])

    def _item_kinds(self, values: Iterable[Any]) -> tuple[type[Kind] | None, ...]:
        return tuple(None if isinstance(value, Node) else self._kind for value in values)


class List(list[Any], _Container):
    """A list in a module; plain lists become one when they are assigned."""

    __slots__ = ("__weakref__", "_kind", "_layout", "_lines", "_pending", "_plans", "_trace", "_version", "_watched")

    def __init__(self, items: Iterable[Any] = (), *, kind: type[Kind] | None = None) -> None:
        self._start(kind)
        list.__init__(self, [adopt(item, kind) for item in items])

    def _storage(self) -> Any:
        return self

    def _make_layout(self) -> Layout:
        dynamic = tuple(index for index, item in enumerate(self) if is_dynamic(item))
        statics = tuple((index, item) for index, item in enumerate(list.__iter__(self)) if index not in set(dynamic))
        kinds = self._item_kinds(list.__getitem__(self, index) for index in dynamic)
        return Layout.of(List, dynamic, statics, kinds, (len(self),), self._kind)

    def _fill(self, layout: Layout, children: Any) -> None:
        items: list[Any] = [None] * layout.names[0]
        for index, value in (*layout.statics, *zip(layout.dynamic, children, strict=True)):
            items[index] = value
        list.__init__(self, items)
        self._layout, self._kind = layout, layout.kind
        epoch.writes += 1

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _rebuild_list, (self._kind,), None, map(portable, list.__iter__(self))

    def __iter__(self) -> Any:
        if scopes.open and compiling.reads is not None:
            self._check_whole_read()
        return list.__iter__(self)

    def __reversed__(self) -> Any:
        return reversed(self[:])

    def __add__(self, other: Any) -> Any:
        return self[:] + other

    def copy(self) -> list[Any]:
        return self[:]

    def __getitem__(self, index: Any) -> Any:
        value = list.__getitem__(self, index)
        if scopes.open and compiling.reads is not None and not isinstance(value, Node):
            if isinstance(index, slice):
                self._check_whole_read()
            else:
                check_read(self, index, value)
        return value

    def _change(self, change: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        check_write(self, None)
        note_write(self, None)
        if self._watched:
            note_line(self, None)
        try:
            return change(self, *args, **kwargs)
        finally:
            self._mark_changed()

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._change(list.__setitem__, index, [self._put(item, index) for item in value])
            return
        value, old = self._put(value, index), list.__getitem__(self, index)
        if is_array(value) and is_array(old):
            check_write(self, index)
            note_write(self, index)
            list.__setitem__(self, index, value)
            epoch.writes += 1
        else:
            self._change(list.__setitem__, index, value)

    def __delitem__(self, index: Any) -> None:
        self._change(list.__delitem__, index)

    def append(self, item: Any) -> None:
        self._change(list.append, self._put(item, len(self)))

    def extend(self, items: Iterable[Any]) -> None:
        self._change(list.extend, [self._put(item, len(self)) for item in items])

    def __iadd__(self, items: Iterable[Any]) -> "List":
        self.extend(items)
        return self

    def __imul__(self, count: SupportsIndex) -> "List":
        self._change(list.__imul__, count)
        return self

    def insert(self, index: SupportsIndex, item: Any) -> None:
        self._change(list.insert, index, self._put(item, index))

    def pop(self, index: SupportsIndex = -1) -> Any:
        return self._change(list.pop, index)

    def remove(self, item: Any) -> None:
        self._change(list.remove, item)

    def clear(self) -> None:
        self._change(list.clear)

    def sort(self, **options: Any) -> None:
        self._change(list.sort, **options)

    def reverse(self) -> None:
        self._change(list.reverse)


def _rebuild_list(kind: type[Kind] | None) -> List:
    return List(kind=kind)


class Dict(dict[Any, Any], _Container):
    """A dict in a module, which keeps its order under every transformation; plain dicts become one when assigned."""

    __slots__ = ("__weakref__", "_kind", "_layout", "_lines", "_pending", "_plans", "_trace", "_version", "_watched")

    def __init__(self, items: Any = (), *, kind: type[Kind] | None = None) -> None:
        self._start(kind)
        dict.__init__(self, {name: adopt(item, kind) for name, item in dict(items).items()})

    def _storage(self) -> Any:
        return self

    def _make_layout(self) -> Layout:
        dynamic = tuple(name for name, item in dict.items(self) if is_dynamic(item))
        statics = tuple((name, item) for name, item in dict.items(self) if not is_dynamic(item))
        kinds = self._item_kinds(dict.__getitem__(self, name) for name in dynamic)
        return Layout.of(Dict, dynamic, statics, kinds, tuple(self), self._kind)

    def _fill(self, layout: Layout, children: Any) -> None:
        content = dict(layout.statics) | dict(zip(layout.dynamic, children, strict=True))
        dict.clear(self)
        dict.update(self, {name: content[name] for name in layout.names})
        self._layout, self._kind = layout, layout.kind
        epoch.writes += 1

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _rebuild_dict, (self._kind,), None, None, ((name, portable(item)) for name, item in dict.items(self))

    def __getitem__(self, name: Any) -> Any:
        value = dict.__getitem__(self, name)
        if scopes.open and compiling.reads is not None and not isinstance(value, Node):
            check_read(self, name, value)
        return value

    def get(self, name: Any, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is `get`

    def __iter__(self) -> Any:  # with this, `dict(d)`, `{**d}` and `f(**d)` read by `__getitem__`
        return dict.__iter__(self)

    def values(self) -> Any:
        if scopes.open and compiling.reads is not None:
            self._check_whole_read()
        return dict.values(self)

    def items(self) -> Any:
        if scopes.open and compiling.reads is not None:
            self._check_whole_read()
        return dict.items(self)

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def _change(self, change: Callable[..., Any], *args: Any) -> Any:
        check_write(self, None)
        note_write(self, None)
        if self._watched:
            note_line(self, None)
        try:
            return change(self, *args)
        finally:
            self._mark_changed()

    def __setitem__(self, name: Any, value: Any) -> None:
        value = self._put(value, name)
        if is_array(value) and is_array(dict.get(self, name)):
            check_write(self, name)
            note_write(self, name)
            dict.__setitem__(self, name, value)
            epoch.writes += 1
        else:
            self._change(dict.__setitem__, name, value)

    def __delitem__(self, name: Any) -> None:
        self._change(dict.__delitem__, name)

    def update(self, *items: Any, **named: Any) -> None:
        for name, value in dict(*items, **named).items():
            self[name] = value

    def __ior__(self, items: Any) -> "Dict":
        self.update(items)
        return self

    def setdefault(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: Any, *default: Any) -> Any:
        return self._change(dict.pop, name, *default)

    def popitem(self) -> Any:
        return self._change(dict.popitem)

    def clear(self) -> None:
        self._change(dict.clear)


def _rebuild_dict(kind: type[Kind] | None) -> Dict:
    return Dict(kind=kind)


def _register(cls: type[List] | type[Dict], entry: Callable[[Any], Any]) -> None:
    """Registers a container as a pytree node of its own, since JAX would sort a dict and take numbers for leaves."""

    def flatten(node: Any) -> tuple[tuple[Any, ...], Layout]:
        layout = layout_of(node)
        if scopes.open and compiling.reads is not None:
            check_reads(node, layout.dynamic)
        if node._pending is not None:
            node._pending.returned()
        if len(layout.dynamic) == base.__len__(node):
            return tuple(everything(node)), layout
        return tuple(_get(node, name) for name in layout.dynamic), layout

    def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], Layout]:
        layout = layout_of(node)
        if scopes.open and compiling.reads is not None:
            check_reads(node, layout.dynamic)
        if node._pending is not None:
            node._pending.returned()
        return tuple((entry(name), _get(node, name)) for name in layout.dynamic), layout

    def unflatten(layout: Layout, children: Iterable[Any]) -> Any:
        node = cls()
        node._fill(layout, tuple(children))
        if node._trace != OUTSIDE and rebuilt_as_argument():
            node._pending = Pending()
        return node

    base: Any = cls.__mro__[1]
    everything = list.__iter__ if base is list else dict.values

    def _get(node: Any, name: Any) -> Any:
        return base.__getitem__(node, name)  # the whole was checked at once

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


_register(List, jax.tree_util.SequenceKey)
_register(Dict, jax.tree_util.DictKey)

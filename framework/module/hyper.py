"""Hyperparameters: the values in the aux data of a module, immutable and compared by type and content.

JAX compares aux data with `==`, for which `1`, `1.0` and `True` are one value and `0.0` is `-0.0`; a compiled program
made for one of them would be used for all. `freeze` turns a value into an immutable one when it is assigned, and `key`
gives a hashable stand-in that tells all these apart.
"""

import dataclasses
import enum
import functools
import importlib
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_SCALAR_CLASS = type(jnp.float32)
_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), enum.Enum)


class FrozenList(tuple[Any, ...]):
    """A list that was assigned as a hyperparameter: equal to the list, hashable, and never changed in place.

    Example:
        >>> sizes = FrozenList([64, 32])
        >>> sizes == [64, 32], sizes[0]
        (True, 64)
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple(self) == (tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return repr(list(self))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"the list {self!r} is a hyperparameter, and hyperparameters are never changed in place: compiled functions "
            f"that used it would not notice. Assign a new list to the attribute: `module.sizes = [*module.sizes, 1]`."
        )

    def __add__(self, other: Any) -> Any:
        return list(self) + list(other) if isinstance(other, list | FrozenList) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return list(other) + list(self) if isinstance(other, list) else NotImplemented

    def copy(self) -> list[Any]:
        """Returns a list that can be changed."""
        return list(self)

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class FrozenDict(Mapping[Any, Any]):
    """A dict that was assigned as a hyperparameter: equal to the dict, hashable, ordered, never changed in place.

    Example:
        >>> options = FrozenDict({"rate": 0.1})
        >>> options == {"rate": 0.1}, options["rate"]
        (True, 0.1)
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: Any) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, FrozenDict) else other)

    def __hash__(self) -> int:
        return hash(key(self))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (self._items,)

    def __or__(self, other: Any) -> Any:
        return dict(self) | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return dict(other) | dict(self) if isinstance(other, Mapping) else NotImplemented

    def copy(self) -> dict[Any, Any]:
        """Returns a dict that can be changed."""
        return dict(self)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            f"the dict {self!r} is a hyperparameter, and hyperparameters are never changed in place: compiled functions "
            f"that used it would not notice. Assign a new dict to the attribute: "
            f"`module.options = {{**module.options, 'name': value}}`."
        )

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse


class NotAHyperparameter(TypeError):
    """A value cannot be aux data; the text is the reason and the remedy, without the place."""


def is_array(value: Any) -> bool:
    """Tells whether a value is an array leaf: a JAX array or tracer, a NumPy array or an abstract shape."""
    return is_array_class(type(value))


@functools.cache
def is_array_class(cls: type) -> bool:
    """Tells whether instances of a class are array leaves."""
    # By class, since JAX answers `isinstance(tracer, jax.Array)` slowly, and every walk asks for every child.
    return issubclass(cls, jax.Array | np.ndarray | jax.ShapeDtypeStruct | Tracer)


def freeze(value: Any) -> Any:
    """Makes the immutable form of a hyperparameter.

    Lists, dicts and sets become frozen, NumPy scalars become Python scalars, dtypes become `numpy.dtype`.

    Args:
        value: the value that is assigned to an attribute.

    Returns:
        The value to store.

    Raises:
        NotAHyperparameter: for arrays, unhashable values and methods of modules.

    Example:
        >>> freeze({"sizes": [1, np.int64(2)]})
        {'sizes': [1, 2]}
        >>> import jax.numpy as jnp
        >>> freeze(jnp.float16)
        dtype('float16')
    """
    if isinstance(value, np.generic):  # before the atoms: NumPy's float64 is a subclass of float
        return value.item()
    if isinstance(value, _ATOMS):
        return value
    if is_array(value):
        raise NotAHyperparameter(
            "an array cannot be a hyperparameter (arrays have no hash). Annotate the attribute in the class body as "
            "`fw.Param` if it is trained or as `fw.State` if it is not"
        )
    if (dtype := _as_dtype(value)) is not None:
        return dtype
    if isinstance(value, list):
        return FrozenList(freeze(item) for item in value)
    if isinstance(value, dict):
        return FrozenDict({name: freeze(item) for name, item in value.items()})
    if isinstance(value, set | frozenset):
        return frozenset(freeze(item) for item in value)
    if isinstance(value, tuple) and not isinstance(value, FrozenList):
        items = [freeze(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, functools.partial):
        keywords = {name: freeze(item) for name, item in value.keywords.items()}
        return type(value)(freeze(value.func), *map(freeze, value.args), **keywords)
    if isinstance(value, types.MethodType) and _is_module(value.__self__):
        raise NotAHyperparameter(
            f"it is a method of a {type(value.__self__).__name__}, which holds that module by closure where no "
            f"transformation sees it. Store the module itself and call its method"
        )
    _check_hash(value)
    return value


def _as_dtype(value: Any) -> np.dtype[Any] | None:
    """Returns the canonical dtype for `jnp.float32`, `np.float32` and dtypes, and None for everything else."""
    if isinstance(value, np.dtype):
        return value
    if not isinstance(value, type):
        return None
    if issubclass(value, np.generic):
        return np.dtype(value) if value is not np.generic else None
    # jnp.float32 and its like are classes that carry the dtype they convert to.
    return value.dtype if isinstance(value, _SCALAR_CLASS) else None  # pyright: ignore[reportAttributeAccessIssue]


def _is_module(value: Any) -> bool:
    return hasattr(type(value), "_is_framework_module")


def _check_hash(value: Any) -> None:
    if _is_open_dataclass(value):
        raise NotAHyperparameter(
            f"{type(value).__name__} is a dataclass whose hash follows fields that may be assigned, and a compiled "
            f"function would not notice. Declare it with `@dataclass(frozen=True)`, and assign a changed copy: "
            f"`dataclasses.replace(...)`"
        )
    try:
        hash(value)
        hash(key(value))  # a frozen dataclass that is compared by identity may hold what has no hash
    except TypeError:
        remedy = "declare it with `@dataclass(frozen=True)`" if dataclasses.is_dataclass(value) else "give it a hash"
        raise NotAHyperparameter(
            f"{type(value).__name__} has no hash, so that a compiled function could not tell whether it changed. "
            f"Store hashable values (numbers, strings, tuples, dtypes, functions), or {remedy}"
        ) from None
    try:
        same = bool(value == value)
    except Exception as error:
        raise NotAHyperparameter(f"comparing {type(value).__name__} with itself fails ({error})") from None
    if not same:
        raise NotAHyperparameter(f"{type(value).__name__} is not equal to itself, so every call would compile anew")


def key(value: Any) -> Hashable:
    """Returns a hashable stand-in for a frozen value, equal for two values only if type and content are equal.

    Args:
        value: a value that `freeze` returned.

    Returns:
        A nest of tuples: `1`, `1.0` and `True` differ, `0.0` and `-0.0` differ, NaN equals itself, functions and
        partials compare by code and closure.

    Example:
        >>> len({key(1), key(1.0), key(True)}), key(0.0) == key(-0.0), key(float("nan")) == key(float("nan"))
        (3, False, True)
    """
    return _key(value, ())


def _key(value: Any, seen: tuple[int, ...]) -> Hashable:
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if isinstance(value, _ATOMS):
        return kind, value
    if isinstance(value, tuple):
        return (kind, *(_key(item, seen) for item in value))
    if isinstance(value, FrozenDict):
        return (kind, *((_key(name, seen), _key(item, seen)) for name, item in value.items()))
    if isinstance(value, frozenset):
        return kind, frozenset(_key(item, seen) for item in value)
    if isinstance(value, functools.partial):
        keywords = tuple((name, _key(item, seen)) for name, item in sorted(value.keywords.items()))
        return kind, _key(value.func, seen), tuple(_key(item, seen) for item in value.args), keywords
    if isinstance(value, types.FunctionType):
        return _function_key(value, seen)
    if isinstance(value, types.MethodType):
        return kind, _key(value.__func__, seen), _key(value.__self__, seen)
    if is_frozen_dataclass(value):
        return (kind, *(_key(getattr(value, field.name), seen) for field in dataclasses.fields(value)))
    return kind, value


def _is_open_dataclass(value: Any) -> bool:
    """Tells whether a value is a dataclass that compares by content and can be changed in place."""
    kind = type(value)
    can_be_changed = kind.__setattr__ is object.__setattr__ and not is_frozen_dataclass(value)
    return dataclasses.is_dataclass(kind) and can_be_changed and kind.__hash__ not in (None, object.__hash__)


def hashed_by_content(value: Any) -> Iterator[Any]:
    """Yields the objects in a frozen value whose hash is that of their content, which a user may change in place."""
    if isinstance(value, tuple | frozenset):
        for item in value:
            yield from hashed_by_content(item)
    elif isinstance(value, FrozenDict):
        yield from hashed_by_content(tuple(value.values()))
    elif isinstance(value, functools.partial):
        yield from hashed_by_content((*value.args, *value.keywords.values()))
    elif type(type(value).__hash__) is types.FunctionType and not isinstance(value, enum.Enum):
        yield value  # of a class with a `__hash__` in Python; JAX's own and frozen ones cost one more hash


def is_frozen_dataclass(value: Any) -> bool:
    """Tells whether a value is an instance of a dataclass that is frozen."""
    parameters = getattr(value, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and not isinstance(value, type)


def _function_key(function: types.FunctionType, seen: tuple[int, ...]) -> Hashable:
    """Identifies a function by what it does: optax makes new closures at every call, which should compare equal."""
    if function.__closure__ is None and function.__defaults__ is None and function.__kwdefaults__ is None:
        return types.FunctionType, function.__module__, function.__code__
    if id(function) in seen:
        return types.FunctionType, "recursion"
    seen = (*seen, id(function))
    try:
        parts = [_cell(cell) for cell in function.__closure__ or ()]
        parts += [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
        captured = tuple(_key(freeze(part), seen) for part in parts)
        hash(captured)
    except (TypeError, ValueError):  # an array or an unhashable object in the closure: only identity is safe
        return types.FunctionType, function
    return types.FunctionType, function.__module__, function.__code__, captured


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that was never assigned, as in `optax.exponential_decay` without an end value
        return types.CellType


def same(first: Any, second: Any) -> bool:
    """Tells whether two frozen values are equal in type and content.

    Example:
        >>> same((1, 2.0), (1, 2.0)), same(1, True)
        (True, False)
    """
    return first is second or key(first) == key(second)


def identity_keyed(value: Any) -> Callable[..., Any] | None:
    """Returns a function inside `value` that can only be compared by identity, or None if there is none."""
    if isinstance(value, types.FunctionType) and key(value) == (types.FunctionType, value):
        return value
    return None


class _ByName:
    """Stands for a function in a pickle where Python would look for the wrong object under its name."""

    def __init__(self, module: str, name: str) -> None:
        self._place = module, name

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, self._place


def _find(module: str, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def portable(value: Any) -> Any:
    """Returns what to pickle in place of a hyperparameter.

    Functions that JAX has compiled (`jax.nn.relu`) pickle as the function inside, which is not what its name leads to.
    """
    if not callable(value) or isinstance(value, type | types.FunctionType | functools.partial) or _is_module(value):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return value
    try:
        return _ByName(module, name) if _find(module, name) is value else value
    except (ImportError, AttributeError):
        return value

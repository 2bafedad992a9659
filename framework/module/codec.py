"""Hyperparameters as JSON: every value that stands for itself goes there and back, and what does not is said
so.

The encoding is meant to be read by people and to be safe to load: functions and types are stored by name and
imported only from packages that the reader allows, and nothing that is loaded is ever called. JSON has no
tuples, no NaN and no dictionaries with number keys, so that everything but None, booleans, short integers,
finite floats and strings is an object with one entry, whose name says what it is.
"""

import base64
import dataclasses
import enum
import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import ml_dtypes  # registers bfloat16, float8 and their like as names of NumPy dtypes
import numpy as np

from framework.errors import FrameworkError
from framework.module.hyper import FrozenDict, FrozenList
from framework.module.importing import ImportRefused, import_path, load

ALLOWED = ("framework", "jax", "optax", "numpy", "ml_dtypes")
"""Packages that values may be imported from when the caller names no others."""

_WORD = 2**63  # Python refuses to read very long decimal numbers; longer ones are written in hexadecimal
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LOCAL = frozenset(ml_dtypes.__all__)


class CodecError(FrameworkError, ValueError):
    """A value cannot be made from its JSON form; the text is the reason, without the place."""


def encode(value: Any) -> Any:
    """Returns a form of a hyperparameter that `json` can write.

    Args:
        value: a value that an attribute can hold, or a plain list, dict or set of such values.

    Returns:
        None, a bool, int, float or str, or a dict with one entry. What cannot be read back (a closure, a
        lambda, an object of a class that the codec does not know) becomes `{"opaque": [class, repr]}`,
        without memory addresses.

    Example:
        >>> encode((1, 2.5, None))
        {'tuple': [1, 2.5, None]}
        >>> encode(np.dtype("bfloat16"))
        {'dtype': 'bfloat16'}
    """
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if abs(value) < _WORD else {"int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    encoded = _encode_tagged(value)
    return _opaque(value) if encoded is None else encoded


def _encode_tagged(value: Any) -> dict[str, Any] | None:
    kind = type(value)
    if kind is complex:
        return {"complex": [encode(value.real), encode(value.imag)]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if value is Ellipsis:
        return {"ellipsis": None}
    if kind in _SEQUENCES:
        return {_SEQUENCES[kind]: [encode(item) for item in value]}
    if kind in _SETS:
        return {_SETS[kind]: sorted((encode(item) for item in value), key=repr)}
    if kind in _MAPPINGS:
        return {_MAPPINGS[kind]: [[encode(name), encode(item)] for name, item in value.items()]}
    if isinstance(value, enum.Enum):
        return _encode_enum(value)
    if isinstance(value, np.dtype):
        return _encode_dtype(cast("np.dtype[Any]", value))
    if isinstance(value, np.generic):
        dtype = _encode_dtype(value.dtype)
        return None if dtype is None else {"scalar": [dtype["dtype"], value.tobytes().hex()]}
    path = import_path(kind)
    if path is not None:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"namedtuple": [path, [encode(item) for item in value]]}
        if isinstance(value, functools.partial):
            keywords = [[name, encode(item)] for name, item in value.keywords.items()]
            return {"partial": [path, encode(value.func), [encode(item) for item in value.args], keywords]}
        if _is_frozen_dataclass(kind):
            names = [field.name for field in dataclasses.fields(cast("Any", value))]
            return {"dataclass": [path, [[name, encode(getattr(value, name))] for name in names]]}
    named = import_path(value) if callable(value) else None
    return None if named is None else {"import": named}


_SEQUENCES: dict[type, str] = {tuple: "tuple", list: "list", FrozenList: "frozenlist"}
_SETS: dict[type, str] = {set: "set", frozenset: "frozenset"}
_MAPPINGS: dict[type, str] = {dict: "dict", FrozenDict: "frozendict"}


def _encode_enum(value: enum.Enum) -> dict[str, Any] | None:
    path = import_path(type(value))
    if path is None:
        return None
    if type(value).__members__.get(value.name or "") is value:
        return {"enum": [path, value.name]}
    return {"flag": [path, encode(value.value)]}  # several flags in one value have no name of their own


def _encode_dtype(dtype: np.dtype[Any]) -> dict[str, Any] | None:
    name: Any = dtype.name if dtype.name in _LOCAL else np.lib.format.dtype_to_descr(dtype)
    if isinstance(name, str):
        return {"dtype": name} if np.dtype(name) == dtype else None
    return {"dtype": encode(name)} if np.lib.format.descr_to_dtype(name) == dtype else None


def _is_frozen_dataclass(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind) and bool(getattr(kind, "__dataclass_params__").frozen)  # noqa: B009


def _opaque(value: Any) -> dict[str, Any]:
    kind = type(value)
    return {"opaque": [f"{kind.__module__}:{kind.__qualname__}", _ADDRESS.sub("", repr(value))]}


def opaque_parts(encoded: Any) -> list[str]:
    """Returns the text of every part of an encoded value that cannot be read back.

    Example:
        >>> opaque_parts(encode((1, lambda x: x)))
        ['<function <lambda>>']
    """
    return list(_opaque_parts(encoded))


def _opaque_parts(encoded: Any) -> Iterator[str]:
    if isinstance(encoded, dict) and "opaque" in encoded:
        yield encoded["opaque"][1]
    elif isinstance(encoded, dict | list):
        for part in encoded.values() if isinstance(encoded, dict) else encoded:
            yield from _opaque_parts(part)


def decode(encoded: Any, *, allow: Sequence[str] = ALLOWED) -> Any:
    """Returns the value that `encode` was given.

    Args:
        encoded: what `encode` returned, or what `json` read of it.
        allow: packages or modules (with everything below them) that types and functions may be imported from.

    Returns:
        A value equal to the original in type and content.

    Raises:
        CodecError: if a part is opaque, is to be imported from somewhere else, no longer exists, or is not an
            encoding.

    Example:
        >>> decode(encode({"sizes": (1, 2), 3: float("nan")}))
        {'sizes': (1, 2), 3: nan}
        >>> decode({"import": "os:system"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        framework.module.codec.CodecError: os:system is not imported, because ...
    """
    if encoded is None or isinstance(encoded, bool | int | float | str):
        return encoded
    try:
        (tag, content), *rest = encoded.items()
        if rest or tag not in _DECODERS:
            raise CodecError(f"{encoded!r} is not an encoded value")
        return _DECODERS[tag](content, functools.partial(decode, allow=allow), tuple(allow))
    except ImportRefused as error:
        raise CodecError(str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CodecError):
            raise
        raise CodecError(f"{encoded!r} cannot be made into a value again ({error})") from error


def _decode_opaque(content: Any, decode: Any, allow: tuple[str, ...]) -> Any:
    raise CodecError(
        f"{content[1]} was stored as its description only: a closure, a lambda or an object of {content[0]} "
        f"has no name to import it by"
    )


def _decode_pairs(content: Any, decode: Any, allow: tuple[str, ...]) -> dict[Any, Any]:
    return {decode(name): decode(item) for name, item in content}


def _decode_items(content: Any, decode: Any, allow: tuple[str, ...]) -> list[Any]:
    return [decode(item) for item in content]


def _decode_dtype(content: Any, decode: Any, allow: tuple[str, ...]) -> np.dtype[Any]:
    if isinstance(content, str):
        return np.dtype(content)
    return np.lib.format.descr_to_dtype(decode(content))


def _decode_scalar(content: Any, decode: Any, allow: tuple[str, ...]) -> Any:
    dtype, data = content
    return np.frombuffer(bytes.fromhex(data), _decode_dtype(dtype, decode, allow))[0]


def _decode_namedtuple(content: Any, decode: Any, allow: tuple[str, ...]) -> Any:
    return tuple.__new__(_load_class(content[0], allow, tuple), _decode_items(content[1], decode, allow))


def _decode_partial(content: Any, decode: Any, allow: tuple[str, ...]) -> Any:
    path, function, arguments, keywords = content
    kind = _load_class(path, (*allow, "functools"), functools.partial)
    return kind(decode(function), *map(decode, arguments), **{name: decode(item) for name, item in keywords})


def _decode_dataclass(content: Any, decode: Any, allow: tuple[str, ...]) -> Any:
    kind = _load_class(content[0], allow, object)
    if not _is_frozen_dataclass(kind):
        raise CodecError(f"{content[0]} is no frozen dataclass any more")
    value = object.__new__(kind)  # not its constructor: reading a file calls nothing, and fields may be derived
    for name, item in content[1]:
        object.__setattr__(value, name, decode(item))
    return value


def _load_class(path: str, allow: tuple[str, ...], base: type) -> Any:
    kind = load(path, allow)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise CodecError(f"{path} is not a subclass of {base.__name__}")
    return kind


_DECODERS: dict[str, Callable[[Any, Any, tuple[str, ...]], Any]] = {
    "int": lambda content, decode, allow: int(content, 16),
    "float": lambda content, decode, allow: float(content),
    "complex": lambda content, decode, allow: complex(decode(content[0]), decode(content[1])),
    "bytes": lambda content, decode, allow: base64.b64decode(content, validate=True),
    "ellipsis": lambda content, decode, allow: ...,
    "tuple": lambda content, decode, allow: tuple(_decode_items(content, decode, allow)),
    "list": _decode_items,
    "frozenlist": lambda content, decode, allow: FrozenList(_decode_items(content, decode, allow)),
    "set": lambda content, decode, allow: set(_decode_items(content, decode, allow)),
    "frozenset": lambda content, decode, allow: frozenset(_decode_items(content, decode, allow)),
    "dict": _decode_pairs,
    "frozendict": lambda content, decode, allow: FrozenDict(_decode_pairs(content, decode, allow)),
    "enum": lambda content, decode, allow: _load_class(content[0], allow, enum.Enum).__members__[content[1]],
    "flag": lambda content, decode, allow: _load_class(content[0], allow, enum.Flag)(decode(content[1])),
    "dtype": _decode_dtype,
    "scalar": _decode_scalar,
    "namedtuple": _decode_namedtuple,
    "partial": _decode_partial,
    "dataclass": _decode_dataclass,
    "import": lambda content, decode, allow: load(content, allow),
    "opaque": _decode_opaque,
}

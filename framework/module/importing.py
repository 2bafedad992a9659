"""Types and functions by name: `module:qualname`, found only where importing is allowed."""

import builtins
import importlib
import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

_PLAIN = frozenset(
    {"abs", "bool", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "max", "min", "object"}
    | {"pow", "range", "round", "set", "str", "sum", "tuple", "type"}
)
_SHORTER = {
    "jax._src": tuple(
        f"jax{name}" for name in ("", ".numpy", ".nn", ".lax", ".nn.initializers", ".random", ".dtypes", ".tree_util")
    ),
    "optax._src": ("optax",),
    "numpy": ("numpy",),
}


class ImportRefused(Exception):
    """A name is not imported; the text is the reason, without the place."""


def import_path(value: Any) -> str | None:
    """Returns the name to import a type or function by.

    Args:
        value: a type or a callable.

    Returns:
        `module:qualname`, or None if importing that name would not give this value: closures, lambdas and
        classes made inside of functions. Private modules of JAX and optax move between versions, so that the
        public name is taken.

    Example:
        >>> import jax
        >>> import_path(jax.nn.relu), import_path(lambda x: x)
        ('jax.nn:relu', None)
    """
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(name, str) or "<" in name:
        return None
    if not isinstance(module, str):
        module = "numpy" if isinstance(value, np.ufunc) else ""  # before NumPy 2 its functions by element do not say
    shorter = next((found for prefix, found in _SHORTER.items() if within(module, (prefix,))), ())
    for home in (*shorter, module):
        if find(f"{home}:{name}", imported=True) is value:
            return f"{home}:{name}"
    return None


def within(module: str, allowed: Sequence[str]) -> bool:
    """Tells whether a module is one of some packages or below one.

    Example:
        >>> within("jax.nn", ["jax"]), within("jaxtyping", ["jax"])
        (True, False)
    """
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def find(path: str, *, imported: bool) -> Any:
    """Returns what a name stands for, or None.

    Args:
        path: `module:qualname`.
        imported: whether to look only in modules that are imported already.
    """
    module_name, _, qualname = path.partition(":")
    if imported:
        place: Any = sys.modules.get(module_name)
    else:
        try:
            place = importlib.import_module(module_name)
        except ImportError:
            return None
    for part in qualname.split("."):
        place = getattr(place, part, None)
        if place is None or isinstance(place, types.ModuleType):  # never on into the modules that a module imports
            return None
    return place


def load(path: str, allowed: Sequence[str]) -> Any:
    """Imports a type or function.

    Args:
        path: `module:qualname`.
        allowed: packages or modules, with everything below them, from which it may come.

    Returns:
        The type or function.

    Raises:
        ImportRefused: if the module is not allowed, or has nothing of this name that is defined in an allowed
            module.
    """
    module, _, name = path.partition(":")
    if module == "builtins" and name in _PLAIN:
        return getattr(builtins, name)
    if not within(module, allowed):
        raise ImportRefused(
            f"{path} is not imported, because reading a file imports only from packages that the reader "
            f"allows ({', '.join(allowed)}). Add {module.partition('.')[0]!r} to `allow` if you trust it"
        )
    found = find(path, imported=False)
    home = getattr(found, "__module__", module)
    if not callable(found) or not (home is None or within(home, allowed)):
        raise ImportRefused(f"{path} is not there: the module has no type or function of its own of that name")
    return found

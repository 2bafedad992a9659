"""Which objects a call was given, and where: arguments split into objects, arrays and static values."""

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from framework.errors import LiftError
from framework.module.base import Module
from framework.module.graph import is_node
from framework.module.hyper import NotAHyperparameter, freeze, key
from framework.module.layout import Node

_SCALARS = (bool, int, float, complex)


class Role(NamedTuple):
    """What one leaf of the arguments is: `"object"`, `"array"` or `"static"`, the latter with its value.

    Roles are part of a cache key, so the value is compared by its type-strict stand-in.
    """

    name: str
    root: int = -1
    static_key: Hashable = None


ARRAY = Role("array")


class Call(NamedTuple):
    """The arguments of a call, taken apart.

    Attributes:
        treedef: tree structure of `(args, kwargs)`, with objects for leaves.
        roles: for each leaf what it is; hashable.
        roots: the different objects among the leaves.
        arrays: the array leaves.
        statics: the static leaves.
    """

    treedef: Any
    roles: tuple[Role, ...]
    roots: list[Node]
    arrays: list[Any]
    statics: list[Any]

    def rebuild(self, roots: Sequence[Any], arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Puts the arguments together again with other objects and arrays."""
        rest, statics = iter(arrays), iter(self.statics)
        leaves = [
            next(rest) if role is ARRAY else roots[role.root] if role.name == "object" else next(statics)
            for role in self.roles
        ]
        return jax.tree.unflatten(self.treedef, leaves)


def take_apart(args: tuple[Any, ...], kwargs: dict[str, Any], *, static_scalars: bool) -> Call:
    """Splits the arguments of a call into objects, arrays and static values.

    Args:
        args: positional arguments.
        kwargs: keyword arguments.
        static_scalars: whether Python numbers stay concrete, as they do inside of a trace.

    Returns:
        The parts.

    Raises:
        LiftError: if an argument is neither an array nor usable as a static value.
    """
    leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_node)
    roles: list[Role] = []
    roots: list[Node] = []
    arrays: list[Any] = []
    statics: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            roles.append(ARRAY)
            arrays.append(leaf)
        elif isinstance(leaf, Node):
            index = next((index for index, root in enumerate(roots) if root is leaf), len(roots))
            if index == len(roots):
                roots.append(leaf)
            roles.append(Role("object", index))
        elif (isinstance(leaf, _SCALARS) and not static_scalars) or isinstance(leaf, jax.ShapeDtypeStruct):
            roles.append(ARRAY)
            arrays.append(leaf)
        else:
            roles.append(Role("static", -1, _static_key(leaf)))
            statics.append(leaf)
    return Call(treedef, tuple(roles), roots, arrays, statics)


def _static_key(value: Any) -> Hashable:
    try:
        return key(freeze(value))
    except NotAHyperparameter as error:
        raise LiftError(
            f"an argument of type {type(value).__name__} can be passed to a compiled function neither as an array nor as "
            f"a static value: {error}."
        ) from None


def unbind(function: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Module, ...]]:
    """Takes a method of a module, or a module that is called, apart into a function and its object.

    Args:
        function: any callable.

    Returns:
        The function, and the object to pass as its first argument: one module, or none.
    """
    if isinstance(function, Module):
        return type(function).__call__, (function,)  # pyright: ignore[reportCallIssue, reportFunctionMemberAccess]
    if inspect.ismethod(function) and isinstance(function.__self__, Module):
        return function.__func__, (function.__self__,)
    return function, ()

"""Which objects a call was given, and where: arguments split into objects, arrays and static values."""

import functools
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


class Fixed:
    """Marks an argument that the caller declared static, whatever it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


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
    if not kwargs and (plain := _plain(args)) is not None:
        return plain
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
            value = leaf.value if isinstance(leaf, Fixed) else leaf
            roles.append(Role("static", -1, _static_key(value)))
            statics.append(value)
    return Call(treedef, tuple(roles), roots, arrays, statics)


def _plain(args: tuple[Any, ...]) -> Call | None:
    """Takes apart positional objects and arrays, the usual call, without walking through JAX; None for all others."""
    roots: list[Node] = []
    arrays: list[Any] = []
    pattern: list[int] = []
    for argument in args:
        if isinstance(argument, Node):
            if argument in roots if not isinstance(argument, list | dict) else True:
                return None
            pattern.append(len(roots))
            roots.append(argument)
        elif isinstance(argument, jax.Array):
            pattern.append(-1)
            arrays.append(argument)
        else:
            return None
    treedef, roles = _plain_form(tuple(pattern))
    return Call(treedef, roles, roots, arrays, [])


@functools.cache
def _plain_form(pattern: tuple[int, ...]) -> tuple[Any, tuple[Role, ...]]:
    treedef = jax.tree.structure(((0,) * len(pattern), {}))
    return treedef, tuple(ARRAY if number < 0 else Role("object", number) for number in pattern)


def spread(prefix: Any, treedef: Any, is_entry: Callable[[Any], bool]) -> list[Any]:
    """Repeats the entries of a pytree prefix, such as `in_axes`, for all leaves below them.

    Args:
        prefix: the prefix; None is an entry like others.
        treedef: the structure that it is a prefix of.
        is_entry: tells whether a part of the prefix is an entry.

    Returns:
        One entry for each leaf of the structure.
    """
    # A None in the structure is no leaf, and one in the prefix is, so that it is hidden from JAX meanwhile.
    boxed = jax.tree.map(lambda part: Fixed(part), prefix, is_leaf=lambda part: part is None or is_entry(part))
    skeleton = jax.tree.unflatten(treedef, [0] * treedef.num_leaves)
    return [entry.value for entry in jax.tree.leaves(jax.tree.broadcast(boxed, skeleton))]


def _static_key(value: Any) -> Hashable:
    try:
        return key(freeze(value))
    except NotAHyperparameter as error:
        raise LiftError(
            f"an argument of type {type(value).__name__} can be passed to a compiled function neither as an array nor as "
            f"a static value: {error}."
        ) from None


def fix_arguments(
    function: Callable[..., Any], numbers: int | Sequence[int], names: str | Sequence[str]
) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None:
    """Makes a function that marks the static arguments of a call; None if none is declared.

    Args:
        function: the function that is called.
        numbers: positions of static arguments.
        names: names of static arguments.

    Returns:
        A function of positional and keyword arguments that returns both with static ones wrapped in `Fixed`.

    Raises:
        LiftError: if the function has no parameter of a name or position.
    """
    chosen = {numbers} if isinstance(numbers, int) else set(numbers)
    called = {names} if isinstance(names, str) else set(names)
    if not chosen and not called:
        return None
    parameters = list(inspect.signature(function).parameters.values())
    order = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    open_ended = {one.kind for one in parameters} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    unknown = [repr(name) for name in sorted(called) if name not in {one.name for one in parameters}]
    unknown += [str(number) for number in sorted(chosen) if not -len(order) <= number < len(order)]
    if unknown and not open_ended:
        raise LiftError(
            f"fw.jit: {getattr(function, '__name__', function)} has no parameter {', '.join(unknown)} to make static; its "
            f"parameters are {', '.join(one.name for one in parameters) or 'none'}."
        )
    called |= {order[number] for number in chosen if -len(order) <= number < len(order)}
    positions = {number % max(len(order), 1) if number < 0 else number for number in chosen}
    positions |= {position for position, name in enumerate(order) if name in called}

    def fix(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        fixed = tuple(Fixed(value) if position in positions else value for position, value in enumerate(args))
        return fixed, {name: Fixed(value) if name in called else value for name, value in kwargs.items()}

    return fix


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

"""`grad` and `value_and_grad`: derivatives with respect to the leaves of objects, keeping what the loss changes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from framework.errors import LiftError
from framework.lift.effects import Effects
from framework.lift.lifted import Lifted
from framework.lift.plan import ARRAY, unbind
from framework.module.fields import Param
from framework.module.paths import by_name, leaf_paths, matches


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, wrt: Any = Param, has_aux: bool = False
) -> Callable[..., Any]:
    """Makes a function that returns the value of `function` and its gradient.

    State that the function writes (batch statistics, counters, trackers, rng streams) is written to the caller's objects.

    Args:
        function: a function, method or module that returns a scalar float array, or `(scalar, anything)` with `has_aux`.
        argnums: which positional arguments to differentiate; those of a method are counted without `self`.
        wrt: which leaves of objects to differentiate: a kind, a path pattern such as `"encoder.*"`, or a tuple of them.
        has_aux: whether the function returns something besides the scalar.

    Returns:
        A function with the arguments of `function` that returns `(value, gradient)`, or `((value, aux), gradient)`. The
        gradient of an object is a dict from leaf path to array, with shared leaves once under their first path; that of
        an argument without objects has the structure of the argument.

    Raises:
        LiftError: from the returned function, if nothing is selected or the loss is no scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> model = fw.nn.Linear(2, 1, rngs=fw.Rngs(0))
        >>> value, gradient = fw.value_and_grad(lambda model, x: model(x).sum())(model, jnp.ones((3, 2)))
        >>> sorted(gradient), gradient["weight"].tolist()
        (['bias', 'weight'], [[3.0], [3.0]])
    """

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        flat = Differentiable(function, args, kwargs, argnums, wrt)

        def loss(selected: Any) -> tuple[Any, list[Any]]:
            result, values = flat(selected)
            return flat.scalar(result[0] if has_aux else result), values

        (_, values), gradient = jax.value_and_grad(loss, has_aux=True)(flat.selected)
        return flat.finish(values), gradient

    return differentiated


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, wrt: Any = Param, has_aux: bool = False
) -> Callable[..., Any]:
    """Makes a function that returns the gradient of `function`, or `(gradient, aux)` with `has_aux`.

    Args:
        function: see `value_and_grad`.
        argnums: see `value_and_grad`.
        wrt: see `value_and_grad`.
        has_aux: see `value_and_grad`.

    Returns:
        A function with the arguments of `function`.

    Raises:
        LiftError: as `value_and_grad`.

    Example:
        >>> import framework as fw
        >>> float(fw.grad(lambda x: x**3)(2.0))
        12.0
    """
    both = value_and_grad(function, argnums, wrt=wrt, has_aux=has_aux)

    @functools.wraps(both)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, result = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return gradient


class Differentiable:
    """A function of the selected leaves and arrays only, whose effects are collected while it runs.

    Attributes:
        selected: what is differentiated: for an object a dict by leaf path, for another argument the argument itself;
            a tuple of them if there are several.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: int | Sequence[int],
        wrt: Any,
    ) -> None:
        self._function, bound = unbind(function)
        self._lifted = Lifted((*bound, *args), kwargs, static_scalars=False)
        positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self._single = isinstance(argnums, int)
        self._chosen = [_Selection(self._lifted, len(bound) + position, args, wrt) for position in positions]
        self._effects: Effects | None = None
        selected = tuple(selection.take(self._lifted) for selection in self._chosen)
        self.selected: Any = selected[0] if self._single else selected

    def __call__(self, selected: Any) -> tuple[Any, list[Any]]:
        """Runs the function with other values for what is selected.

        Args:
            selected: values in the form of the attribute `selected`.

        Returns:
            What the function returned on its twins, and the output values for `finish`.
        """
        leaves, arrays = list(self._lifted.leaves), list(self._lifted.call.arrays)
        parts = (selected,) if self._single else selected
        for selection, values in zip(self._chosen, parts, strict=True):
            selection.put(values, leaves, arrays)
        results: list[Any] = []

        def run(*args: Any, **kwargs: Any) -> Any:
            results.append(self._function(*args, **kwargs))
            return results[-1]

        self._effects, values = self._lifted.run(run, leaves, arrays)
        return results[-1], values

    def finish(self, values: Sequence[Any]) -> Any:
        """Writes back what the function changed, and returns its result in terms of the caller's objects."""
        assert self._effects is not None
        return self._lifted.finish(self._effects, values)

    def scalar(self, loss: Any) -> Any:
        """Returns the loss, and refuses one that is no scalar."""
        shape = getattr(loss, "shape", ())
        if shape != ():
            name = getattr(self._function, "__qualname__", repr(self._function))
            raise LiftError(
                f"{name} returned an array of shape {tuple(shape)}, and only a scalar has a gradient. Return one number, "
                f"for example `loss.mean()`; to return more beside it, use `has_aux=True` and return `(loss, more)`."
            )
        return loss


class _Selection:
    """The leaves of one argument that are differentiated."""

    def __init__(self, lifted: Lifted, position: int, args: tuple[Any, ...], wrt: Any) -> None:
        call, graph = lifted.call, lifted.graph
        first = call.treedef.children()[0].children()
        if position >= len(first):
            raise LiftError(
                f"there is no positional argument {position} to differentiate: the function was called with "
                f"{len(args)}. Pass it by position, or choose another one with `argnums=`."
            )
        start = sum(child.num_leaves for child in first[:position])
        roles = call.roles[start : start + first[position].num_leaves]
        array_start = sum(role is ARRAY for role in call.roles[:start])
        self._arrays = range(array_start, array_start + sum(role is ARRAY for role in roles))
        self._treedef = first[position]
        roots = list(dict.fromkeys(role.root for role in roles if role.name == "object"))
        self._paths: dict[int, str] | None = None
        if roots:
            names = leaf_paths(graph, [graph.structure.roots[root] for root in roots])
            self._paths = {leaf: path for leaf, path in names.items() if matches(wrt, path, graph.slots[leaf].kind)}
            by_name(graph, self._paths)
            if not self._paths:
                known = ", ".join(sorted(names.values())) or "none"
                raise LiftError(
                    f"nothing to differentiate: no leaf of argument {position} is selected by wrt={wrt!r}. Its leaves "
                    f"are: {known}. Choose with `wrt=fw.Param`, or with a path pattern such as `wrt='encoder.*'`."
                )
        elif len(self._arrays) != self._treedef.num_leaves or not self._arrays:
            raise LiftError(
                f"argument {position} holds values that are neither arrays nor modules, and cannot be differentiated."
            )

    def take(self, lifted: Lifted) -> Any:
        if self._paths is None:
            return jax.tree.unflatten(self._treedef, [lifted.call.arrays[index] for index in self._arrays])
        return {path: lifted.leaves[leaf] for leaf, path in self._paths.items()}

    def put(self, values: Any, leaves: list[Any], arrays: list[Any]) -> None:
        if self._paths is None:
            for index, value in zip(self._arrays, jax.tree.leaves(values), strict=True):
                arrays[index] = value
        else:
            for leaf, path in self._paths.items():
                leaves[leaf] = values[path]

"""`custom_vjp`: functions with a derivative of their own that take objects."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from framework.errors import LiftError
from framework.lift.effects import Effects, Output
from framework.lift.lifted import Lifted, require_same_structure
from framework.lift.plan import ARRAY, unbind
from framework.module.graph import NodeRef
from framework.module.paths import leaf_paths


class custom_vjp:
    """A function whose reverse-mode derivative is written by hand; its arguments may be objects.

    Args:
        function: the function; what it changes on objects is carried out.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> @fw.custom_vjp
        ... def scaled(layer, x):
        ...     return layer(x)
        >>> def forward(layer, x):
        ...     return layer(x), (layer, x)
        >>> def backward(residuals, cotangent):
        ...     layer, x = residuals
        ...     return {"weight": x.T @ cotangent, "bias": cotangent.sum(0)}, 10 * cotangent @ layer.weight.T
        >>> scaled.defvjp(forward, backward)
        >>> layer = fw.nn.Linear(2, 3, rngs=fw.Rngs(0))
        >>> sorted(fw.grad(lambda layer, x: scaled(layer, x).sum())(layer, jnp.ones((4, 2))))
        ['bias', 'weight']
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._bound = unbind(function)
        self._forward: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Sets the derivative.

        Args:
            forward: called with the arguments; returns the result and the residuals, which may hold objects. It does to
                objects what the function does.
            backward: called with the residuals and the cotangent of the result; returns one entry for each argument: for
                an object a dict from leaf path to gradient, for arrays the gradient, None where it is zero.
        """
        self._forward, self._backward = unbind(forward)[0], unbind(backward)[0]

    def __call__(self, *args: Any) -> Any:
        """Calls the function.

        Raises:
            LiftError: if `defvjp` was not called, or the structure of an object is changed or returned.
        """
        if self._forward is None or self._backward is None:
            name = getattr(self._function, "__name__", "f")
            raise LiftError(
                f"fw.custom_vjp: {name} has no derivative yet. Give it one: `{name}.defvjp(forward, backward)`."
            )
        lifted = Lifted((*self._bound, *args), static_scalars=True)
        forward, backward = self._forward, self._backward
        found: list[Effects] = []

        def run(function: Callable[..., Any], leaves: list[Any], arrays: list[Any]) -> Sequence[Any]:
            effects, values = lifted.run(function, leaves, arrays)
            require_same_structure(lifted, effects, "custom_vjp")
            if any(isinstance(part, NodeRef) for part in effects.returned):
                raise LiftError(
                    "fw.custom_vjp: an object was returned; return its arrays, or change an argument in place."
                )
            found.append(effects)
            return [jnp.asarray(value) for value in values]

        @jax.custom_vjp
        def flat(leaves: list[Any], arrays: list[Any]) -> Sequence[Any]:
            return run(self._function, leaves, arrays)

        def flat_forward(leaves: list[Any], arrays: list[Any]) -> tuple[Sequence[Any], Any]:
            kept: list[Any] = []

            def only_result(*args: Any) -> Any:
                result, residuals = forward(*args)
                kept.append(residuals)
                return result

            return run(only_result, leaves, arrays), kept[-1]

        def flat_backward(residuals: Any, cotangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            effects = found[-1]
            returned = [
                cotangents[part.value] if isinstance(part, Output) else None  # a static value has no cotangent
                for part in effects.returned
            ]
            gradients = backward(residuals, jax.tree.unflatten(effects.treedef, returned))
            return _spread(lifted, gradients)

        flat.defvjp(flat_forward, flat_backward)
        values = flat(lifted.leaves, lifted.call.arrays)
        return lifted.finish(found[-1], values)


def _spread(lifted: Lifted, gradients: Any) -> tuple[list[Any], list[Any]]:
    """Turns one gradient for each argument into one for each leaf and array; None stands for zero."""
    call, graph = lifted.call, lifted.graph
    children = call.treedef.children()[0].children()
    entries = gradients if isinstance(gradients, tuple) else (gradients,)
    if len(entries) != len(children):
        raise LiftError(
            f"fw.custom_vjp: the backward function returned {len(entries)} gradients for {len(children)} arguments. Return "
            f"one for each, None where it is zero."
        )
    leaves: list[Any] = [None] * len(lifted.leaves)
    arrays: list[Any] = []
    roles = iter(call.roles)
    for entry, child in zip(entries, children, strict=True):
        own = [next(roles) for _ in range(child.num_leaves)]
        objects = [role for role in own if role.name == "object"]
        if objects and entry is not None:
            if len(own) != 1 or not isinstance(entry, Mapping):
                raise LiftError(
                    "fw.custom_vjp: the gradient of an object is a dict from leaf path to array, as `fw.grad` returns it. "
                    "Pass each object as an argument of its own."
                )
            paths = leaf_paths(graph, (graph.structure.roots[objects[0].root],))
            unknown = sorted(set(entry) - set(paths.values()))
            if unknown:
                raise LiftError(
                    f"fw.custom_vjp: the backward function returned gradients of {', '.join(map(repr, unknown))}, and the "
                    f"leaves are {', '.join(paths.values())}."
                )
            for leaf, path in paths.items():
                leaves[leaf] = entry.get(path)
        count = sum(role is ARRAY for role in own)
        if entry is None or objects:
            arrays += [None] * count
        else:
            arrays += jax.tree.leaves(entry, is_leaf=lambda part: part is None)
    return leaves, arrays

"""`eval_shape`: what a function returns, in shapes and dtypes, without running it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from framework.lift.effects import Effects, Input, Output, result_of
from framework.lift.lifted import Lifted
from framework.lift.plan import unbind
from framework.module.graph import build


def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns what a function would return, with `jax.ShapeDtypeStruct` in place of arrays, without running it.

    The objects that are passed stay as they are: an object that the function returns comes back as a new one with shapes
    for leaves, in the state that the function leaves it in.

    Args:
        function: a function, method or module.
        args: arguments of the function; leaves and arrays may be `jax.ShapeDtypeStruct`.
        kwargs: keyword arguments.

    Returns:
        The result in shapes.

    Example:
        >>> import framework as fw
        >>> model = fw.eval_shape(lambda: fw.nn.Linear(10_000, 10_000, rngs=fw.Rngs(0)))
        >>> model.weight.shape
        (10000, 10000)
    """
    inner, bound = unbind(function)
    lifted = Lifted((*bound, *args), kwargs, static_scalars=False)
    found: list[Effects] = []

    def run(leaves: list[Any], arrays: list[Any]) -> Sequence[Any]:
        effects, values = lifted.run(inner, leaves, arrays)
        found.append(effects)
        return values

    values = [_shape(value) for value in jax.eval_shape(run, lifted.leaves, lifted.call.arrays)]
    effects = found[-1]

    def leaf(source: Input | Output) -> Any:
        return _shape(lifted.leaves[source.leaf]) if isinstance(source, Input) else values[source.value]

    everything = build(effects.after, [leaf(source) for source in effects.leaves])
    return result_of(effects, everything, values)


def _shape(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)

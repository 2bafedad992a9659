"""`remat`: recompute a function in the backward pass instead of keeping what it computed."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from framework.lift.effects import Effects
from framework.lift.lifted import Lifted
from framework.lift.plan import unbind


def remat(
    function: Callable[..., Any], *, policy: Callable[..., bool] | None = None, prevent_cse: bool = True
) -> Callable[..., Any]:
    """Makes a function that is computed again in the backward pass; what it changes on objects is changed once.

    Random draws in the second computation are those of the first, since the counter of a stream is an input.

    Args:
        function: a function, method or module.
        policy: what may be kept, from `jax.checkpoint_policies`.
        prevent_cse: see `jax.checkpoint`.

    Returns:
        A function with the arguments and results of `function`.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> layer = fw.nn.Linear(2, 2, rngs=fw.Rngs(0))
        >>> fw.grad(lambda layer, x: fw.remat(layer)(x).sum())(layer, jnp.ones((1, 2)))["bias"].tolist()
        [1.0, 1.0]
    """
    inner, bound = unbind(function)

    @functools.wraps(inner)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        lifted = Lifted((*bound, *args), kwargs, static_scalars=True)
        captured: list[Effects] = []

        def flat(leaves: list[Any], arrays: list[Any]) -> list[Any]:
            effects, values = lifted.run(inner, leaves, arrays)
            captured.append(effects)
            return values

        checkpointed = jax.checkpoint(flat, policy=policy, prevent_cse=prevent_cse)  # pyright: ignore[reportPrivateImportUsage]
        values = checkpointed(lifted.leaves, lifted.call.arrays)
        return lifted.finish(captured[0], values)

    return recomputed

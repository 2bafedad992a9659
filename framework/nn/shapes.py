"""Checks of input shapes, whose errors name the layer and both shapes, and the dtype that a layer computes in."""

from typing import Any

import jax
import jax.numpy as jnp

from framework.errors import ModuleError


def require_features(layer: Any, x: jax.Array, features: int, axes: str) -> None:
    """Refuses an input whose last axis is not what a layer was made for.

    Args:
        layer: the layer.
        x: its input.
        features: expected length of the last axis.
        axes: the expected shape in words, for the error text.

    Raises:
        ModuleError: if the last axis has another length.

    Example:
        >>> import jax.numpy as jnp
        >>> require_features(object(), jnp.ones((5, 3)), 3, "[batch, features]")
    """
    if x.ndim < 1 or x.shape[-1] != features:
        name = type(layer).__name__
        raise ModuleError(
            f"{name} was made for inputs of shape {axes} with {features} in the last axis, and was given "
            f"{shown(x)}. Change the layer's size to the input's, or reshape the input before it."
        )


def shown(x: jax.Array) -> str:
    """Returns dtype and shape of an array for an error text.

    Example:
        >>> import jax.numpy as jnp
        >>> shown(jnp.ones((5, 3)))
        'float32[5, 3]'
    """
    return f"{x.dtype}{list(x.shape)}"


def promote(dtype: Any, *arrays: Any) -> tuple[Any, ...]:
    """Converts arrays to the dtype a layer computes in: the given one, or what they have in common.

    Args:
        dtype: the dtype, or None.
        arrays: arrays, or None where a layer has no such parameter.

    Returns:
        The arrays, in the same order.

    Example:
        >>> import jax.numpy as jnp
        >>> x, weight, bias = promote(None, jnp.ones(2, jnp.bfloat16), jnp.ones(2), None)
        >>> x.dtype.name, weight.dtype.name, bias
        ('float32', 'float32', None)
    """
    present = [array for array in arrays if array is not None]
    chosen = dtype if dtype is not None else jnp.result_type(*present)
    return tuple(None if array is None else jnp.asarray(array, chosen) for array in arrays)


def at_least_float32(x: jax.Array) -> jax.Array:
    """Converts an array to the dtype in which statistics are computed.

    Example:
        >>> import jax.numpy as jnp
        >>> at_least_float32(jnp.ones(2, jnp.bfloat16)).dtype.name
        'float32'
    """
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))

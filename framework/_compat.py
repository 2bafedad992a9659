"""Differences between the supported JAX versions, and the few JAX names that are not in its main namespace.

Everything here is public in JAX 0.10 to 0.12; a shim for a newer version belongs in this file and nowhere else.
"""

from typing import Any

import jax
from jax.extend.core import get_opaque_trace_state

__all__ = ["current_trace", "varying_axes"]


def current_trace() -> object:
    """Returns a token that is equal for two moments exactly when both are inside the same JAX trace.

    Returns:
        An opaque token with `==`. Outside of every trace it is the same in every thread.

    Example:
        >>> import jax
        >>> outside = current_trace()
        >>> outside == current_trace()
        True
        >>> jax.eval_shape(lambda x: x if outside != current_trace() else 1 / 0, 1.0).shape
        ()
    """
    return get_opaque_trace_state(convention="framework")


def varying_axes(value: Any) -> frozenset[str]:
    """Returns the mesh axes along which a value inside of `jax.shard_map` differs between devices.

    Args:
        value: an array or tracer.

    Returns:
        Names of axes; empty outside of `jax.shard_map`.

    Example:
        >>> import jax.numpy as jnp
        >>> varying_axes(jnp.ones(3))
        frozenset()
    """
    kind = jax.typeof(value)
    manual = getattr(kind, "manual_axis_type", None)  # JAX 0.12; before, the axes were the attribute `vma`
    return frozenset(getattr(kind, "vma", ()) if manual is None else manual.varying)

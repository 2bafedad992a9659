"""`Sequential`: layers one after the other."""

from collections.abc import Callable
from typing import Any

from framework.errors import ModuleError
from framework.module.base import Module


class Sequential(Module):
    """Calls layers and plain functions one after the other.

    Args:
        layers: modules, or functions of an array.

    Raises:
        ModuleError: if one of them cannot be called.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> rngs = fw.Rngs(0)
        >>> model = fw.nn.Sequential(fw.nn.Linear(2, 8, rngs=rngs), jax.nn.relu, fw.nn.Linear(8, 3, rngs=rngs))
        >>> model(jnp.ones((5, 2))).shape
        (5, 3)
        >>> model.layers.append(jax.nn.softmax)
    """

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for position, layer in enumerate(layers):
            if not callable(layer):
                raise ModuleError(
                    f"Sequential was given {type(layer).__name__} as layer {position}, which cannot be called. Give "
                    f"the layers one by one, and unpack a list of them: `Sequential(*layers)`."
                )
        self.layers: list[Any] = list(layers)

    def __call__(self, x: Any) -> Any:
        """Returns the output of the last layer; `x` itself if there is none.

        Args:
            x: input of the first layer.
        """
        for layer in self.layers:
            x = layer(x)
        return x

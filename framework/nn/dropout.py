"""`Dropout`: sets elements to zero at random in training."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from framework.errors import ModuleError
from framework.module.base import Module
from framework.random.rngs import Rngs, Stream


class Dropout(Module):
    """Sets each element to zero with probability `rate` in training mode, and scales the others up to keep the mean.

    In evaluation mode, and with a rate of 0, it returns its input and draws nothing.

    Args:
        rate: probability of zero, from 0 to 1.
        rngs: the stream `dropout` gives the masks; all layers made with the same `rngs` share it.

    Raises:
        ModuleError: if the rate is out of range.

    Reference:
        Srivastava et al., Dropout, 2014, https://jmlr.org/papers/v15/srivastava14a.html

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> dropout = fw.nn.Dropout(0.5, rngs=fw.Rngs(0))
        >>> sorted(set(dropout(jnp.ones(100)).tolist()))
        [0.0, 2.0]
        >>> with dropout.eval():
        ...     set(dropout(jnp.ones(100)).tolist())
        {1.0}
    """

    def __init__(self, rate: float, *, rngs: Rngs) -> None:
        if not 0 <= rate <= 1:
            raise ModuleError(
                f"Dropout was given rate={rate!r}; it is the probability of zero, from 0 to 1, as in `Dropout(0.1, "
                f"rngs=rngs)`."
            )
        self.rate = float(rate)
        self.stream: Stream = rngs.dropout

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the array with some elements zero, of the shape and dtype of the input.

        Args:
            x: array of any shape.
        """
        if not self.training or self.rate == 0:
            return x
        with jax.named_scope("Dropout"):
            if self.rate == 1:  # nothing is left that could be scaled up
                return jnp.zeros_like(x)
            keep = jax.random.bernoulli(self.stream(), 1 - self.rate, x.shape)
            return jnp.where(keep, x / (1 - self.rate), 0).astype(x.dtype)

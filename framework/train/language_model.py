"""`LanguageModel`: the next character from the ones before it, and samples as text."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from framework.data.characters import decode, encode, vocabulary
from framework.data.checks import check_labels
from framework.lift.jit import jit
from framework.module.base import Module
from framework.module.fields import State
from framework.optim.optimizer import Optimizer
from framework.train.task import Task, masked_mean


class LanguageModel(Task):
    """Learns `batch["targets"]` from `batch["tokens"]`, both of shape `[batch, length]`; the loss is in nats a token.

    Args:
        model: a causal module that maps tokens `[batch, length]` to logits `[batch, length, vocabulary]`.
        optimizer: what trains it.
        prompt: text that samples begin with.
        sample_length: number of characters of a sample, 0 for none.
        context: number of tokens that the model looks at.
        seed: seed of the samples, which are drawn from streams of their own.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> model = fw.nn.models.Transformer(98, 16, 1, 2, 8, rngs=fw.Rngs(0))
        >>> task = fw.LanguageModel(model, sample_length=5, context=8)
        >>> len(task.texts()["sample"]) >= 5
        True
    """

    sample_key: State

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer | None = None,
        *,
        prompt: str = "def ",
        sample_length: int = 200,
        context: int = 128,
        seed: int = 0,
    ) -> None:
        super().__init__(model, optimizer)
        self.prompt = prompt
        self.sample_length = sample_length
        self.context = context
        self.sample_key = jax.random.key(seed)

    def check(self, batch: Mapping[str, Any], number: int) -> None:
        """Refuses characters out of range, which JAX would take for others or turn into NaN."""
        for name in ("tokens", "targets"):
            check_labels(batch, name, len(vocabulary()), number)

    def loss(self, model: Any, batch: Mapping[str, Any]) -> jax.Array:
        """Returns the mean cross entropy in nats a token."""
        logits = model(batch["tokens"])
        return masked_mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"]), batch)

    def predict_step(self, batch: Mapping[str, Any]) -> jax.Array:
        """Returns logits of shape `[batch, length, vocabulary]`."""
        return self.model(batch["tokens"])  # pyright: ignore[reportCallIssue]

    def texts(self) -> dict[str, str]:
        """Returns a sample, drawn with the temperature 1; the same for the same weights."""
        return {"sample": self.prompt + decode(self.sample().tolist())} if self.sample_length else {}

    @jit
    def sample(self) -> jax.Array:
        """Draws characters one by one.

        Returns:
            Tokens of shape `[sample_length]`, int32.
        """
        prompt = encode(self.prompt)[-self.context :]
        window = jnp.zeros(self.context, jnp.int32).at[: len(prompt)].set(jnp.asarray(prompt, jnp.int32))
        model: Any = self.model

        def step(carry: tuple[jax.Array, jax.Array], key: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            window, filled = carry
            token = jax.random.categorical(key, model(window[None])[0, filled - 1]).astype(jnp.int32)
            grown = window.at[jnp.minimum(filled, self.context - 1)].set(token)
            full = jnp.roll(window, -1).at[-1].set(token)
            window = jnp.where(filled < self.context, grown, full)
            return (window, jnp.minimum(filled + 1, self.context)), token

        keys = jax.random.split(self.sample_key, self.sample_length)
        return jax.lax.scan(step, (window, jnp.asarray(len(prompt))), keys)[1]

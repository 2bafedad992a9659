"""`Classification`: one label per example, cross entropy and accuracy."""

from collections.abc import Mapping
from typing import Any

import jax
import optax

from framework.data.checks import check_labels
from framework.module.base import Module
from framework.optim.optimizer import Optimizer
from framework.trackers.accuracy import Accuracy
from framework.train.task import Task, masked_mean


class Classification(Task):
    """Learns `batch["label"]` from `batch["image"]`, or from another input.

    Args:
        model: a module that maps inputs `[batch, ...]` to logits `[batch, num_classes]`.
        optimizer: what trains it.
        num_classes: number of classes; labels must lie in `0 .. num_classes - 1`.
        input_key: name of the input in a batch.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> import framework as fw
        >>> model = fw.nn.Linear(2, 3, rngs=fw.Rngs(0))
        >>> optimizer = fw.Optimizer(optax.adam, model, learning_rate=0.1)
        >>> task = fw.Classification(model, optimizer, num_classes=3, input_key="x")
        >>> task.train_step({"x": jnp.ones((4, 2)), "label": jnp.array([0, 1, 2, 2])}).shape
        ()
    """

    def __init__(
        self, model: Module, optimizer: Optimizer | None = None, *, num_classes: int, input_key: str = "image"
    ) -> None:
        super().__init__(model, optimizer, metrics={"accuracy": Accuracy()})
        self.num_classes = num_classes
        self.input_key = input_key

    def loss(self, model: Any, batch: Mapping[str, Any]) -> jax.Array:
        """Returns the mean cross entropy in nats."""
        logits = model(batch[self.input_key])
        self.metrics["accuracy"].update(logits, batch["label"], batch.get("mask"))
        return masked_mean(optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]), batch)

    def predict_step(self, batch: Mapping[str, Any]) -> jax.Array:
        """Returns logits of shape `[batch, num_classes]`."""
        return self.model(batch[self.input_key])  # pyright: ignore[reportCallIssue]

    def check(self, batch: Mapping[str, Any], number: int) -> None:
        """Refuses labels out of range, which JAX would take for another class or turn into NaN."""
        check_labels(batch, "label", self.num_classes, number)

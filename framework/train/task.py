"""`Task`: everything that training changes in one module, and what one step of it is."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from framework.lift.grad import value_and_grad
from framework.module.base import Module
from framework.optim.optimizer import Optimizer
from framework.trackers.mean import Mean


class Task(Module):
    """Owns the model, its optimizer and the metrics, and says what one step is.

    A subclass gives `loss`; one that needs more (two optimizers, target networks) overrides `train_step`. All of it is
    one module: a compiled step gets the task as its argument, and a checkpoint of the task is complete.

    Args:
        model: the module to train.
        optimizer: what trains it; None for a task that is only evaluated.
        metrics: trackers by name, which `loss` updates through `self.metrics`; `loss` itself is tracked always.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> import framework as fw
        >>> class Regression(fw.Task):
        ...     def loss(self, model, batch):
        ...         return ((model(batch["x"]) - batch["y"]) ** 2).mean()
        >>> model = fw.nn.Linear(1, 1, rngs=fw.Rngs(0))
        >>> task = Regression(model, fw.Optimizer(optax.sgd, model, learning_rate=0.1))
        >>> batch = {"x": jnp.ones((4, 1)), "y": jnp.ones((4, 1))}
        >>> before, after = [float(task.train_step(batch)) for _ in range(2)]
        >>> after < before
        True
    """

    def __init__(
        self, model: Module, optimizer: Optimizer | None = None, *, metrics: Mapping[str, Module] | None = None
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        trackers: dict[str, Any] = {"loss": Mean(), **(metrics or {})}
        self.train_metrics = trackers
        self.eval_metrics = {name: tracker.clone() for name, tracker in trackers.items()}

    @property
    def metrics(self) -> dict[str, Any]:
        """The trackers of the current mode: training and evaluation are counted apart."""
        return self.train_metrics if self.training else self.eval_metrics

    def loss(self, model: Any, batch: Mapping[str, Any]) -> jax.Array:
        """Returns the scalar to minimise, and updates trackers and state on the way.

        Args:
            model: the model of the task.
            batch: arrays by name, with the batch as first axis.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say what is learned. Give it a method "
            f"`def loss(self, model, batch): return ...` that returns a scalar."
        )

    def train_step(self, batch: Mapping[str, Any]) -> jax.Array:
        """Does one update of the optimizer and returns the loss before it."""
        assert self.optimizer is not None
        loss, gradients = value_and_grad(self.loss, wrt=self.optimizer.wrt)(self.model, batch)
        self.optimizer.update(gradients)
        self.metrics["loss"].update(loss, self.weight(batch))
        return loss

    def eval_step(self, batch: Mapping[str, Any]) -> None:
        """Counts one batch in the metrics, without training."""
        self.metrics["loss"].update(self.loss(self.model, batch), self.weight(batch))

    def predict_step(self, batch: Mapping[str, Any]) -> Any:
        """Returns the output of the model for one batch.

        Args:
            batch: arrays by name.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say what a prediction is. Give it a method "
            f"`def predict_step(self, batch): return self.model(...)`."
        )

    def weight(self, batch: Mapping[str, Any]) -> jax.Array:
        """Returns how many examples a batch counts for: the sum of its `mask`, or its length."""
        if "mask" in batch:
            return batch["mask"].sum()
        return jnp.asarray(jax.tree.leaves(batch)[0].shape[0], jnp.float32)

    def scalars(self) -> dict[str, jax.Array]:
        """Returns more numbers to record with the training metrics; the learning rate where there is one."""
        rate = None if self.optimizer is None else self.optimizer.learning_rate
        return {} if rate is None else {"learning_rate": rate}

    def texts(self) -> dict[str, str]:
        """Returns texts to record after an evaluation, by name; none unless a subclass says so."""
        return {}

    def check(self, batch: Mapping[str, Any], number: int) -> None:
        """Raises a `DataError` if a batch on the host is unusable; runs beside the loop, for each batch.

        Args:
            batch: NumPy arrays by name.
            number: count of the batch, from 0.
        """


def masked_mean(values: jax.Array, batch: Mapping[str, Any]) -> jax.Array:
    """Returns the mean of per-example values over the real examples of a batch.

    Args:
        values: array of shape `[batch, ...]`.
        batch: the batch; its `mask` of shape `[batch]`, if it has one, is 0 for padding.

    Example:
        >>> import jax.numpy as jnp
        >>> float(masked_mean(jnp.array([1.0, 3.0, 100.0]), {"mask": jnp.array([1.0, 1.0, 0.0])}))
        2.0
    """
    if "mask" not in batch:
        return values.mean()
    mask = jnp.broadcast_to(batch["mask"].reshape((-1,) + (1,) * (values.ndim - 1)), values.shape)
    return (values * mask).sum() / jnp.maximum(mask.sum(), 1)

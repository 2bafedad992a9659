"""`Trainer`: the loop, and nothing else.

Its order is fixed: evaluate the state of step i, save it, take the next batch, do the step, record. So a checkpoint of
step i is the state before batch i, its evaluation is on record when it exists, and a run that continues from it does
what an uninterrupted one does. A step is one update of the optimizer.
"""

import math
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from framework.checkpoint import Checkpoints
from framework.data.batches import Batches
from framework.data.prefetch import Prefetch
from framework.errors import DataError, TrainingError
from framework.lift.jit import jit
from framework.monitor import Monitor
from framework.train.task import Task

Scalars = dict[str, float]


class Trainer:
    """Runs a task over data: `fit`, `evaluate` and `predict`.

    Args:
        max_steps: number of updates after which `fit` ends.
        log_every: record the training metrics every so many steps.
        evaluate_every: evaluate every so many steps, and at the end; None for at the end only.
        prefetch: number of batches that are checked and put on the device ahead of the step.
        checkpoints: where to save, and to continue from if something is there; None for no checkpoints.
        monitor: where records go; None for nowhere.

    Example:
        >>> import numpy as np
        >>> import optax
        >>> import framework as fw
        >>> class Regression(fw.Task):
        ...     def loss(self, model, batch):
        ...         return ((model(batch["x"]) - batch["y"]) ** 2).mean()
        >>> x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
        >>> data = fw.data.ArrayBatches({"x": x, "y": 3 * x}, 16, shuffle=True)
        >>> model = fw.nn.Linear(1, 1, rngs=fw.Rngs(0))
        >>> task = Regression(model, fw.Optimizer(optax.sgd, model, learning_rate=0.5))
        >>> trainer = fw.Trainer(max_steps=100, log_every=10)
        >>> trainer.fit(task, data)["loss"] < 1e-3
        True
    """

    def __init__(
        self,
        *,
        max_steps: int,
        log_every: int = 50,
        evaluate_every: int | None = None,
        prefetch: int = 2,
        checkpoints: Checkpoints | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        self.max_steps, self.log_every, self.evaluate_every = max_steps, log_every, evaluate_every
        self.prefetch, self.checkpoints, self.monitor = prefetch, checkpoints, monitor
        self.step = 0
        self.first_step_at: float | None = None
        """Wall time at which the first step of this process was done."""
        self._evaluated: int | None = None

    def fit(self, task: Task, train: Batches, eval: Batches | None = None) -> Scalars:
        """Trains until `max_steps` updates are done, continuing from the newest checkpoint if there is one.

        Args:
            task: what to train; changed in place.
            train: endless batches to train on.
            eval: batches to evaluate on, once through each time.

        Returns:
            The metrics of the last evaluation, or without evaluation those of the last record.

        Raises:
            TrainingError: if the loss is no longer finite; the last checkpoint is from before that.
            DataError: if a batch is unusable.
            CheckpointError: if a checkpoint could not be written or read.
        """
        batches = iter(train)
        self.step, self._evaluated = 0, None
        if self.checkpoints is not None and self.checkpoints.latest() is not None:
            restored = self.checkpoints.restore(task)
            self.step, self._evaluated = restored.step, restored.trainer.get("evaluated")
            batches.restore(restored.data)
        pipeline = Prefetch(batches, depth=self.prefetch, prepare=_Preparation(task, self.step))
        try:
            return self._loop(task, pipeline, eval)
        finally:
            pipeline.close()
            if self.checkpoints is not None:
                self.checkpoints.wait()
            if self.monitor is not None:
                self.monitor.drain()

    def _loop(self, task: Task, pipeline: Prefetch, eval: Batches | None) -> Scalars:
        train_step = jit(task.train_step)
        recorder = _Recorder(self, task)
        last: Scalars = {}
        while True:
            done = self.step >= self.max_steps
            if eval is not None and self._due(self.evaluate_every, done) and self._evaluated != self.step:
                recorder.fetch()
                last = self._evaluate_and_record(task, eval)
                recorder.restart_clock()
            if self.checkpoints is not None and self._due(self.checkpoints.every, done):
                recorder.fetch()
                self._save(task, pipeline, self.checkpoints)
            if done:
                recorder.fetch()
                return last or recorder.last
            batch = next(pipeline)
            loss = train_step(batch)
            self.step += 1
            if self.first_step_at is None:
                jax.block_until_ready(loss)
                self.first_step_at = time.time()
                recorder.restart_clock()
            recorder.after_step()

    def _due(self, every: int | None, done: bool) -> bool:
        return done or (every is not None and self.step > 0 and self.step % every == 0)

    def _evaluate_and_record(self, task: Task, eval: Batches) -> Scalars:
        values = self.evaluate(task, eval)
        self._evaluated = self.step
        if self.monitor is not None:
            self.monitor.scalars("eval", self.step, values)
            with task.eval():
                texts = task.texts()
            for tag, text in texts.items():
                self.monitor.text("eval", self.step, tag, text, code=True)
        return values

    def _save(self, task: Task, pipeline: Prefetch, checkpoints: Checkpoints) -> None:
        if checkpoints.latest() == self.step:
            return
        # Only a state whose losses so far are finite may replace an older checkpoint.
        total = float(task.train_metrics["loss"].total)
        if not math.isfinite(total):
            raise _not_finite(self.step, self.checkpoints)
        if self.monitor is not None:
            self.monitor.drain()  # no record may trail the checkpoint that a run continues from
        checkpoints.save(self.step, task, data=pipeline.state(), trainer={"evaluated": self._evaluated})

    def evaluate(self, task: Task, batches: Batches) -> Scalars:
        """Returns the metrics of a task over some batches, once through; exact also where the last batch is padded.

        Args:
            task: what to evaluate; only its evaluation trackers change.
            batches: finite batches.

        Raises:
            DataError: if a batch is unusable.
        """
        _require_end(batches)
        with task.eval():
            _reset(task)
            step = jit(task.eval_step)
            for number, batch in enumerate(batches):
                task.check(batch, number)
                step(batch)
            return _floats(_take(task))

    def predict(self, task: Task, batches: Batches) -> Any:
        """Returns the outputs of a task for all examples, in order and without padding.

        Args:
            task: what predicts; in evaluation mode.
            batches: finite batches.

        Returns:
            What `task.predict_step` returns, as NumPy arrays joined along the first axis.
        """
        _require_end(batches)
        outputs: list[Any] = []
        with task.eval():
            step = jit(task.predict_step)
            for batch in batches:
                real = np.asarray(batch["mask"]) > 0 if "mask" in batch else slice(None)
                outputs.append(jax.tree.map(lambda output, real=real: np.asarray(output)[real], step(batch)))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *outputs)


def _require_end(batches: Batches) -> None:
    if batches.epochs is None:
        raise DataError(
            "the data to evaluate or predict on repeats for ever, so that going once through it would never end. Make it "
            'with `epochs=1`, and with `remainder="pad"` so that no example is left out.'
        )


class _Preparation:
    """Checks a batch on the host and puts it on the device, in the thread that fetches ahead."""

    def __init__(self, task: Task, first: int) -> None:
        self._task, self._first = task, first

    def __call__(self, batch: Mapping[str, Any], number: int) -> Any:
        self._task.check(batch, self._first + number)
        return jax.device_put(dict(batch))


class _Recorder:
    """Records training metrics one step late, so that the loop never waits for the step that it has just started."""

    def __init__(self, trainer: Trainer, task: Task) -> None:
        self._trainer, self._task = trainer, task
        self._pending: tuple[int, dict[str, jax.Array]] | None = None
        self.last: Scalars = {}
        self.restart_clock()

    def restart_clock(self) -> None:
        """Begins a new interval for the rate, without what was not training."""
        self._since, self._since_step = time.perf_counter(), self._trainer.step

    def after_step(self) -> None:
        """Fetches what was taken before this step, and takes the metrics if they are due now."""
        self.fetch()
        trainer = self._trainer
        if trainer.step % trainer.log_every == 0:
            self._pending = trainer.step, _take(self._task)
        if trainer.monitor is not None:
            trainer.monitor.update(trainer.step)

    def fetch(self) -> None:
        """Records the metrics that were taken, and refuses to go on if the loss is not finite.

        Raises:
            TrainingError: if the loss is NaN or infinite.
        """
        if self._pending is None:
            return
        step, taken = self._pending
        self._pending = None
        self.last = _floats(taken)
        # The values have arrived, so their step is done: only now is it known how long it took.
        now = time.perf_counter()
        if step > self._since_step:
            self.last["steps_per_second"] = (step - self._since_step) / max(now - self._since, 1e-9)
        self._since, self._since_step = now, step
        if self._trainer.monitor is not None:
            self._trainer.monitor.scalars("train", step, self.last)
        if not math.isfinite(self.last["loss"]):
            raise _not_finite(step, self._trainer.checkpoints)


def _not_finite(step: int, checkpoints: Checkpoints | None) -> TrainingError:
    saved = None
    if checkpoints is not None:
        checkpoints.wait()  # a save may be on its way to the disk
        saved = checkpoints.latest()
    kept = "there is no checkpoint" if saved is None else f"the checkpoint of step {saved} is intact"
    return TrainingError(
        f"the loss became NaN or infinite at or shortly before step {step}; training was stopped, and {kept}. Usual "
        f"causes are a learning rate that is too high, bad values in the data, and a division by zero or a logarithm of "
        f"zero in the loss. Try a lower `optimizer.learning_rate`, set `optimizer.clip_norm=1.0`, or find the operation "
        f"with the environment variable JAX_DEBUG_NANS=1."
    )


@jit
def _reset(task: Task) -> None:
    for tracker in task.metrics.values():
        tracker.reset()


@jit
def _take(task: Task) -> dict[str, Any]:
    """Computes the metrics on the device and starts them anew."""
    values = {name: tracker.compute() for name, tracker in task.metrics.items()}
    for tracker in task.metrics.values():
        tracker.reset()
    return values | (task.scalars() if task.training else {})


def _floats(values: Mapping[str, Any]) -> Scalars:
    return {name: float(value) for name, value in jax.device_get(dict(values)).items()}

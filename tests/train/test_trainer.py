"""The loop: its order, its records, and what stops it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.data import ArrayBatches
from framework.errors import DataError, TrainingError
from framework.monitor import Monitor
from framework.train.task import masked_mean


class Log:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, dict[str, float]]] = []
        self.texts: list[tuple[str, int, str, str]] = []

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        self.records.append((split, step, dict(values)))

    def text(self, split: str, step: int, tag: str, text: str, **_: Any) -> None:
        self.texts.append((split, step, tag, text))

    def drain(self) -> None: ...

    def close(self) -> None: ...


class Regression(fw.Task):
    def loss(self, model: Any, batch: Mapping[str, Any]) -> jax.Array:
        return masked_mean(jnp.square(model(batch["x"]) - batch["y"]), batch)

    def predict_step(self, batch: Mapping[str, Any]) -> Any:
        return self.model(batch["x"])


X = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]


def data(batch_size: int = 10, **options: Any) -> ArrayBatches:
    return ArrayBatches({"x": X, "y": 3 * X + 1}, batch_size, **options)


def make(learning_rate: float = 0.3) -> Regression:
    model = fw.nn.Linear(1, 1, rngs=fw.Rngs(0))
    return Regression(model, fw.Optimizer(optax.sgd, model, learning_rate=learning_rate))


def once(batch_size: int = 16) -> ArrayBatches:
    return data(batch_size, shuffle=False, epochs=1, remainder="pad")


def test_it_learns_and_returns_the_last_evaluation() -> None:
    task = make()
    values = fw.Trainer(max_steps=100).fit(task, data(shuffle=True), once())
    assert values["loss"] < 1e-6
    assert float(task.model.weight[0, 0]) == pytest.approx(3, abs=1e-3)


def test_records_are_written_once_each_in_order_of_steps() -> None:
    log = Log()
    trainer = fw.Trainer(max_steps=50, log_every=10, evaluate_every=20, monitor=Monitor([log]))
    trainer.fit(make(), data(shuffle=True), once())
    assert [step for split, step, _ in log.records if split == "train"] == [10, 20, 30, 40, 50]
    assert [step for split, step, _ in log.records if split == "eval"] == [20, 40, 50]
    steps = [step for _, step, _ in log.records]
    assert steps == sorted(steps)
    assert {"loss", "learning_rate"} <= log.records[-1][2].keys() | log.records[0][2].keys()


def test_a_train_record_is_the_mean_loss_since_the_last_one() -> None:
    log = Log()
    fw.Trainer(max_steps=6, log_every=3, monitor=Monitor([log])).fit(make(), data(shuffle=False))
    task, losses = make(), []
    for batch, _ in zip(data(shuffle=False), range(6), strict=False):
        losses.append(float(task.train_step(jax.device_put(batch))))
    recorded = [values["loss"] for _, _, values in log.records]
    assert recorded == pytest.approx([np.mean(losses[:3]), np.mean(losses[3:])], rel=1e-6)


def test_evaluation_is_exact_over_an_uneven_last_batch() -> None:
    task = make()
    values = fw.Trainer(max_steps=0).evaluate(task, once(16))
    predicted = X @ np.asarray(task.model.weight) + np.asarray(task.model.bias)
    assert values["loss"] == pytest.approx(float(np.square(predicted - 3 * X - 1).mean()), rel=1e-5)


def test_predictions_are_those_of_all_examples_in_order() -> None:
    task = make()
    predicted = fw.Trainer(max_steps=0).predict(task, once(16))
    np.testing.assert_allclose(predicted, X @ np.asarray(task.model.weight) + np.asarray(task.model.bias), rtol=1e-5)


def test_evaluation_and_prediction_change_nothing_but_evaluation_trackers() -> None:
    task = make()
    before = fw.select(task)
    trainer = fw.Trainer(max_steps=0)
    trainer.evaluate(task, once())
    trainer.predict(task, once())
    after = fw.select(task)
    assert [path for path in before if before[path] is not after[path] and not path.startswith("eval_metrics")] == []
    assert task.training


def test_the_step_is_traced_once_in_a_whole_fit() -> None:
    traces: list[int] = []

    class Counting(Regression):
        def train_step(self, batch: Mapping[str, Any]) -> Any:
            traces.append(1)
            return super().train_step(batch)

    model = fw.nn.Linear(1, 1, rngs=fw.Rngs(0))
    task = Counting(model, fw.Optimizer(optax.adam, model, learning_rate=0.1))
    fw.Trainer(max_steps=30, evaluate_every=5, log_every=4).fit(task, data(shuffle=True), once())
    assert len(traces) == 1


def test_the_learning_rate_can_be_set_between_fits_without_a_new_trace() -> None:
    task = make()
    trainer = fw.Trainer(max_steps=3)
    trainer.fit(task, data(shuffle=False))
    task.optimizer.learning_rate = 0.0
    before = task.model.weight
    fw.Trainer(max_steps=3).fit(task, data(shuffle=False))
    assert (task.model.weight == before).all()


def test_a_loss_that_is_not_finite_stops_training_and_says_what_to_try() -> None:
    with pytest.raises(TrainingError, match=r"NaN or infinite at or shortly before step \d+.*learning_rate.*clip_norm"):
        fw.Trainer(max_steps=500, log_every=10).fit(make(learning_rate=1e20), data(shuffle=False))


def test_a_label_out_of_range_stops_training_and_names_the_row() -> None:
    labels = np.zeros(50, np.int32)
    labels[3] = 7
    model = fw.nn.Linear(1, 3, rngs=fw.Rngs(0))
    task = fw.Classification(model, fw.Optimizer(optax.sgd, model, learning_rate=0.1), num_classes=3, input_key="x")
    batches = ArrayBatches({"x": X, "label": labels}, 10, shuffle=False)
    with pytest.raises(DataError, match=r"\"label\" in batch 0 is 7 in row 3, but there are 3 classes"):
        fw.Trainer(max_steps=5).fit(task, batches)


def test_after_an_error_the_objects_hold_the_last_finished_step() -> None:
    class Careful(Regression):
        def check(self, batch: Mapping[str, Any], number: int) -> None:
            if number == 4:
                raise DataError("batch 4 is bad")

    model = fw.nn.Linear(1, 1, rngs=fw.Rngs(0))
    task = Careful(model, fw.Optimizer(optax.sgd, model, learning_rate=0.1))
    with pytest.raises(DataError, match="batch 4 is bad"):
        fw.Trainer(max_steps=10).fit(task, data(shuffle=False))
    assert int(task.optimizer.step) == 4
    assert not any(isinstance(leaf, jax.core.Tracer) or leaf.is_deleted() for leaf in fw.select(task).values())

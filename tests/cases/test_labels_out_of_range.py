"""Labels that are no class, and indices that are no row: an error that says which, never a silent number."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import DataError, TrainingError

CLASSES, BATCH = 4, 3


def make_task() -> fw.Classification:
    model = fw.nn.Linear(2, CLASSES, rngs=fw.Rngs(0))
    optimizer = fw.Optimizer(optax.adam, model, learning_rate=0.1)
    return fw.Classification(model, optimizer, num_classes=CLASSES, input_key="x")


def arrays(batches: int) -> dict[str, np.ndarray]:
    rows = batches * BATCH
    x = np.random.default_rng(0).standard_normal((rows, 2)).astype(np.float32)
    return {"x": x, "label": np.arange(rows) % CLASSES}


def require_equal(actual: fw.Task, expected: fw.Task) -> None:
    for path, leaf in fw.select(expected).items():
        np.testing.assert_array_equal(fw.select(actual)[path], leaf, err_msg=path)


# https://github.com/google-deepmind/optax/issues/1185
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("label", [CLASSES, -1, 255, np.iinfo(np.int64).max])
def test_a_bad_label_in_the_third_batch_stops_there_and_keeps_what_was_learned_before(
    label: int, prefetch: int, tmp_path: Path
) -> None:
    data = arrays(5)
    data["label"][2 * BATCH + 1] = label
    task = make_task()
    with fw.Checkpoints(tmp_path, every=1) as checkpoints:
        trainer = fw.Trainer(max_steps=5, log_every=1, prefetch=prefetch, checkpoints=checkpoints)
        text = rf'"label" in batch 2 is {label} in row 1, but there are {CLASSES} classes, 0 to {CLASSES - 1}'
        with pytest.raises(DataError, match=text):
            trainer.fit(task, fw.data.ArrayBatches(data, BATCH, shuffle=False))
        assert trainer.step == 2
        assert checkpoints.latest() == 2
        restored = make_task()
        checkpoints.restore(restored)
    good = make_task()
    fw.Trainer(max_steps=2, log_every=1).fit(good, fw.data.ArrayBatches(arrays(5), BATCH, shuffle=False))
    assert int(task.optimizer.step) == 2  # pyright: ignore[reportOptionalMemberAccess]
    require_equal(task, good)
    require_equal(restored, good)


# https://github.com/google-deepmind/optax/issues/1185
@pytest.mark.parametrize("label", [CLASSES, -1])
def test_a_bad_label_is_refused_in_evaluation_too(label: int) -> None:
    data = arrays(2)
    data["label"][4] = label
    with pytest.raises(DataError, match=rf'"label" in batch 1 is {label} in row 1'):
        fw.Trainer(max_steps=1).evaluate(make_task(), fw.data.ArrayBatches(data, BATCH, shuffle=False, epochs=1))


# https://github.com/google-deepmind/optax/issues/1185
@pytest.mark.parametrize("content", [0.0, 1e6])
def test_padding_counts_nothing_in_loss_accuracy_denominator_and_gradient(content: float) -> None:
    short, padded = make_task(), make_task()
    data = arrays(2)
    batch = {"x": jnp.asarray(data["x"][:4]), "label": jnp.asarray(data["label"][:4])}
    filled: dict[str, Any] = {
        "x": jnp.concatenate([batch["x"], jnp.full((2, 2), content)]),
        "label": jnp.concatenate([batch["label"], jnp.zeros(2, batch["label"].dtype)]),
        "mask": jnp.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0]),
    }
    np.testing.assert_allclose(padded.train_step(filled), short.train_step(batch), rtol=1e-6)
    for path, leaf in fw.select(short).items():
        np.testing.assert_allclose(fw.select(padded)[path], leaf, rtol=1e-5, atol=1e-6, err_msg=path)
    assert float(padded.train_metrics["accuracy"].count) == float(padded.train_metrics["loss"].weight) == 4.0


# https://github.com/google-deepmind/optax/issues/1185
def test_a_batch_of_padding_alone_changes_no_metric_and_gives_finite_gradients() -> None:
    task = make_task()
    batch = {"x": jnp.ones((2, 2)), "label": jnp.zeros(2, jnp.int32), "mask": jnp.zeros(2)}
    value, gradient = fw.value_and_grad(task.loss)(task.model, batch)
    assert float(value) == 0.0
    assert all(bool((slope == 0).all()) for slope in gradient.values())
    assert float(task.train_metrics["accuracy"].count) == 0.0


# https://github.com/google-deepmind/optax/issues/1185
def test_rows_with_a_declared_padding_label_do_not_count_in_the_accuracy() -> None:
    accuracy = fw.trackers.Accuracy(padding_label=-1)
    # The last class is the largest everywhere: taken for an index, -1 would be a hit.
    fw.jit(accuracy.update)(jnp.tile(jnp.arange(4.0), (4, 1)), jnp.array([3, 0, -1, -1]))
    assert float(accuracy.compute()) == 0.5
    assert float(accuracy.count) == 2.0


# https://github.com/jax-ml/jax/issues/26328
@pytest.mark.parametrize("index", [4, -1, 2**31 - 1])
def test_a_row_that_does_not_exist_shows_and_leaves_no_trace_in_the_gradient_where_it_is_masked(index: int) -> None:
    embedding = fw.nn.Embedding(4, 2, rngs=fw.Rngs(0))
    indices, mask = jnp.array([0, index, 2]), jnp.array([True, False, True])
    assert bool(jnp.isnan(fw.jit(embedding)(indices)[1]).all())

    def loss(embedding: Any, indices: jax.Array) -> jax.Array:
        return jnp.where(mask[:, None], embedding(indices), 0.0).sum()

    gradient = fw.grad(loss)(embedding, indices)["weight"]
    np.testing.assert_array_equal(gradient, [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


# https://github.com/google-deepmind/optax/issues/1185
def test_a_loss_that_is_not_finite_stops_the_run_and_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    data = arrays(5)
    data["x"][2 * BATCH] = np.nan
    with fw.Checkpoints(tmp_path, every=1) as checkpoints:
        trainer = fw.Trainer(max_steps=5, log_every=1, checkpoints=checkpoints)
        with pytest.raises(TrainingError, match=r"step 3.*checkpoint of step 2 is intact"):
            trainer.fit(make_task(), fw.data.ArrayBatches(data, BATCH, shuffle=False))
        assert checkpoints.latest() == 2
        restored = make_task()
        checkpoints.restore(restored)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in fw.select(restored, fw.Param).values())

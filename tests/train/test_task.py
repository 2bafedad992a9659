"""A task: one step, metrics apart for training and evaluation, and everything in one module."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.train.task import masked_mean


def make(learning_rate: float = 0.1) -> fw.Classification:
    model = fw.nn.Linear(4, 3, rngs=fw.Rngs(0))
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=learning_rate)
    return fw.Classification(model, optimizer, num_classes=3, input_key="x")


def batch(size: int = 8, seed: int = 0) -> dict[str, jax.Array]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, 4)).astype(np.float32)
    return {"x": jnp.asarray(x), "label": jnp.asarray(generator.integers(0, 3, size), jnp.int32)}


def test_a_compiled_step_equals_a_plain_one() -> None:
    plain, lifted = make(), make()
    step = fw.jit(lifted.train_step)
    for seed in range(3):
        expected = plain.train_step(batch(seed=seed))
        assert step(batch(seed=seed)) == pytest.approx(float(expected), rel=1e-6)
    for path, leaf in fw.select(plain).items():
        np.testing.assert_allclose(leaf, fw.select(lifted)[path], rtol=1e-5, atol=1e-6, err_msg=path)


def test_the_loss_metric_is_the_mean_over_examples_of_uneven_batches() -> None:
    task = make(learning_rate=0.0)
    losses = [float(task.train_step(batch(size))) for size in (8, 2)]
    assert float(task.train_metrics["loss"].compute()) == pytest.approx((8 * losses[0] + 2 * losses[1]) / 10, rel=1e-6)


def test_evaluation_counts_in_trackers_of_its_own() -> None:
    task = make()
    task.train_step(batch())
    before = fw.select(task, "train_metrics.*")
    with task.eval():
        task.eval_step(batch(seed=1))
    for path, leaf in fw.select(task, "train_metrics.*").items():
        assert leaf is before[path]
    assert float(task.eval_metrics["loss"].weight) == 8


def test_padding_does_not_count() -> None:
    task = make()
    whole, padded = batch(5), batch(5)
    padded = {name: jnp.concatenate([value, value[:1].repeat(3, axis=0)]) for name, value in padded.items()}
    padded["mask"] = jnp.array([1.0] * 5 + [0.0] * 3)
    with task.eval():
        task.eval_step(whole)
        expected = {name: float(tracker.compute()) for name, tracker in task.eval_metrics.items()}
        for tracker in task.eval_metrics.values():
            tracker.reset()
        task.eval_step(padded)
        actual = {name: float(tracker.compute()) for name, tracker in task.eval_metrics.items()}
    assert actual == pytest.approx(expected, rel=1e-6)


def test_one_module_holds_everything_that_changes() -> None:
    task = make()
    paths = list(fw.select(task))
    assert "model.weight" in paths
    assert "optimizer.learning_rate" in paths
    assert "train_metrics.loss.total" in paths
    assert not any(path.startswith("optimizer.model") for path in paths)
    assert task.optimizer is not None
    assert task.optimizer.model is task.model


def test_masked_mean_of_an_all_padding_batch_is_zero_and_differentiable() -> None:
    gradient = jax.grad(lambda x: masked_mean(x, {"mask": jnp.zeros(2)}))(jnp.ones(2))
    assert gradient.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("method", ["loss", "predict_step"])
def test_what_a_subclass_has_to_say_is_explained(method: str) -> None:
    task = fw.Task(fw.nn.Linear(1, 1, rngs=fw.Rngs(0)))
    with pytest.raises(NotImplementedError, match=rf"Task does not say.*def {method}"):
        task.predict_step({}) if method == "predict_step" else task.loss(task.model, {})


@pytest.mark.parametrize(("name", "value"), [("targets", -1), ("targets", 98), ("tokens", 200)])
def test_a_language_model_refuses_characters_out_of_range(name: str, value: int) -> None:
    model = fw.nn.models.Transformer(98, 8, 1, 2, 4, rngs=fw.Rngs(0))
    task = fw.LanguageModel(model, sample_length=0, context=4)
    batch = {key: np.zeros((2, 4), np.int32) for key in ("tokens", "targets")}
    task.check(batch, 0)
    batch[name][1, 2] = value
    with pytest.raises(fw.errors.DataError, match=rf'"{name}" in batch 7 is {value} in row 1'):
        task.check(batch, 7)

"""The optimizer against hand-written optax."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import ModuleError
from framework.nn.models import MLP

X, Y = jax.random.normal(jax.random.key(0), (16, 4)), jax.random.normal(jax.random.key(1), (16, 2))


def make(dtype: Any = jnp.float32) -> MLP:
    model = MLP(4, [8], 2, rngs=fw.Rngs(0))
    fw.update(model, {path: leaf.astype(dtype) for path, leaf in fw.select(model, fw.Param).items()})
    return model


def loss(model: Any) -> Any:
    return ((model(X) - Y) ** 2).mean()


def train(model: MLP, optimizer: fw.Optimizer, steps: int, transform: Callable[..., Any] = fw.jit) -> Any:
    @transform
    def step(optimizer: fw.Optimizer) -> None:
        optimizer.update(fw.grad(loss, wrt=optimizer.wrt)(optimizer.model))

    for _ in range(steps):
        step(optimizer)
    return step


def by_hand(model: MLP, transformation: Any, steps: int) -> dict[str, Any]:
    params = {path: jnp.copy(leaf) for path, leaf in fw.select(model, fw.Param).items()}
    state = transformation.init(params)
    template = model.clone()

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        def value(params: Any) -> Any:
            twin = jax.tree.map(lambda leaf: leaf, template)
            fw.update(twin, params)
            return loss(twin)

        updates, state = transformation.update(jax.grad(value)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(steps):
        params, state = step(params, state)
    return params


SCHEDULE = optax.cosine_decay_schedule(0.1, 30)
CASES: dict[str, tuple[Callable[[MLP], fw.Optimizer], Any]] = {
    "sgd": (lambda m: fw.Optimizer(optax.sgd, m, learning_rate=0.1), optax.sgd(0.1)),
    "momentum": (
        lambda m: fw.Optimizer(optax.sgd, m, learning_rate=0.1, momentum=0.9, nesterov=True),
        optax.sgd(0.1, momentum=0.9, nesterov=True),
    ),
    "adam": (lambda m: fw.Optimizer(optax.adam, m, learning_rate=1e-2), optax.adam(1e-2)),
    "adamw": (
        lambda m: fw.Optimizer(optax.adamw, m, learning_rate=1e-2, weight_decay=0.1),
        optax.adamw(1e-2, weight_decay=0.1),
    ),
    "lion": (lambda m: fw.Optimizer(optax.lion, m, learning_rate=1e-3), optax.lion(1e-3)),
    "rmsprop": (lambda m: fw.Optimizer(optax.rmsprop, m, learning_rate=1e-2), optax.rmsprop(1e-2)),
    "adafactor": (lambda m: fw.Optimizer(optax.adafactor, m, learning_rate=1e-2), optax.adafactor(1e-2)),
    "schedule": (lambda m: fw.Optimizer(optax.adam, m, learning_rate=SCHEDULE), optax.adam(SCHEDULE)),
    "clipping": (
        lambda m: fw.Optimizer(optax.sgd, m, learning_rate=0.5, clip_norm=0.1),
        optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.5)),
    ),
    "a finished chain": (
        lambda m: fw.Optimizer(optax.chain(optax.clip(0.1), optax.adam(1e-2)), m),
        optax.chain(optax.clip(0.1), optax.adam(1e-2)),
    ),
    "several steps in one": (
        lambda m: fw.Optimizer(optax.MultiSteps(optax.sgd(0.1), 2).gradient_transformation(), m),
        optax.MultiSteps(optax.sgd(0.1), 2).gradient_transformation(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_training_equals_hand_written_optax(name: str) -> None:
    factory, transformation = CASES[name]
    model = make()
    expected = by_hand(model, transformation, 20)
    optimizer = factory(model)
    step = train(model, optimizer, 20)
    for path, leaf in fw.select(model, fw.Param).items():
        np.testing.assert_allclose(leaf, expected[path], rtol=1e-6, atol=1e-7, err_msg=path)
    assert int(optimizer.step) == 20 and len(step.traces) == 1


@pytest.mark.parametrize("name", ["adamw", "schedule", "clipping"])
def test_compiled_and_plain_python_train_alike(name: str) -> None:
    models = [make(), make()]
    for model, transform in zip(models, (fw.jit, lambda function: function), strict=True):
        train(model, CASES[name][0](model), 5, transform)
    for path, leaf in fw.select(models[0], fw.Param).items():
        np.testing.assert_allclose(leaf, fw.select(models[1])[path], rtol=1e-5, atol=1e-6)


def test_the_learning_rate_is_set_between_steps_without_a_trace_and_recorded_from_a_schedule() -> None:
    model = make()
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=0.0)
    before = model.clone()
    step = train(model, optimizer, 1)
    assert fw.tree_equal(model, before)
    optimizer.learning_rate = 1
    step(optimizer)
    assert not fw.tree_equal(model, before) and len(step.traces) == 1 and optimizer.learning_rate.dtype == jnp.float32
    scheduled = fw.Optimizer(optax.sgd, make(), learning_rate=SCHEDULE)
    train(scheduled.model, scheduled, 7)
    np.testing.assert_allclose(scheduled.learning_rate, SCHEDULE(6), rtol=1e-6)


def test_equal_arguments_make_equal_structures_and_one_trace() -> None:
    step = train(make(), fw.Optimizer(optax.adamw, make(), learning_rate=1e-3), 0)
    for _ in range(3):
        step(fw.Optimizer(optax.adamw, make(), learning_rate=optax.warmup_cosine_decay_schedule(0, 1, 5, 10)))
    assert len(step.traces) == 1
    structures = [jax.tree.structure(CASES["a finished chain"][0](make())) for _ in range(2)]
    assert structures[0] == structures[1]


def test_only_what_is_selected_is_trained_and_has_state() -> None:
    model = make()
    before = {path: np.asarray(leaf) for path, leaf in fw.select(model, fw.Param).items()}
    optimizer = fw.Optimizer(optax.adam, model, learning_rate=0.1, wrt="*.bias")
    train(model, optimizer, 3)
    changed = {path for path, leaf in before.items() if not np.array_equal(leaf, fw.select(model)[path])}
    assert changed == {"layers.0.bias", "layers.1.bias"}
    assert {name for name in optimizer.state if name.endswith("bias")} == {
        f"0.{moment}.layers.{index}.bias" for moment in ("mu", "nu") for index in (0, 1)
    }
    assert not any(name.endswith("weight") for name in optimizer.state)


def test_a_shared_module_is_trained_once_with_the_sum_of_its_gradients() -> None:
    class Twice(fw.Module):
        def __init__(self) -> None:
            self.first = self.second = fw.nn.Linear(2, 2, rngs=fw.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return self.second(self.first(x))

    model = Twice()
    weight, bias, x = jnp.copy(model.first.weight), jnp.copy(model.first.bias), jnp.ones((3, 2))
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=0.1)
    optimizer.update(fw.grad(lambda model: (model(x) ** 2).sum())(model))
    expected = jax.grad(lambda w: (((x @ w + bias) @ w + bias) ** 2).sum())(weight)
    np.testing.assert_allclose(model.first.weight, weight - 0.1 * expected, rtol=1e-6)
    assert model.first is model.second


def test_small_floats_stay_what_they_are() -> None:
    model = make(jnp.bfloat16)
    train(model, fw.Optimizer(optax.adamw, model, learning_rate=1e-2), 3)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in fw.select(model, fw.Param).values())


def test_wrong_use_is_told() -> None:
    model = make()
    with pytest.raises(ModuleError, match=r"given a finished optax transformation and also learning_rate, momentum"):
        fw.Optimizer(optax.sgd(0.1), model, learning_rate=0.1, momentum=0.9)
    with pytest.raises(
        ModuleError, match=r"Optimizer has nothing to train: no leaf of MLP is selected by wrt='head.*'"
    ):
        fw.Optimizer(optax.sgd, model, learning_rate=0.1, wrt="head.*")
    with pytest.raises(ModuleError, match=r"cannot train step of Optimizer, an array of int32: steps would be cut off"):
        fw.Optimizer(optax.sgd, fw.Optimizer(optax.sgd, model, learning_rate=0.1), learning_rate=0.1, wrt="step")
    optimizer = fw.Optimizer(optax.sgd, model, learning_rate=0.1)
    gradient = fw.grad(loss)(model)
    with pytest.raises(ModuleError, match=r"missing: \['layers.0.bias'\]; unexpected: \['other'\]"):
        optimizer.update(
            {"other": gradient["layers.0.bias"]} | {k: v for k, v in gradient.items() if k != "layers.0.bias"}
        )
    model.layers.append(fw.nn.Linear(2, 2, rngs=fw.Rngs(1)))
    with pytest.raises(
        ModuleError, match=r"are not those that this Optimizer was made for \(layers.2.bias, layers.2.weight"
    ):
        optimizer.update(fw.grad(loss)(model))

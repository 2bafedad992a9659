"""The curves of the experiment digits_mlp equal those of a loop written by hand in JAX and optax."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import framework as fw
from framework.cli.schema import config_directory, register
from framework.monitor import Monitor

STEPS = 200


class Losses:
    """A writer that keeps the training losses."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        if split == "train":
            self.values.append(values["loss"])

    def drain(self) -> None: ...

    def close(self) -> None: ...


def config() -> dict[str, Any]:
    register()
    with initialize_config_dir(str(config_directory()), version_base="1.3"):
        composed = compose("train", ["experiment=digits_mlp"])
    settings: Any = OmegaConf.to_container(composed, resolve=True)
    return settings


@pytest.mark.slow
def test_digits_mlp_equals_a_loop_written_by_hand() -> None:
    settings = config()
    sizes = [settings["model"]["in_features"], *settings["model"]["hidden"], settings["model"]["out_features"]]
    optimizer = {
        name: value for name, value in settings["optimizer"].items() if name in ("learning_rate", "weight_decay")
    }
    clip = settings["optimizer"]["clip_norm"]
    data = fw.data.digits(batch_size=settings["data"]["batch_size"], flat=True, seed=settings["seed"])

    model = fw.nn.models.MLP(sizes[0], sizes[1:-1], sizes[-1], rngs=fw.Rngs(settings["seed"]))
    params = [(jnp.copy(layer.weight), jnp.copy(layer.bias)) for layer in model.layers]
    task = fw.Classification(
        model,
        fw.Optimizer(optax.adamw, model, clip_norm=clip, **optimizer),
        num_classes=settings["task"]["num_classes"],
    )
    losses = Losses()
    fw.Trainer(max_steps=STEPS, log_every=1, monitor=Monitor([losses])).fit(task, data.train)

    transformation = optax.adamw(**optimizer)
    if clip is not None:
        transformation = optax.chain(optax.clip_by_global_norm(clip), transformation)
    state = transformation.init(params)

    def loss(params: Any, x: jax.Array, label: jax.Array) -> jax.Array:
        for weight, bias in params[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        logits = x @ params[-1][0] + params[-1][1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    @jax.jit
    def step(params: Any, state: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, batch["image"], batch["label"])
        updates, state = transformation.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    by_hand: list[float] = []
    for batch, _ in zip(data.train, range(STEPS), strict=False):
        params, state, value = step(params, state, batch)
        by_hand.append(float(value))

    assert len(losses.values) == STEPS
    np.testing.assert_allclose(losses.values, by_hand, rtol=0, atol=1e-6)
    for layer, (weight, bias) in zip(model.layers, params, strict=True):
        np.testing.assert_allclose(layer.weight, weight, rtol=0, atol=1e-6)
        np.testing.assert_allclose(layer.bias, bias, rtol=0, atol=1e-6)

"""The models of the experiments: sizes, compilation, and what they reach on real data."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.nn.models import MLP, Block, ConvNet, Transformer


def transformer(**options: Any) -> Transformer:
    return Transformer(7, 8, 3, 2, 6, rngs=fw.Rngs(0), **options)


def size(module: fw.Module) -> int:
    return sum(leaf.size for leaf in fw.select(module, fw.Param).values())


def test_the_models_have_the_parameters_of_their_formulas() -> None:
    assert size(MLP(64, [32, 16], 10, rngs=fw.Rngs(0))) == 64 * 32 + 32 + 32 * 16 + 16 + 16 * 10 + 10
    pair = 9 * 4 + 9 * 4 * 4 + 2 * 2 * 4
    assert size(ConvNet([4], 3, image_size=6, rngs=fw.Rngs(0))) == pair + 3 * 3 * 4 * 3 + 3
    block = 4 * (8 * 8 + 8) + 8 * 32 + 32 + 32 * 8 + 8 + 4 * 8
    assert size(transformer()) == 7 * 8 + 6 * 8 + 3 * block + 2 * 8
    assert size(transformer(tied=False)) == size(transformer()) + 8 * 7


@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_is_the_embedding_or_its_own(tied: bool) -> None:
    model = transformer(tied=tied)
    names = fw.select(model, fw.Param)
    assert ("head.weight" in names) is not tied
    assert model(jnp.zeros((2, 4), jnp.int32)).shape == (2, 4, 7)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_equal_blocks_are_traced_once_and_the_result_is_that_of_inline_blocks(rate: float) -> None:
    # Sizes of their own, so that no other test has traced these blocks.
    model = Transformer(7, 12 if rate else 16, 4, 2, 6, dropout=rate, rngs=fw.Rngs(0))
    plain, tokens = model.clone(), jnp.array([[1, 2, 3]])
    before = len(Block.__call__.traces)
    y = fw.jit(lambda model, tokens: model(tokens))(model, tokens)
    assert len(Block.__call__.traces) == before + 1

    x = plain.dropout(plain.embedding(tokens) + plain.positions[:3])
    for block in plain.blocks:
        x = Block.__call__.function(block, x)
    np.testing.assert_allclose(y, plain.embedding.attend(plain.norm(x)), rtol=1e-4, atol=1e-5)
    assert int(model.dropout.stream.count) == int(plain.dropout.stream.count) == (9 if rate else 0)


def test_the_transformer_trains_in_one_compiled_step() -> None:
    model = transformer(dropout=0.1)
    optimizer = fw.Optimizer(optax.adam, model, learning_rate=1e-2)
    tokens = jnp.tile(jnp.arange(6), (8, 1))

    def loss(model: Transformer, tokens: jax.Array) -> jax.Array:
        logits = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @fw.jit
    def step(model: Transformer, optimizer: fw.Optimizer, tokens: jax.Array) -> jax.Array:
        value, gradients = fw.value_and_grad(loss)(model, tokens)
        optimizer.update(gradients)
        return value

    values = [float(step(model, optimizer, tokens)) for _ in range(60)]
    assert values[0] > 1.5 and values[-1] < 0.3
    assert len(step.traces) == 1


@pytest.mark.slow
def test_the_convolutional_network_reads_97_percent_of_the_digits_within_a_minute() -> None:
    start = time.perf_counter()
    splits = fw.data.digits(batch_size=64)
    model = ConvNet([32, 64], 10, dropout=0.1, rngs=fw.Rngs(0))
    optimizer = fw.Optimizer(optax.adam, model, learning_rate=2e-3)

    def loss(model: ConvNet, batch: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(model(batch["image"]), batch["label"]).mean()

    @fw.jit
    def step(model: ConvNet, optimizer: fw.Optimizer, batch: Any) -> None:
        optimizer.update(fw.grad(loss)(model, batch))

    for _, batch in zip(range(300), splits.train, strict=False):
        step(model, optimizer, batch)
    model.eval()
    accuracy = fw.trackers.Accuracy()
    update = fw.jit(
        lambda accuracy, model, batch: accuracy.update(model(batch["image"]), batch["label"], batch["mask"])
    )
    for batch in splits.test:
        update(accuracy, model, batch)
    assert float(accuracy.compute()) >= 0.97
    assert time.perf_counter() - start < 60

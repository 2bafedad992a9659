"""The costs in a summary: compared with counting by hand and with XLA's own count."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import framework as fw
from framework.module.graph import descendants
from framework.nn.models import MLP, ConvNet, Transformer


def costs(model: fw.Module, *inputs: Any) -> dict[str, Any]:
    return {cost.path: cost for cost in fw.summary(model, *inputs).costs}


def test_a_linear_layer_costs_what_it_does_by_hand() -> None:
    batch, width, out = 10, 6, 4
    found = costs(fw.nn.Linear(width, out, rngs=fw.Rngs(0)), jnp.ones((batch, width)))
    forward = 2 * batch * width * out + batch * out
    assert found[""].forward.flops == forward
    # The gradient for the weight is one more product; for the bias a sum over the batch.
    assert found[""].step.flops == pytest.approx(forward + 2 * batch * width * out + batch * out, rel=0.2)
    assert found[""].forward.bytes >= 4 * (batch * width + width * out + batch * out)


def test_the_parts_of_a_model_add_up_and_are_named_by_path() -> None:
    model = MLP(64, [128, 128], 10, rngs=fw.Rngs(0))
    found = costs(model, jnp.ones((32, 64)))
    layers = [found[f"layers.{index}"] for index in range(3)]
    for layer, (width, out) in zip(layers, [(64, 128), (128, 128), (128, 10)], strict=True):
        assert layer.name == "Linear" and layer.forward.flops == 2 * 32 * width * out + 32 * out
    # Between the layers are the activations.
    activations = found[""].forward.flops - sum(layer.forward.flops for layer in layers)
    assert 0 <= activations < 0.05 * found[""].forward.flops
    # Each product has two in the gradient, but the first layer needs none for its input.
    products = [2 * 32 * width * out for width, out in [(64, 128), (128, 128), (128, 10)]]
    assert found[""].step.flops == pytest.approx(3 * sum(products) - products[0], rel=0.05)


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: MLP(64, [128], 10, rngs=fw.Rngs(0)), jnp.ones((8, 64))),
        # XLA does not count products with padding, so there is none.
        (lambda: fw.nn.Conv(4, 8, (3, 3), padding="VALID", rngs=fw.Rngs(0)), jnp.ones((8, 8, 8, 4))),
        (
            lambda: Transformer(vocabulary_size=32, width=64, depth=2, heads=4, length=16, rngs=fw.Rngs(0)),
            jnp.ones((4, 16), jnp.int32),
        ),
    ],
)
def test_the_total_is_close_to_what_xla_counts(make: Any, x: Any) -> None:
    model = make()
    model.eval()
    expected = fw.jit(lambda model, x: model(x), donate=False).lower(model, x).cost_analysis()["flops"]
    assert costs(model, x)[""].forward.flops == pytest.approx(expected, rel=0.1)


def test_a_block_that_is_compiled_inside_is_counted_with_its_parts() -> None:
    model = Transformer(vocabulary_size=32, width=64, depth=2, heads=4, length=16, rngs=fw.Rngs(0))
    found = costs(model, jnp.ones((4, 16), jnp.int32))
    blocks = [path for path in found if found[path].name == "Block"]
    assert len(blocks) == 2
    inside = [path for path in found if path.startswith(f"{blocks[0]}.") and found[path].forward.flops > 0]
    assert len(inside) >= 4
    assert found[blocks[0]].forward.flops == found[blocks[1]].forward.flops


class Looping(fw.Module):
    weight: fw.Param

    def __init__(self) -> None:
        self.weight = jnp.ones((8, 8))

    def __call__(self, x: Any) -> Any:
        return fw.scan(lambda carry, _: (carry @ self.weight, None), x, None, length=5)[0]


def test_a_loop_counts_as_often_as_it_runs_and_nothing_runs() -> None:
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    assert costs(Looping(), shape)[""].forward.flops == 5 * 2 * 8**3
    model = fw.eval_shape(lambda: MLP(1000, [100_000], 10, rngs=fw.Rngs(0)))
    big = fw.summary(model, jax.ShapeDtypeStruct((64, 1000), jnp.float32))
    assert big.costs[0].forward.flops > 2 * 64 * 1000 * 100_000
    assert "FLOPs forward" in str(big) and "layers.0" in str(big)


def test_the_model_is_the_same_after_its_summary() -> None:
    model = ConvNet(channels=[8], num_classes=10, rngs=fw.Rngs(0))
    before, classes = model.clone(), [type(node) for node in descendants(model)]
    fw.summary(model, jnp.ones((2, 8, 8, 1)))
    assert fw.tree_equal(model, before)
    assert [type(node) for node in descendants(model)] == classes

"""Weight decay and other optimizers change parameters and nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw
from framework.errors import ModuleError


class Cache(fw.StateKind):
    """A kind of state of the user's own."""


class Net(fw.Module):
    used: fw.Param
    ignored: fw.Param
    table: fw.State
    steps: fw.State
    cache: Cache
    raw: jax.Array

    def __init__(self) -> None:
        rngs = fw.Rngs(0)
        self.used, self.ignored = jnp.ones(3), jnp.ones(3)
        self.table = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
        self.steps = jnp.int32(100)
        self.cache = jnp.ones(2)
        self.raw = jnp.ones(2)
        self.norm = fw.nn.BatchNorm(3)
        self.linear = fw.nn.Linear(3, 3, rngs=rngs, bias_init=jax.nn.initializers.ones)
        self.dropout = fw.nn.Dropout(0.5, rngs=rngs)
        self.layers = [fw.nn.LayerNorm(3), fw.nn.BatchNorm(3)]

    def __call__(self) -> jax.Array:
        return (self.used * jax.lax.stop_gradient(self.table[0])).sum()


OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda net: fw.Optimizer(optax.adamw, net, learning_rate=0.1, weight_decay=0.1),
    "lamb": lambda net: fw.Optimizer(optax.lamb, net, learning_rate=0.1, weight_decay=0.1),
    "lion": lambda net: fw.Optimizer(optax.lion, net, learning_rate=0.1, weight_decay=0.1),
    "a chain": lambda net: fw.Optimizer(optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)), net),
    "adamw with clipping": lambda net: fw.Optimizer(
        optax.adamw, net, learning_rate=0.1, weight_decay=0.1, clip_norm=1.0
    ),
}


@fw.jit
def step(optimizer: fw.Optimizer) -> None:
    optimizer.update(fw.grad(lambda net: net(), wrt=optimizer.wrt)(optimizer.model))


def contents(module: fw.Module, selector: Any) -> dict[str, bytes]:
    """Returns the bits of leaves, keys included."""
    return {
        path: np.asarray(
            jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        ).tobytes()
        for path, leaf in fw.select(module, selector).items()
    }


# https://github.com/extropic-ai/sparse-transformers/pull/3
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_after_ten_steps_every_leaf_that_is_no_parameter_has_the_bits_it_had(name: str) -> None:
    net = Net()
    optimizer = OPTIMIZERS[name](net)
    state, params = contents(net, fw.State), contents(net, fw.Param)
    assert len(state) == 10 and len(params) == 10
    for _ in range(10):
        step(optimizer)
    assert contents(net, fw.State) == state
    changed = {path for path, bits in contents(net, fw.Param).items() if bits != params[path]}
    # What is zero stays zero when it decays.
    assert changed >= {"used", "ignored", "linear.weight", "linear.bias", "norm.weight", "layers.0.weight"}


# https://github.com/google-deepmind/optax/issues/1007
def test_a_parameter_without_gradient_decays_as_computed_by_hand() -> None:
    net = Net()
    optimizer = OPTIMIZERS["adamw"](net)
    for _ in range(10):
        step(optimizer)
    np.testing.assert_allclose(net.ignored, [0.9043821] * 3, rtol=1e-6)
    np.testing.assert_allclose(net.ignored, [0.99**10] * 3, rtol=1e-6)


def decayed(params: Any) -> Any:
    return {path: path.endswith("weight") and not path.startswith(("norm", "layers")) for path in params}


# https://github.com/google-deepmind/optax/issues/25
@pytest.mark.parametrize("factory", [optax.adamw, optax.lion, optax.lamb])
def test_biases_and_scales_that_are_masked_by_path_do_not_decay_without_gradient(factory: Any) -> None:
    net = Net()
    before = contents(net, fw.Param)
    optimizer = fw.Optimizer(factory, net, learning_rate=0.1, weight_decay=0.1, mask=decayed)
    for _ in range(10):
        step(optimizer)
    after = contents(net, fw.Param)
    assert {path for path, bits in after.items() if bits != before[path]} == {"used", "linear.weight"}


# https://github.com/keras-team/keras/issues/6570
@pytest.mark.parametrize(
    ("wrt", "trained"),
    [
        (("used", "linear.*"), {"used", "linear.weight", "linear.bias"}),
        ("*weight", {"norm.weight", "linear.weight", "layers.0.weight", "layers.1.weight"}),
        (lambda path: path == "ignored", {"ignored"}),
    ],
)
def test_parameters_that_are_not_selected_are_untouched_and_cost_no_memory(wrt: Any, trained: set[str]) -> None:
    net = Net()
    before = contents(net, fw.Kind)
    optimizer = fw.Optimizer(optax.adamw, net, learning_rate=0.1, weight_decay=0.1, wrt=wrt)
    for _ in range(10):
        step(optimizer)
    after = contents(net, fw.Kind)
    assert {path for path, bits in after.items() if bits != before[path]} == trained
    assert len(optimizer.state) == 2 * len(trained) + 1  # two moments each, and one count


class WholeNumbers(fw.Module):
    table: fw.Param

    def __init__(self, dtype: Any) -> None:
        self.table = jnp.full(2, 1, dtype)


# https://github.com/google-deepmind/optax/issues/333
@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int8, jnp.uint8, jnp.bool_], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("factory", [optax.adam, optax.sgd])
def test_parameters_of_whole_numbers_are_refused_by_name(factory: Any, dtype: Any) -> None:
    module = WholeNumbers(dtype)
    with pytest.raises(ModuleError, match=r"cannot train table of WholeNumbers.*fw\.State"):
        fw.Optimizer(factory, module, learning_rate=0.1)
    assert module.table.tolist() == [1, 1]


# https://github.com/google-deepmind/optax/issues/333
def test_a_parameter_that_becomes_a_whole_number_later_is_refused_at_the_step() -> None:
    module = WholeNumbers(jnp.float32)
    optimizer = fw.Optimizer(optax.adam, module, learning_rate=0.1)
    module.table = jnp.full(2, 100, jnp.int32)
    with pytest.raises(ModuleError, match="cannot train table"):
        fw.jit(optimizer.update)({"table": jnp.ones(2)})
    assert module.table.tolist() == [100, 100]

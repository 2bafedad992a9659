"""What layers do beside the arithmetic: modes, random draws, numerics, dtypes, errors."""

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import ModuleError


def test_batch_norm_state_by_hand() -> None:
    norm = fw.nn.BatchNorm(1)
    for batch in ([1.0, 3.0], [2.0, 6.0]):
        norm(jnp.array(batch)[:, None])
    np.testing.assert_allclose(norm.mean, 0.58, rtol=1e-6)
    np.testing.assert_allclose(norm.variance, 1.30, rtol=1e-6)


@pytest.mark.parametrize("offset", [10.0, 100.0, 300.0, 1000.0])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("kind", ["batch", "layer"])
def test_norms_are_right_for_a_large_mean_and_a_small_spread(offset: float, dtype: Any, kind: str) -> None:
    x = jnp.asarray(offset + 0.01 * np.random.default_rng(0).normal(size=(64, 32)), dtype)
    exact = np.asarray(x.astype(jnp.float32), np.float64)
    norm = fw.nn.BatchNorm(32, momentum=0.0) if kind == "batch" else fw.nn.LayerNorm(32)
    y, gradient = fw.value_and_grad(lambda norm, x: jnp.square(norm(x).astype(jnp.float32)).sum())(norm, x)
    assert np.isfinite(float(y))
    assert all(jnp.isfinite(value).all() for value in gradient.values())
    if kind == "batch":
        assert (norm.variance >= 0).all()
        np.testing.assert_allclose(norm.variance, exact.var(axis=0), rtol=0.01, atol=1e-12)


def test_a_constant_input_gives_the_bias() -> None:
    norm = fw.nn.BatchNorm(2)
    norm.bias = jnp.array([1.0, 2.0])
    assert norm(jnp.full((4, 2), 1000.0)).tolist() == [[1.0, 2.0]] * 4


def test_masked_rows_do_not_count_in_batch_norm() -> None:
    whole, padded = fw.nn.BatchNorm(1, momentum=0.0), fw.nn.BatchNorm(1, momentum=0.0)
    whole(jnp.arange(1.0, 7.0)[:, None])
    padded(jnp.array([1.0, 2, 3, 4, 5, 6, 70, 80])[:, None], jnp.array([1, 1, 1, 1, 1, 1, 0, 0]))
    np.testing.assert_allclose(padded.mean, 3.5)
    np.testing.assert_allclose(padded.variance, whole.variance, rtol=1e-6)


def test_batch_norm_over_a_mapped_axis_is_that_of_all_rows() -> None:
    whole, mapped = fw.nn.BatchNorm(3), fw.nn.BatchNorm(3, axis_name="batch")
    x = jax.random.normal(jax.random.key(0), (8, 3))
    y = fw.vmap(mapped, axis_name="batch")(x.reshape(4, 2, 3))
    np.testing.assert_allclose(y.reshape(8, 3), whole(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mapped.variance, whole.variance, rtol=1e-5)


def test_dropout_draws_anew_at_each_call_and_alike_with_and_without_jit() -> None:
    x = jnp.ones((32, 32))
    eager, jitted = (fw.nn.Dropout(0.3, rngs=fw.Rngs(7)) for _ in range(2))
    step = fw.jit(jitted)
    first, second = [np.asarray(eager(x)) for _ in range(2)]
    assert (first != second).any()
    np.testing.assert_array_equal(step(x), first)
    np.testing.assert_array_equal(step(x), second)
    np.testing.assert_allclose(first[first > 0], 1 / 0.7, rtol=1e-6)
    assert abs((first == 0).mean() - 0.3) < 0.05


def test_dropout_in_evaluation_or_with_rate_zero_draws_nothing() -> None:
    x = jnp.ones(8)
    for dropout in (fw.nn.Dropout(0.5, rngs=fw.Rngs(0)), fw.nn.Dropout(0.0, rngs=fw.Rngs(0))):
        dropout.eval()
        count = dropout.stream.count
        assert dropout(x) is x
        assert dropout.stream.count is count
    assert fw.nn.Dropout(1.0, rngs=fw.Rngs(0))(x).tolist() == [0.0] * 8


def test_dropout_masks_are_the_same_forward_and_in_the_recomputation() -> None:
    x = jnp.linspace(1, 2, 64)
    plain, again = (fw.nn.Dropout(0.5, rngs=fw.Rngs(3)) for _ in range(2))
    expected = fw.grad(lambda x, d: (d(x) ** 2).sum())(x, plain)
    actual = fw.grad(lambda x, d: (fw.remat(d)(x) ** 2).sum())(x, again)
    np.testing.assert_array_equal(actual, expected)
    assert fw.tree_equal(plain, again)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_a_computation_dtype_is_that_of_the_output_and_params_keep_theirs(dtype: Any) -> None:
    layer = fw.nn.Linear(3, 2, dtype=dtype, rngs=fw.Rngs(0))
    assert layer(jnp.ones((4, 3))).dtype == dtype
    assert layer.weight.dtype == jnp.float32
    assert fw.nn.LayerNorm(3)(jnp.ones((4, 3), dtype)).dtype == dtype


LAYERS: dict[str, tuple[Any, Any]] = {
    "Linear": (lambda: fw.nn.Linear(4, 3, rngs=fw.Rngs(0)), jnp.ones((2, 4))),
    "Conv": (lambda: fw.nn.Conv(1, 3, (3, 3), rngs=fw.Rngs(0)), jnp.ones((2, 4, 4, 1))),
    "BatchNorm": (lambda: fw.nn.BatchNorm(4), jnp.arange(8.0).reshape(2, 4)),
    "LayerNorm": (lambda: fw.nn.LayerNorm(4), jnp.ones((2, 4))),
    "Dropout": (lambda: fw.nn.Dropout(0.5, rngs=fw.Rngs(0)), jnp.ones((2, 4))),
    "Embedding": (lambda: fw.nn.Embedding(5, 3, rngs=fw.Rngs(0)), jnp.array([0, 4])),
    "MultiHeadAttention": (lambda: fw.nn.MultiHeadAttention(4, 2, rngs=fw.Rngs(0)), jnp.ones((2, 3, 4))),
    "Sequential": (
        lambda: fw.nn.Sequential(fw.nn.Linear(4, 3, rngs=fw.Rngs(0)), jax.nn.relu, fw.nn.BatchNorm(3)),
        jnp.ones((2, 4)),
    ),
    "MLP": (lambda: fw.nn.models.MLP(4, [8], 3, dropout=0.5, rngs=fw.Rngs(0)), jnp.ones((2, 4))),
    "ConvNet": (lambda: fw.nn.models.ConvNet([4], 3, image_size=4, rngs=fw.Rngs(0)), jnp.ones((2, 4, 4, 1))),
    "Transformer": (
        lambda: fw.nn.models.Transformer(7, 8, 2, 2, 4, rngs=fw.Rngs(0)),
        jnp.zeros((2, 4), jnp.int32),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_the_same_eager_jitted_and_through_plain_jit(name: str) -> None:
    make, x = LAYERS[name]
    eager, lifted, plain = make(), make(), make()
    step = fw.jit(lambda layer, x: layer(x))
    through_jax = jax.jit(lambda layer, x: (layer(x), layer))
    for _ in range(2):
        expected = eager(x)
        np.testing.assert_allclose(step(lifted, x), expected, rtol=1e-5, atol=1e-5)
        y, plain = through_jax(plain, x)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    for path, leaf in fw.select(eager).items():
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(fw.select(lifted)[path], leaf, rtol=1e-5, atol=1e-6)
    assert len(step.traces) == 1


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_copies_pickles_and_is_rebuilt_with_equal_structure(name: str) -> None:
    layer = LAYERS[name][0]()
    for other in (layer.clone(), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), LAYERS[name][0]()):
        assert fw.tree_equal(other, layer)
        assert jax.tree.structure(other) == jax.tree.structure(layer)


@pytest.mark.parametrize("name", LAYERS)
def test_no_layer_writes_in_evaluation(name: str) -> None:
    make, x = LAYERS[name]
    layer = make()
    layer.eval()
    before = fw.select(layer)
    layer(x)
    assert all(leaf is before[path] for path, leaf in fw.select(layer).items())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fw.nn.Linear(4, 3, rngs=fw.Rngs(0))(jnp.ones((2, 5))), r"Linear was made for .* 4 .*float32\[2, 5\]"),
        (lambda: fw.nn.Conv(1, 3, (3, 3), rngs=fw.Rngs(0))(jnp.ones((4, 4, 1))), r"Conv with kernel_size.*x\[None\]"),
        (lambda: fw.nn.Conv(3, 4, (3,), groups=2, rngs=fw.Rngs(0)), r"Conv cannot split 3 input.*groups=2"),
        (lambda: fw.nn.Conv(3, 4, (1, 1, 1, 1), rngs=fw.Rngs(0)), r"Conv was given kernel_size"),
        (lambda: fw.nn.Conv(3, 4, (3,), strides=(1, 2), rngs=fw.Rngs(0)), r"strides=\(1, 2\) for 1 axes"),
        (lambda: fw.nn.MultiHeadAttention(5, 2, rngs=fw.Rngs(0)), r"cannot split 5 features into 2 heads"),
        (lambda: fw.nn.Dropout(1.5, rngs=fw.Rngs(0)), r"Dropout was given rate=1.5"),
        (lambda: fw.nn.models.ConvNet([1, 1, 1, 1], 3, rngs=fw.Rngs(0)), r"ConvNet halves the image"),
        (
            lambda: fw.nn.models.Transformer(7, 4, 1, 1, 3, rngs=fw.Rngs(0))(jnp.zeros((1, 4), jnp.int32)),
            r"made for 3 tokens in a row.*length=4",
        ),
    ],
)
def test_wrong_sizes_are_refused_with_the_remedy(call: Any, text: str) -> None:
    with pytest.raises(ModuleError, match=text):
        call()


def test_the_transformer_is_causal() -> None:
    model = fw.nn.models.Transformer(7, 8, 2, 2, 6, rngs=fw.Rngs(0))
    tokens = jnp.array([[1, 2, 3, 4, 5, 6]])
    changed = tokens.at[0, 4].set(0)
    np.testing.assert_allclose(model(tokens)[0, :4], model(changed)[0, :4], rtol=1e-6)
    assert not np.allclose(model(tokens)[0, 4:], model(changed)[0, 4:])

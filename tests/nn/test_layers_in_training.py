"""What layers do in training: state under differentiation, masks and padding, loops, draws, names in the program."""

import subprocess
import sys
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import ModuleError


class Net(fw.Module):
    def __init__(self) -> None:
        rngs = fw.Rngs(0)
        self.layers = [fw.nn.Linear(4, 6, rngs=rngs), fw.nn.BatchNorm(6), fw.nn.Dropout(0.5, rngs=rngs)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return x


def loss(net: Net, x: jax.Array) -> jax.Array:
    return (net(x) ** 2).sum()


@pytest.mark.parametrize("outer", [lambda f: f, fw.jit])
def test_state_written_under_differentiation_comes_out_and_is_that_of_a_plain_call(outer: Any) -> None:
    x = jax.random.normal(jax.random.key(0), (8, 4))
    plain, differentiated = Net(), Net()
    step = outer(lambda net, x: fw.value_and_grad(loss)(net, x))
    for count in (1, 2):
        expected = loss(plain, x)
        value, gradient = step(differentiated, x)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        assert int(differentiated.layers[2].stream.count) == count
    assert sorted(gradient) == ["layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight"]
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(differentiated.layers[1], name), getattr(plain.layers[1], name), rtol=1e-5)
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(differentiated))


def test_four_steps_by_scan_are_those_of_the_loop() -> None:
    xs = jax.random.normal(jax.random.key(0), (4, 8, 4))
    loop, scan = Net(), Net()
    expected = [loop(x) for x in xs]
    _, ys = fw.scan(lambda net, x: (net, net(x)), scan, xs)
    np.testing.assert_allclose(ys, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scan.layers[1].variance, loop.layers[1].variance, rtol=1e-5)
    assert int(scan.layers[2].stream.count) == 4


def test_masked_batch_norm_equals_flax_in_output_gradient_and_state() -> None:
    x, mask = jax.random.normal(jax.random.key(0), (3, 5, 4)), jnp.array([1, 1, 0])
    layer, other = fw.nn.BatchNorm(4), linen.BatchNorm(momentum=0.9, epsilon=1e-5, use_fast_variance=False)
    layer.weight, layer.bias = jnp.arange(1.0, 5.0), jnp.arange(4.0)
    variables: Any = {"batch_stats": {"mean": layer.mean, "var": layer.variance}}

    def by_flax(params: Any) -> Any:
        spread = jnp.broadcast_to(mask[:, None, None] > 0, x.shape)
        y, changed = other.apply(
            {"params": params, **variables}, x, use_running_average=False, mask=spread, mutable=["batch_stats"]
        )
        return (y**3).sum(), changed["batch_stats"]

    theirs, stats = jax.grad(by_flax, has_aux=True)({"scale": layer.weight, "bias": layer.bias})
    ours = fw.grad(lambda layer, x, mask: (layer(x, mask) ** 3).sum())(layer, x, mask)
    np.testing.assert_allclose(ours["weight"], theirs["scale"], rtol=1e-4)
    np.testing.assert_allclose(ours["bias"], theirs["bias"], rtol=1e-4)
    np.testing.assert_allclose(layer.mean, stats["mean"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.variance, stats["var"], rtol=1e-5)


def test_padding_of_nan_reaches_neither_statistics_nor_gradients() -> None:
    x, mask = jnp.array([[1.0], [3.0], [jnp.nan]]), jnp.array([1.0, 1.0, 0.0])
    padded, short = fw.nn.BatchNorm(1), fw.nn.BatchNorm(1)

    def masked(norm: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        return (jnp.where(mask[:, None] > 0, norm(x, mask), 0) ** 3 + 0.0).sum()

    actual = fw.grad(masked)(padded, x, mask)
    expected = fw.grad(lambda norm, x: (norm(x) ** 3).sum())(short, x[:2])
    for name in ("weight", "bias"):
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-5)
    assert padded.mean == short.mean and padded.variance == short.variance


def test_a_batch_of_padding_alone_leaves_the_statistics() -> None:
    norm = fw.nn.BatchNorm(2)
    norm(jnp.arange(8.0).reshape(4, 2))
    mean, variance = norm.mean.tolist(), norm.variance.tolist()
    assert jnp.isfinite(norm(jnp.ones((3, 2)), jnp.zeros(3))).all()
    assert norm.mean.tolist() == mean and norm.variance.tolist() == variance


def test_norms_use_initialisers_and_draw_only_if_streams_are_given() -> None:
    rngs = fw.Rngs(0)
    for layer in (fw.nn.BatchNorm, fw.nn.LayerNorm):
        assert layer(3, weight_init=jax.nn.initializers.zeros).weight.tolist() == [0.0] * 3
        random = layer(3, weight_init=jax.nn.initializers.uniform(), rngs=rngs)
        assert len(set(random.weight.tolist())) == 3


def test_dropout_equals_flax_with_the_same_key() -> None:
    x, rngs = jnp.linspace(-1, 1, 64).reshape(8, 8), fw.Rngs(3)
    layer = fw.nn.Dropout(0.3, rngs=rngs)
    key = jax.random.fold_in(layer.stream.key, 0)
    expected = linen.Dropout(0.3, deterministic=False).apply({}, x, rng=key)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-6)


@pytest.mark.parametrize("padding", [1, (1, 2), ((1, 0), (2, 2)), "valid"])
def test_every_form_of_padding_equals_flax(padding: Any) -> None:
    layer, x = fw.nn.Conv(2, 3, (3, 3), padding=padding, rngs=fw.Rngs(0)), jnp.ones((2, 6, 5, 2))
    pads = padding.upper() if isinstance(padding, str) else padding
    expected = linen.Conv(3, (3, 3), padding=pads).apply({"params": {"kernel": layer.weight, "bias": layer.bias}}, x)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-6)


def test_indices_out_of_range_give_nan_and_finite_gradients_where_they_are_masked() -> None:
    layer = fw.nn.Embedding(4, 2, rngs=fw.Rngs(0))
    indices = jnp.array([0, 4, -1])
    assert jnp.isnan(layer(indices)).all(axis=1).tolist() == [False, True, True]
    gradient = fw.grad(lambda layer, i: jnp.where((i >= 0) & (i < 4), layer(i).sum(-1), 0).sum())(layer, indices)
    assert gradient["weight"].tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_attention_without_a_batch_and_with_small_masks_is_that_with_one() -> None:
    layer, x = fw.nn.MultiHeadAttention(8, 2, rngs=fw.Rngs(0)), jax.random.normal(jax.random.key(0), (3, 5, 8))
    mask = jnp.tril(jnp.ones((5, 5), bool))
    whole = layer(x, mask=mask)
    np.testing.assert_allclose(layer(x[0], mask=mask), whole[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole, layer(x, mask=jnp.broadcast_to(mask, (3, 2, 5, 5))), rtol=1e-6)
    causal = fw.nn.MultiHeadAttention(8, 2, causal=True, rngs=fw.Rngs(0))
    np.testing.assert_allclose(causal(x), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_every_layer_computes_in_its_dtype_with_parameters_in_theirs(dtype: Any) -> None:
    options: dict[str, Any] = {"dtype": dtype, "param_dtype": jnp.float32, "rngs": fw.Rngs(0)}
    for layer, x in [
        (fw.nn.Linear(4, 3, **options), jnp.ones((2, 4))),
        (fw.nn.Conv(4, 3, (3,), **options), jnp.ones((2, 5, 4))),
        (fw.nn.BatchNorm(4, **options), jnp.ones((2, 4))),
        (fw.nn.LayerNorm(4, **options), jnp.ones((2, 4))),
        (fw.nn.Embedding(4, 3, **options), jnp.array([0, 3])),
        (fw.nn.MultiHeadAttention(4, 2, **options), jnp.ones((2, 3, 4))),
    ]:
        assert layer(x).dtype == dtype
        assert all(leaf.dtype == jnp.float32 for leaf in fw.select(layer, fw.Param).values())


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: fw.nn.Linear(4, 3, rngs=fw.Rngs(0)), jnp.ones((2, 4))),
        (lambda: fw.nn.Conv(4, 3, (3,), rngs=fw.Rngs(0)), jnp.ones((2, 5, 4))),
        (lambda: fw.nn.BatchNorm(4), jnp.ones((2, 4))),
        (lambda: fw.nn.LayerNorm(4), jnp.ones((2, 4))),
        (lambda: fw.nn.Dropout(0.5, rngs=fw.Rngs(0)), jnp.ones((2, 4))),
        (lambda: fw.nn.Embedding(4, 3, rngs=fw.Rngs(0)), jnp.array([0, 3])),
        (lambda: fw.nn.MultiHeadAttention(4, 2, rngs=fw.Rngs(0)), jnp.ones((2, 3, 4))),
    ],
)
def test_the_name_of_the_layer_is_in_the_program(make: Any, x: jax.Array) -> None:
    layer = make()
    text = jax.jit(lambda layer, x: (layer(x), layer)).lower(layer, x).as_text(debug_info=True)
    assert type(layer).__name__ in text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda r: fw.nn.Conv(1, 2, (3, 3), rngs=r)(jnp.ones((2, 4, 4, 3))), r"Conv .* 1 in the last.*\[2, 4, 4, 3\]"),
        (lambda r: fw.nn.Conv(1, 2, (), rngs=r), r"kernel_size=\(\), and needs.*`kernel_size=\(3, 3\)` for images"),
        (
            lambda r: fw.nn.Conv(1, 2, (3,), padding="WRAP", rngs=r),
            r"padding='WRAP' for 1 axes.*`padding=\(\(1, 1\),\)`",
        ),
        (lambda r: fw.nn.Conv(1, 2, (3,), padding=(1, 2), rngs=r), r"padding=\(1, 2\) for 1 axes"),
        (lambda r: fw.nn.BatchNorm(4)(jnp.ones((2, 5))), r"BatchNorm .* 4 in the last axis.*float32\[2, 5\]"),
        (
            lambda r: fw.nn.BatchNorm(1)(jnp.ones((4, 1)), jnp.ones(3)),
            r"BatchNorm .*\[4, 1\].*float32\[3\].*shape \[4\]",
        ),
        (lambda r: fw.nn.LayerNorm(4)(jnp.ones((2, 5))), r"LayerNorm .* 4 in the last axis.*float32\[2, 5\]"),
        (lambda r: fw.nn.Embedding(4, 3, rngs=r).attend(jnp.ones((2, 5))), r"Embedding .* 3 in the last axis"),
        (lambda r: fw.nn.MultiHeadAttention(4, 2, rngs=r)(jnp.ones((2, 3, 5))), r"MultiHeadAttention .* 4 in the last"),
        (
            lambda r: fw.nn.MultiHeadAttention(4, 2, rngs=r)(jnp.ones((2, 3, 4)), mask=jnp.ones((2, 3), bool)),
            r"mask bool\[2, 3\], which does not broadcast to \[2, 2, 3, 3\].*`mask\[:, None, None, :\]`",
        ),
        (
            lambda r: fw.nn.models.MLP(4, [3], 2, rngs=r)(jnp.ones((2, 5))),
            r"in_features=4.*float32\[2, 5\].*`MLP\(5, ...\)`",
        ),
        (
            lambda r: fw.nn.models.ConvNet([4], 3, image_size=4, rngs=r)(jnp.ones((2, 6, 6, 1))),
            r"images of shape \[4, 4, 1\].*float32\[2, 6, 6, 1\]",
        ),
    ],
)
def test_wrong_shapes_name_the_layer_what_it_expects_and_what_it_got(call: Any, text: str) -> None:
    with pytest.raises(ModuleError, match=text):
        call(fw.Rngs(0))


def test_arguments_of_a_wrong_type_are_explained_without_a_type_checker() -> None:
    # In another process: in this one, the type checks of the tests come before those of the layers.
    program = """
import framework as fw
for call in (lambda: fw.nn.Conv(1, 2, 3, rngs=fw.Rngs(0)), lambda: fw.nn.Sequential([fw.nn.LayerNorm(4)])):
    try:
        call()
    except fw.errors.ModuleError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert "kernel_size=3, and needs one number for each" in first and "`kernel_size=(3, 3)` for images" in first
    assert "list as layer 0" in second and "`Sequential(*layers)`" in second

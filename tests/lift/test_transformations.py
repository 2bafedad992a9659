"""Loops, branches, vmap, remat and derivatives keep what a function changes on its objects."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError


class Recurrent(fw.Module):
    """Writes a state, counts its calls, reads a parameter."""

    weight: fw.Param
    mean: fw.State
    calls: fw.State
    scale: float = 1.0

    def __init__(self) -> None:
        self.weight = jnp.array([1.0, 2.0, 3.0])
        self.mean = jnp.zeros(3)
        self.calls = jnp.zeros((), jnp.int32)

    def __call__(self, x: jax.Array) -> jax.Array:
        self.calls = self.calls + 1
        self.mean = 0.9 * self.mean + 0.1 * x
        return self.scale * (self.weight * x * self.mean).sum()


XS = jnp.arange(12.0).reshape(4, 3)


def by_loop(model: Recurrent, xs: jax.Array) -> jax.Array:
    return jnp.stack([model(x) for x in xs])


def by_scan(model: Recurrent, xs: jax.Array) -> jax.Array:
    return fw.scan(lambda model, x: (model, model(x)), model, xs)[1]


def by_scan_remat(model: Recurrent, xs: jax.Array) -> jax.Array:
    return fw.scan(lambda model, x: (model, fw.remat(model)(x)), model, xs)[1]


def by_scan_jit(model: Recurrent, xs: jax.Array) -> jax.Array:
    return fw.scan(lambda model, x: (model, fw.jit(Recurrent.__call__)(model, x)), model, xs)[1]


def by_fori(model: Recurrent, xs: jax.Array) -> jax.Array:
    def body(i: Any, carry: Any) -> Any:
        model, ys = carry
        return model, ys.at[i].set(model(xs[i]))

    return fw.fori_loop(0, len(xs), body, (model, jnp.zeros(len(xs))))[1]


def close(first: Recurrent, second: Recurrent) -> None:
    assert int(first.calls) == int(second.calls)
    np.testing.assert_allclose(first.mean, second.mean, rtol=1e-6)
    np.testing.assert_allclose(first.weight, second.weight, rtol=1e-6)


@pytest.mark.parametrize("way", [by_scan, by_scan_remat, by_scan_jit, by_fori])
@pytest.mark.parametrize("outer", [lambda f: f, fw.jit])
def test_a_compiled_loop_equals_the_python_loop_in_outputs_state_and_gradient(way: Any, outer: Any) -> None:
    expected, actual = Recurrent(), Recurrent()
    np.testing.assert_allclose(outer(way)(actual, XS), by_loop(expected, XS), rtol=1e-6)
    close(actual, expected)

    def gradient(way: Callable[..., Any], model: Recurrent) -> Any:
        return outer(lambda model, xs: fw.grad(lambda model, xs: way(model, xs).sum())(model, xs))(model, XS)

    np.testing.assert_allclose(gradient(way, actual)["weight"], gradient(by_loop, expected)["weight"], rtol=1e-6)
    close(actual, expected)


def test_while_loop_equals_the_python_loop() -> None:
    expected, actual = Recurrent(), Recurrent()
    while expected.calls < 3:
        expected(XS[1])

    def body(model: Recurrent) -> Recurrent:
        model(XS[1])
        return model

    assert fw.while_loop(lambda model: model.calls < 3, body, actual) is actual
    close(actual, expected)


def test_scan_carries_arrays_beside_objects_and_returns_the_callers_objects() -> None:
    model = Recurrent()

    def body(carry: Any, x: jax.Array) -> Any:
        model, total = carry
        return (model, total + model(x)), {"x": x.sum()}

    (returned, total), ys = fw.scan(body, (model, 0.0), XS)
    assert returned is model
    assert float(total) == pytest.approx(float(by_loop(Recurrent(), XS).sum()), rel=1e-6)
    assert ys["x"].tolist() == XS.sum(axis=1).tolist()


def test_stacked_modules_are_one_object_per_iteration() -> None:
    stacked, singles = Recurrent(), [Recurrent() for _ in range(4)]
    stacked.weight, stacked.mean = jnp.tile(stacked.weight, (4, 1)), jnp.zeros((4, 3))
    stacked.calls = jnp.zeros(4, jnp.int32)
    _, ys = fw.scan(lambda carry, inputs: (carry, inputs[0](inputs[1])), None, (stacked, XS))
    np.testing.assert_allclose(ys, [model(x) for model, x in zip(singles, XS, strict=True)], rtol=1e-6)
    assert stacked.calls.tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(stacked.mean, jnp.stack([model.mean for model in singles]), rtol=1e-6)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("outer", [lambda f: f, fw.jit])
def test_cond_changes_what_the_chosen_branch_changes(condition: bool, outer: Any) -> None:
    def run(model: Recurrent, condition: Any) -> Any:
        return fw.cond(condition, lambda model: model(XS[1]), lambda model: model.weight.sum(), model)

    expected, actual = Recurrent(), Recurrent()
    result = expected(XS[1]) if condition else expected.weight.sum()
    assert outer(run)(actual, jnp.asarray(condition)) == result
    close(actual, expected)


def test_cond_keeps_a_hyperparameter_that_both_branches_change() -> None:
    model = Recurrent()

    def double(model: Recurrent) -> None:
        model.scale = 2.0

    def double_and_call(model: Recurrent) -> None:
        model.scale = 2.0
        model(XS[1])

    fw.cond(True, double_and_call, double, model)
    assert model.scale == 2.0
    assert int(model.calls) == 1


@pytest.mark.parametrize("index", [0, 1, 2])
def test_switch_runs_the_branch_of_the_index(index: int) -> None:
    model = Recurrent()
    branches = [lambda model, k=k: setattr(model, "mean", model.mean + k) for k in range(3)]
    fw.switch(index, branches, model)
    assert model.mean.tolist() == [index] * 3


def test_vmap_over_inputs_equals_the_loop_and_may_count_once() -> None:
    class Reader(fw.Module):
        weight: fw.Param
        calls: fw.State

        def __init__(self) -> None:
            self.weight = jnp.ones(3)
            self.calls = 0

        def __call__(self, x: jax.Array) -> jax.Array:
            self.calls = self.calls + 1
            return (self.weight * x).sum()

    model = Reader()
    assert fw.vmap(model)(XS).tolist() == XS.sum(axis=1).tolist()
    assert int(model.calls) == 1


def test_vmap_over_stacked_objects_and_with_a_declared_axis() -> None:
    model = Recurrent()
    model.mean = jnp.zeros((4, 3))
    ys = fw.vmap(lambda model, x: model(x), (None, 0), axes={"mean": 0})(model, XS)
    singles = [Recurrent() for _ in range(4)]
    np.testing.assert_allclose(ys, [single(x) for single, x in zip(singles, XS, strict=True)], rtol=1e-6)
    np.testing.assert_allclose(model.mean, jnp.stack([single.mean for single in singles]), rtol=1e-6)
    assert int(model.calls) == 1


def test_vmap_gives_each_element_draws_of_its_own_and_scan_those_of_the_loop() -> None:
    rngs = fw.Rngs(0)
    rngs.stream("noise")  # a stream is an object, which a loop or vmap cannot make
    draws = fw.vmap(lambda x, rngs: jax.random.normal(rngs.noise()), (0, None))(jnp.arange(8), rngs)
    assert len(set(draws.tolist())) == 8
    again = fw.vmap(lambda x, rngs: jax.random.normal(rngs.noise()), (0, None))(jnp.arange(8), rngs)
    assert not set(draws.tolist()) & set(again.tolist())
    first, second = fw.Rngs(1), fw.Rngs(1)
    first.noise(), second.noise()
    eager = [float(jax.random.normal(first.noise())) for _ in range(5)]
    _, scanned = fw.scan(lambda rngs, _: (rngs, jax.random.normal(rngs.noise())), second, None, length=5)
    assert scanned.tolist() == eager
    assert fw.tree_equal(first, second)


def change_structure(model: Recurrent, *_: Any) -> Recurrent:
    model.scale = 3.0
    return model


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("scan", lambda model: fw.scan(lambda m, x: (change_structure(m), x), model, XS)),
        ("fori_loop", lambda model: fw.fori_loop(0, 2, lambda i, m: change_structure(m), model)),
        ("while_loop", lambda model: fw.while_loop(lambda m: m.calls < 1, change_structure, model)),
        ("cond", lambda model: fw.cond(True, change_structure, lambda m: m, model)),
    ],
)
def test_a_structure_that_cannot_come_out_is_refused_by_name_and_nothing_changes(name: str, call: Any) -> None:
    model, expected = Recurrent(), Recurrent()
    with pytest.raises(LiftError, match=rf"fw\.{name}: .*Recurrent\.scale: 1\.0 -> 3\.0.*"):
        call(model)
    assert fw.tree_equal(model, expected)


def test_vmap_refuses_state_that_differs_between_elements_and_names_it() -> None:
    with pytest.raises(
        LiftError, match=r"Recurrent\.mean was written with a value that is another one.*axes=\{'mean': 0\}"
    ):
        fw.vmap(Recurrent())(XS)


def test_a_loop_refuses_another_dtype_or_shape_and_names_the_leaf() -> None:
    def body(model: Recurrent, x: jax.Array) -> Any:
        model.mean = model.mean.astype(jnp.float16)
        return model, None

    with pytest.raises(LiftError, match=r"Recurrent\.mean became float16\[3\], and it was float32\[3\]"):
        fw.scan(body, Recurrent(), XS)


def test_a_loop_refuses_another_carry() -> None:
    with pytest.raises(LiftError, match="another object in the carry"):
        fw.scan(lambda model, x: (Recurrent(), x), Recurrent(), XS)
    with pytest.raises(LiftError, match="carry of another structure"):
        fw.scan(lambda model, x: ((model, x), x), Recurrent(), XS)


def test_a_condition_may_not_change_objects() -> None:
    with pytest.raises(LiftError, match=r"the condition changed Recurrent\.calls, Recurrent\.mean|Recurrent\.mean"):
        fw.while_loop(lambda model: model(XS[0]) > 0, lambda model: model, Recurrent())


def test_an_object_of_the_enclosing_call_may_be_read_in_a_body_and_not_written() -> None:
    model = Recurrent()

    @fw.jit
    def read(model: Recurrent, xs: jax.Array) -> jax.Array:
        return fw.scan(lambda carry, x: (carry + (model.weight * x).sum(), None), 0.0, xs)[0]

    assert float(read(model, XS)) == pytest.approx(float((model.weight * XS).sum()))

    @fw.jit
    def write(model: Recurrent, xs: jax.Array) -> jax.Array:
        return fw.scan(lambda carry, x: (carry + model(x), None), 0.0, xs)[0]

    with pytest.raises(LiftError, match=r"Recurrent\.calls was changed inside a traced function"):
        write(model, XS)
    assert int(model.calls) == 0


def test_jacobians_and_hessian_equal_those_of_jax_by_hand() -> None:
    model, x = Recurrent(), XS[1]

    def by_hand(weight: jax.Array) -> jax.Array:
        return jnp.tanh(weight * x)

    def lifted(model: Recurrent) -> jax.Array:
        model.calls = model.calls + 1
        return jnp.tanh(model.weight * x)

    expected = jax.jacrev(by_hand)(model.weight)
    np.testing.assert_allclose(fw.jacfwd(lifted)(model)["weight"], expected, rtol=1e-6)
    np.testing.assert_allclose(fw.jacrev(lifted)(model)["weight"], expected, rtol=1e-6)
    second = jax.hessian(lambda w: by_hand(w).sum())(model.weight)
    found = fw.hessian(lambda model: lifted(model).sum())(model)["weight"]["weight"]
    np.testing.assert_allclose(found, second, rtol=1e-5)
    assert int(model.calls) == 3


def test_jvp_and_vjp_equal_those_of_jax_by_hand_and_keep_state() -> None:
    model, x = Recurrent(), XS[1]

    def lifted(model: Recurrent, x: jax.Array) -> jax.Array:
        model.calls = model.calls + 1
        return jnp.tanh(model.weight * x)

    tangents = jnp.array([1.0, 0.0, 2.0]), jnp.array([0.0, 1.0, 1.0])
    expected = jax.jvp(lambda w, x: jnp.tanh(w * x), (model.weight, x), tangents)
    actual = fw.jvp(lifted, (model, x), ({"weight": tangents[0]}, tangents[1]))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    value, pull_back = fw.vjp(lifted, model, x)
    _, by_hand = jax.vjp(lambda w, x: jnp.tanh(w * x), model.weight, x)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)
    by_model, by_x = pull_back(jnp.ones(3))
    np.testing.assert_allclose(by_model["weight"], by_hand(jnp.ones(3))[0], rtol=1e-6)
    np.testing.assert_allclose(by_x, by_hand(jnp.ones(3))[1], rtol=1e-6)
    assert int(model.calls) == 2


def test_a_leaf_of_another_type_in_one_branch_is_refused_by_name() -> None:
    def narrow(model: Any) -> None:
        model.calls = model.calls.astype(jnp.int8)

    with pytest.raises(
        LiftError, match=r"fw.cond: Recurrent.calls is int32\[\] in branch 0, int8\[\] in branch 1 afterwards"
    ):
        fw.cond(True, narrow, lambda model: None, Recurrent())

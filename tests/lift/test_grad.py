"""`grad` and `value_and_grad` against `jax.grad` of hand-written functions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError

X = jnp.arange(6.0).reshape(3, 2)


class Model(fw.Module):
    weight: fw.Param
    bias: fw.Param
    calls: fw.State

    def __init__(self) -> None:
        self.weight, self.bias, self.calls = jnp.array([1.0, -2.0]), jnp.array(0.5), jnp.zeros((), jnp.int32)

    def __call__(self, x: Any) -> Any:
        self.calls = self.calls + 1
        return jnp.tanh(x @ self.weight + self.bias)

    def loss(self, x: Any, scale: Any = 1.0) -> Any:
        return (self(x) ** 2).sum() * scale


def by_hand(weight: Any, bias: Any, x: Any = X, scale: Any = 1.0) -> Any:
    return (jnp.tanh(x @ weight + bias) ** 2).sum() * scale


@pytest.mark.parametrize("outer", [lambda f: f, fw.jit, lambda f: fw.jit(f, nested="inline")])
@pytest.mark.parametrize("inner", [lambda f: f, fw.jit])
def test_a_gradient_is_that_of_plain_jax_and_state_comes_out(outer: Any, inner: Any) -> None:
    model = Model()
    loss = inner(lambda model, x: model.loss(x))
    value, gradient = outer(fw.value_and_grad(loss))(model, X)
    expected = jax.grad(by_hand, (0, 1))(model.weight, model.bias)
    np.testing.assert_allclose(value, by_hand(model.weight, model.bias), rtol=1e-6, atol=1e-7)
    assert gradient.keys() == {"weight", "bias"}
    np.testing.assert_allclose(gradient["weight"], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient["bias"], expected[1], rtol=1e-5, atol=1e-6)
    assert int(model.calls) == 1


def test_argnums_choose_arguments_and_those_of_a_method_are_counted_without_its_object() -> None:
    model = Model()
    weight, bias = model.weight, model.bias

    def loss(model: Model, x: Any, scale: Any) -> Any:
        return model.loss(x, scale)

    expected = jax.grad(by_hand, (0, 1, 2, 3))(weight, bias, X, 2.0)
    np.testing.assert_allclose(fw.grad(loss, 1)(model, X, 2.0), expected[2], rtol=1e-5, atol=1e-6)
    first, third = fw.grad(loss, (0, 2))(model, X, 2.0)
    np.testing.assert_allclose(first["weight"], expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(third, expected[3], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fw.grad(model.loss)(X, 2.0), expected[2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fw.grad(model.loss, argnums=1)(X, 2.0), expected[3], rtol=1e-5, atol=1e-6)
    nested = fw.grad(lambda data: by_hand(weight, bias, data["x"], data["s"]))({"x": X, "s": 2.0})
    np.testing.assert_allclose(nested["x"], expected[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("wrt", "names"),
    [
        (fw.Param, ["weight", "bias"]),
        ("weight", ["weight"]),
        ("*", None),
        (("bias", "weight"), ["weight", "bias"]),
        (lambda path: path.startswith("b"), ["bias"]),
    ],
)
def test_wrt_chooses_leaves(wrt: Any, names: list[str] | None) -> None:
    model = Model()
    if names is None:
        with pytest.raises(TypeError, match="int32"):
            fw.grad(Model.loss, wrt=wrt)(model, X)
        return
    assert sorted(fw.grad(Model.loss, wrt=wrt)(model, X)) == sorted(names)


def test_more_results_are_returned_beside_the_loss() -> None:
    def loss(model: Model, x: Any) -> Any:
        return model.loss(x), {"model": model, "x": x * 2, "text": "text"}

    model = Model()
    (value, more), gradient = fw.value_and_grad(loss, has_aux=True)(model, X)
    assert more["model"] is model and more["text"] == "text" and gradient.keys() == {"weight", "bias"}
    np.testing.assert_array_equal(more["x"], X * 2)
    gradient, more = fw.grad(loss, has_aux=True)(model, X)
    assert more["model"] is model and int(model.calls) == 2
    np.testing.assert_allclose(value, by_hand(model.weight, model.bias), rtol=1e-6, atol=1e-7)


def test_a_shared_leaf_has_one_gradient_under_its_first_path() -> None:
    class Twice(fw.Module):
        def __init__(self) -> None:
            self.a = Model()
            self.b = [self.a]

    twice = Twice()
    gradient = fw.grad(lambda m: m.a.loss(X) + m.b[0].loss(X))(twice)
    assert gradient.keys() == {"a.weight", "a.bias"}
    expected = jax.grad(by_hand)(twice.a.weight, twice.a.bias)
    np.testing.assert_allclose(gradient["a.weight"], 2 * expected, rtol=1e-5, atol=1e-6)


def test_second_derivatives_and_gradients_of_gradients() -> None:
    model = Model()

    def penalty(model: Model) -> Any:
        gradient = fw.grad(Model.loss)(model, X)
        return sum((leaf**2).sum() for leaf in gradient.values())

    def penalty_by_hand(weight: Any, bias: Any) -> Any:
        gradient = jax.grad(by_hand, (0, 1))(weight, bias)
        return sum((leaf**2).sum() for leaf in gradient)

    expected = jax.grad(penalty_by_hand, (0, 1))(model.weight, model.bias)
    for transform in (lambda f: f, fw.jit):
        found = transform(fw.grad(penalty))(model)
        np.testing.assert_allclose(found["weight"], expected[0], rtol=1e-4)
        np.testing.assert_allclose(found["bias"], expected[1], rtol=1e-4)
    assert int(model.calls) == 2


def test_wrong_use_is_told() -> None:
    model = Model()
    with pytest.raises(
        LiftError, match=r"returned an array of shape \(3,\), and only a scalar has a gradient.*`loss.mean"
    ):
        fw.grad(lambda model: model(X))(model)
    with pytest.raises(
        LiftError, match=r"no leaf of argument 0 is selected by wrt='head.*'. Its leaves are: bias, calls, we"
    ):
        fw.grad(Model.loss, wrt="head.*")(model, X)
    with pytest.raises(LiftError, match=r"there is no positional argument 2 to differentiate: .* called with 2"):
        fw.grad(Model.loss, argnums=2)(model, X)
    with pytest.raises(LiftError, match=r"argument 1 holds values that are neither arrays nor modules"):
        fw.grad(lambda model, text: model.loss(X), argnums=1)(model, "text")
    assert int(model.calls) == 0

"""Promise 2: an object is passed or untouched. What is reached by closure can be neither changed nor frozen."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import framework as fw
from framework.errors import LiftError


class Model(fw.Module):
    weight: fw.Param
    total: fw.State
    bag: list[fw.State]
    book: dict[str, fw.State]
    name: str = "a"

    def __init__(self) -> None:
        self.weight, self.total = jnp.ones(3), jnp.zeros(3)
        self.bag, self.book = [jnp.ones(2)], {"a": jnp.ones(2)}
        self.child = fw.nn.BatchNorm(3)
        self.parts = [fw.nn.Linear(3, 3, rngs=fw.Rngs(0))]

    def read(self, x: Any) -> Any:
        return x * self.weight

    def write(self, x: Any) -> Any:
        self.total = self.total + x
        return x


class Holder:
    """Not a module: a trainer, a namespace, a global."""

    def __init__(self, model: Model) -> None:
        self.model = model


CHANGES: dict[str, tuple[Callable[[Model, Any], Any], str]] = {
    "an array": (lambda model, x: model.write(x), "Model.total"),
    "a hyperparameter": (lambda model, x: setattr(model, "name", "b"), "Model.name"),
    "a new attribute": (lambda model, x: setattr(model, "other", 1), "Model.other"),
    "a removed attribute": (lambda model, x: delattr(model, "total"), "Model.total"),
    "an item of a list": (lambda model, x: model.bag.__setitem__(0, x[:2]), "List"),
    "the length of a list": (lambda model, x: model.parts.append(1), "List"),
    "an item of a dict": (lambda model, x: model.book.__setitem__("a", x[:2]), "Dict"),
    "the keys of a dict": (lambda model, x: model.book.pop("a"), "Dict"),
    "a child": (lambda model, x: model.child(x[None]), "BatchNorm"),
    "the mode": (lambda model, x: model.eval(), "training"),
}
TRANSFORMATIONS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "jit": lambda f: fw.jit(f, capture="constant")(jnp.ones(3)),
    "grad": lambda f: fw.grad(lambda x: (f(x), x.sum())[1])(jnp.ones(3)),
    "vmap": lambda f: fw.vmap(f)(jnp.ones((2, 3))),
    "scan": lambda f: fw.scan(lambda carry, x: (carry, f(x))[:1] + (0.0,), 0.0, jnp.ones((2, 3))),
    "cond": lambda f: fw.cond(True, lambda x: (f(x), x)[1], lambda x: x, jnp.ones(3)),
    "remat": lambda f: fw.grad(lambda x: fw.remat(lambda x: (f(x), x.sum())[1])(x))(jnp.ones(3)),
    "grad in jit": lambda f: fw.jit(fw.grad(lambda x: (f(x), x.sum())[1]), capture="constant")(jnp.ones(3)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_a_change_of_what_was_not_passed_is_refused_and_nothing_is_changed(change: str, transformation: str) -> None:
    model, (function, name) = Model(), CHANGES[change]
    holder, before = Holder(model), model.clone()
    with pytest.raises(
        LiftError, match=r"was changed inside a traced function that was not passed this .*test_guard\.py:"
    ):
        TRANSFORMATIONS[transformation](lambda x: function(holder.model, x))
    with pytest.raises(LiftError, match=name):
        TRANSFORMATIONS[transformation](lambda x: function(holder.model, x))
    assert fw.tree_equal(model, before)
    assert not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(model))


def test_an_object_that_an_enclosing_call_was_passed_may_be_read_inside_and_not_written() -> None:
    @fw.jit
    def outer(model: Model, xs: Any) -> Any:
        return fw.scan(lambda carry, x: (carry + model.read(x), None), jnp.zeros(3), xs)[0]

    np.testing.assert_array_equal(outer(Model(), jnp.ones((4, 3))), np.full(3, 4.0))

    @fw.jit
    def writing(model: Model, xs: Any) -> Any:
        return fw.scan(lambda carry, x: (carry, model.write(x)), jnp.zeros(3), xs)[0]

    with pytest.raises(
        LiftError, match=r"Model.total was changed inside a traced function that was not passed this Model"
    ):
        writing(Model(), jnp.ones((4, 3)))


READS: dict[str, Callable[[Model, Any], Any]] = {
    "an attribute": lambda model, x: model.weight * x,
    "a method": lambda model, x: model.read(x),
    "a call": lambda model, x: model.parts[0](x),
    "a list": lambda model, x: sum(model.bag),
    "an item of a list": lambda model, x: model.bag[0],
    "a dict": lambda model, x: [*model.book.values()],
    "an item of a dict": lambda model, x: model.book["a"],
    "select": lambda model, x: fw.select(model),
    "clone": lambda model, x: model.clone().weight * x,
    "a tree operation": lambda model, x: jax.tree.leaves(model),
}


@pytest.mark.parametrize("read", READS)
def test_arrays_of_what_was_not_passed_would_be_frozen_and_are_refused(read: str) -> None:
    model, function = Model(), READS[read]
    with pytest.raises(
        LiftError, match=r"was read inside a compiled function that was not passed.*capture=\"constant\""
    ):
        fw.jit(lambda x: function(model, x))(jnp.ones(3))
    # As constants on purpose, and outside of compiled functions, they may be read.
    expected = jax.tree.leaves(function(model, jnp.ones(3)))
    constant = jax.tree.leaves(fw.jit(lambda x: function(model, x), capture="constant")(jnp.ones(3)))
    for one, other in zip(expected, constant, strict=True):
        if not jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: fw.jit(f, capture="constant")(x) + 0])
def test_a_constant_that_has_changed_since_is_noticed(wrap: Any) -> None:
    model = Model()
    function = fw.jit(wrap(lambda x: x * model.weight), capture="constant")
    np.testing.assert_array_equal(function(jnp.ones(3)), np.ones(3))
    assert len(function.traces) == 1
    function(jnp.ones(3))
    assert len(function.traces) == 1
    model.weight = jnp.full(3, 2.0)
    np.testing.assert_array_equal(function(jnp.ones(3)), np.full(3, 2.0))
    assert "captured value" in str(function.traces[-1])


def test_a_default_argument_and_a_global_are_closures_too() -> None:
    model = Model()

    def with_default(x: Any, model: Model = model) -> Any:
        return model.read(x)

    with pytest.raises(LiftError, match="Model.weight was read inside a compiled function"):
        fw.jit(with_default)(jnp.ones(3))
    np.testing.assert_array_equal(fw.jit(with_default)(jnp.ones(3), model), np.ones(3))


def test_no_false_alarm() -> None:
    constant, model = jnp.arange(3.0), Model()

    @fw.jit
    def frozen_array(x: Any) -> Any:
        return x * constant

    @fw.jit
    def hyperparameter(x: Any) -> Any:
        return x * (2.0 if model.name == "a" and model.training else 3.0)

    @fw.jit
    def helper(x: Any) -> Any:
        inside = fw.nn.BatchNorm(3)
        tracker = fw.trackers.Mean()
        tracker.update(inside(x))
        return tracker.compute()

    @fw.jit
    def evaluation(model: Model, x: Any) -> Any:
        with model.eval():
            return model.child(x)

    x = jnp.ones((2, 3))
    np.testing.assert_array_equal(frozen_array(x), x * constant)
    np.testing.assert_array_equal(hyperparameter(x), 2 * x)
    assert np.isfinite(helper(x))
    before = model.clone()
    evaluation(model, x)
    assert fw.tree_equal(model, before) and model.training


def test_a_tracer_never_stays_on_an_object() -> None:
    kept: list[Any] = []

    def leak(model: Model, x: Any) -> Any:
        model.total = x * 2
        kept.append(model)  # the twin, which is thrown away
        raise ZeroDivisionError

    model = Model()
    before = model.clone()
    for transform in (fw.jit, fw.grad, lambda f: fw.vmap(f, (None, 0))):
        with pytest.raises(ZeroDivisionError):
            transform(leak)(model, jnp.ones(3))
    assert fw.tree_equal(model, before)
    assert all(twin is not model for twin in kept)
    with pytest.raises(LiftError, match="was changed inside a traced function"):
        fw.jit(lambda x: kept[0].write(x))(jnp.ones(3))

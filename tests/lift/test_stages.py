"""Looking at a compiled call without running it, static arguments, strict donation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError


class Model(fw.Module):
    weight: fw.Param
    total: fw.State
    name: str = "a"

    def __init__(self) -> None:
        self.weight, self.total = jnp.ones((64, 64)), jnp.zeros((64, 64))

    @fw.jit
    def step(self, x: Any) -> Any:
        self.total = self.total + x @ self.weight
        return self.total.sum()


def test_a_trace_tells_what_a_call_would_do_and_does_nothing() -> None:
    model = Model()
    traced = Model.step.trace(model, jnp.ones((64, 64)))
    assert traced.effects.writes == ("total",) and traced.effects.donates == ("total",)
    assert traced.out_info.shape == () and traced.out_info.dtype == jnp.float32
    assert "dot_general" in str(traced.jaxpr)
    assert float(model.total.sum()) == 0.0


def test_a_lowered_call_can_be_read_and_its_costs_are_known() -> None:
    lowered = Model.step.lower(Model(), jnp.ones((64, 64)))
    assert "stablehlo.dot_general" in lowered.as_text()
    matmul = 2 * 64**3
    assert matmul <= lowered.cost_analysis()["flops"] <= 1.1 * matmul
    compiled = lowered.compile()
    assert matmul <= compiled.cost_analysis()["flops"] <= 1.1 * matmul
    assert "dot" in compiled.as_text()


def test_donation_makes_the_memory_of_a_step_that_of_hand_written_jax() -> None:
    model, x = Model(), jnp.ones((64, 64))

    def by_hand(total: Any, weight: Any, x: Any) -> Any:
        total = total + x @ weight
        return total, total.sum()

    expected = jax.jit(by_hand, donate_argnums=0).lower(model.total, model.weight, x).compile().memory_analysis()
    found = Model.step.lower(model, x).compile().memory_analysis()
    for name in ("argument_size_in_bytes", "output_size_in_bytes", "alias_size_in_bytes", "temp_size_in_bytes"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.alias_size_in_bytes == 4 * 64 * 64


def test_a_program_compiled_ahead_of_time_runs_on_any_objects_of_the_structure() -> None:
    first, second, x = Model(), Model(), jnp.ones((64, 64))
    compiled = Model.step.lower(first, x).compile()
    for model in (first, second, first):
        compiled(model, x)
    assert float(first.total[0, 0]) == 128.0 and float(second.total[0, 0]) == 64.0
    assert len(Model.step.traces) == 1 or all(trace.changes for trace in Model.step.traces[1:])
    second.name = "b"
    with pytest.raises(LiftError, match=r"called with objects of another structure.*Compile it again"):
        compiled(second, x)


def test_a_call_can_be_compiled_from_shapes_alone() -> None:
    model = fw.eval_shape(Model)
    lowered = Model.step.lower(model, jax.ShapeDtypeStruct((64, 64), jnp.float32))
    real = Model()
    assert float(lowered.compile()(real, jnp.ones((64, 64)))) == 64.0**3


def test_a_static_argument_stays_a_python_value_by_position_and_by_name() -> None:
    def power(x: Any, n: int, *, half: bool = False) -> Any:
        assert isinstance(n, int) and isinstance(half, bool)
        return x**n / (2 if half else 1)

    for options in ({"static_argnums": 1, "static_argnames": "half"}, {"static_argnames": ("n", "half")}):
        compiled = fw.jit(power, **options)
        assert [float(compiled(3.0, n)) for n in (1, 2, 2)] == [3.0, 9.0, 9.0]
        assert float(compiled(3.0, n=2, half=True)) == 4.5
        assert len(compiled.traces) == 3
        assert "static argument 0: 1 -> 2" in str(compiled.traces[1])
    with pytest.raises(LiftError, match=r"power has no parameter 'm' to make static; its parameters are x, n, half"):
        fw.jit(power, static_argnames="m")
    with pytest.raises(LiftError, match=r"an argument of type list can be passed"):
        fw.jit(lambda x, sizes: x, static_argnums=1)(1.0, [jnp.ones(2)])


def test_a_static_argument_of_a_method_is_named() -> None:
    class Power(fw.Module):
        base: fw.Param

        def __init__(self) -> None:
            self.base = jnp.array(3.0)

        @fw.jit(static_argnames="n")
        def __call__(self, n: int) -> Any:
            return self.base**n if n else "one"

    assert float(Power()(2)) == 9.0 and Power()(n=0) == "one"


def test_strict_donation_refuses_what_plain_donation_copies() -> None:
    def step(model: Model) -> None:
        model.total = model.total + 1

    strict = fw.jit(step, donate="strict")
    model = Model()
    strict(model)
    held = model.total
    with pytest.raises(LiftError, match=r'donate="strict", and the arrays of Model.total are held elsewhere as well'):
        strict(model)
    np.testing.assert_array_equal(held, np.ones((64, 64)))
    del held
    strict(model)
    model.weight = model.total
    with pytest.raises(LiftError, match=r"Model.total are held elsewhere.*one array in two leaves has one buffer"):
        strict(model)
    fw.jit(step)(model)
    assert float(model.total[0, 0]) == 3.0 and float(model.weight[0, 0]) == 2.0

    def grow(model: Model) -> None:
        model.total = model.total[:1]

    with pytest.raises(LiftError, match=r"grow cannot reuse the buffers of Model.total, and was compiled with donate"):
        fw.jit(grow, donate="strict")(Model())

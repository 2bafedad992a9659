"""`shard_map` over objects, and shardings of compiled calls, on eight devices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import framework as fw
from framework.errors import LiftError

AXIS_TYPES = [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit]


def make_mesh(kind: Any = jax.sharding.AxisType.Auto) -> Any:
    return jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))


class Model(fw.Module):
    weight: fw.Param
    total: fw.State

    def __init__(self) -> None:
        self.weight, self.total = jnp.arange(8.0).reshape(4, 2), jnp.zeros(())

    def __call__(self, x: Any) -> Any:
        y = x @ self.weight
        self.total = self.total + jax.lax.psum(y.sum(), "data")
        return y


@pytest.mark.parametrize("kind", AXIS_TYPES)
@pytest.mark.parametrize("jit", [lambda f: f, fw.jit])
def test_every_device_runs_its_part_and_reduced_state_comes_out(kind: Any, jit: Any) -> None:
    mesh, model, x = make_mesh(kind), Model(), jnp.arange(32.0).reshape(8, 4)

    def step(model: Model, x: Any) -> Any:
        return fw.shard_map(lambda m, x: m(x), mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))(model, x)

    y = jit(step)(model, x)
    expected = np.asarray(x) @ np.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose(y, expected)
    np.testing.assert_allclose(model.total, expected.sum())


def test_a_divided_leaf_is_written_part_by_part() -> None:
    mesh, model = make_mesh(), Model()

    def add(model: Model) -> None:
        model.weight = model.weight + jax.lax.axis_index("data")

    fw.shard_map(add, mesh=mesh, in_specs=({"weight": P("data")},), out_specs=None)(model)
    np.testing.assert_array_equal(model.weight, np.arange(8.0).reshape(4, 2) + np.arange(4.0)[:, None])
    assert model.weight.sharding.spec == P("data")


def test_a_value_that_differs_between_devices_is_refused_for_a_leaf_they_share() -> None:
    mesh, model = make_mesh(), Model()

    def add(model: Model, x: Any) -> None:
        model.total = model.total + x.sum()

    with pytest.raises(
        LiftError, match=r"Model.total was written with a value that differs along .* 'data'.*pmean\(x, 'd"
    ):
        fw.shard_map(add, mesh=mesh, in_specs=(P(), P("data")), out_specs=None)(model, jnp.arange(4.0))
    assert float(model.total) == 0.0


def test_a_gradient_through_shard_map_is_that_of_one_device() -> None:
    mesh, model, x = make_mesh(), Model(), jnp.arange(32.0).reshape(8, 4)

    def loss(model: Model, x: Any) -> Any:
        def part(model: Model, x: Any) -> Any:
            return jax.lax.psum((model(x) ** 2).sum(), "data")

        return fw.shard_map(part, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())(model, x)

    gradient = fw.jit(fw.grad(loss))(model, x)
    expected = jax.grad(lambda weight: ((x @ weight) ** 2).sum())(jnp.arange(8.0).reshape(4, 2))
    np.testing.assert_allclose(gradient["weight"], expected, rtol=1e-6)


def test_methods_have_their_object_on_every_device_and_wrong_specs_are_refused() -> None:
    mesh, model, x = make_mesh(), Model(), jnp.arange(32.0).reshape(8, 4)
    y = fw.shard_map(model, mesh=mesh, in_specs=P("data"), out_specs=P("data"))(x)
    np.testing.assert_allclose(y, x @ model.weight)
    with pytest.raises(LiftError, match="in_specs has 2 entries for 1 arguments"):
        fw.shard_map(model, mesh=mesh, in_specs=(P(), P()), out_specs=P())(x)
    with pytest.raises(LiftError, match="an object was returned"):
        fw.shard_map(lambda m: m, mesh=mesh, in_specs=P(), out_specs=None)(model)


def test_hyperparameters_and_new_attributes_come_out() -> None:
    mesh, model = make_mesh(), Model()

    def change(model: Model, x: Any) -> None:
        model.name = "new"
        model.total, model.layer = jax.lax.pmean(x.sum(), "data"), fw.nn.LayerNorm(3)
        del model.weight

    fw.shard_map(change, mesh=mesh, in_specs=(P(), P("data")), out_specs=None)(model, jnp.arange(4.0))
    assert model.name == "new" and float(model.total) == 1.5 and not hasattr(model, "weight")
    np.testing.assert_array_equal(model.layer(jnp.zeros(3)), np.zeros(3))


def test_shardings_of_a_compiled_call_place_arguments_leaves_and_results() -> None:
    mesh, model, x = make_mesh(), Model(), np.arange(32.0, dtype=np.float32).reshape(8, 4)
    rows, columns, all_devices = (NamedSharding(mesh, spec) for spec in (P("data"), P(None, "model"), P()))

    def step(model: Model, x: Any) -> Any:
        model.weight = model.weight * 2
        return {"y": x @ model.weight, "sum": x.sum()}

    options: dict[str, Any] = {
        "in_shardings": ({"weight": columns}, rows),
        "out_shardings": {"y": rows, "sum": all_devices},
    }
    compiled = fw.jit(step, **options)
    for power in (2, 4):
        result = compiled(model, x)
        np.testing.assert_allclose(result["y"], x @ (power * np.arange(8.0).reshape(4, 2)))
        assert model.weight.sharding.is_equivalent_to(columns, 2)
        assert result["y"].sharding.is_equivalent_to(rows, 2)
        assert result["sum"].sharding.is_equivalent_to(all_devices, 0)
    assert len(compiled.traces) == 1
    with pytest.raises(LiftError, match="in_shardings has 1 entries and the call 2 positional arguments"):
        fw.jit(step, in_shardings=(rows,))(model, x)


def test_another_sharding_that_traces_anew_is_named_in_the_diary() -> None:
    mesh, model = make_mesh(jax.sharding.AxisType.Explicit), Model()

    @fw.jit
    def double(model: Model) -> None:
        model.weight = model.weight * 2

    double(model)
    model.weight = jax.device_put(model.weight, NamedSharding(mesh, P("data")))
    double(model)
    assert "float32[4, 2] -> float32[4, 2] as P('data', None) on mesh (data=4, model=2)" in str(double.traces[-1])

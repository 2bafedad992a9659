"""`effects` and the assertions of `framework.testing`."""

from typing import Any

import jax.numpy as jnp
import pytest
from jax.core import Tracer

import framework as fw


class Lazy(fw.Module):
    weight: fw.Param
    count: fw.State
    ready: bool = False

    def __init__(self) -> None:
        self.count = jnp.zeros(())

    def __call__(self, x: Any) -> Any:
        if not self.ready:
            self.weight, self.ready = jnp.ones(x.shape[-1]), True
        self.count = self.count + 1
        return x * self.weight


class Pair(fw.Module):
    def __init__(self) -> None:
        self.encoder = fw.nn.Sequential(fw.nn.Linear(2, 3, rngs=fw.Rngs(0)), fw.nn.BatchNorm(3))
        self.items: list[Any] = [Lazy()]

    def __call__(self, x: Any) -> Any:
        return self.encoder(x)


def test_every_kind_of_change_is_reported_by_name_and_nothing_is_done() -> None:
    lazy = Lazy()
    found = fw.effects(lazy, jnp.ones(3))
    assert found.writes == ("count",) and found.creates == ("weight",) and found.removes == ()
    assert found.hyperparameters == {"ready": (False, True)} and not found.pure
    assert not lazy.ready and "weight" not in vars(lazy)

    def change(pair: Pair, lazy: Lazy) -> None:
        pair.items.pop()
        del lazy.count
        pair.items.append("text")

    found = fw.effects(change, Pair(), lazy)
    assert set(found.removes) == {"0.items.0", "1.count"}


def test_a_change_and_its_reverse_is_no_change() -> None:
    def there_and_back(lazy: Lazy) -> None:
        before = lazy.count
        lazy.count = lazy.count + 1
        lazy.ready = True
        lazy.count, lazy.ready = before, False

    assert fw.effects(there_and_back, Lazy()).pure
    fw.testing.assert_pure(there_and_back, Lazy())


def test_assertions_say_what_happens_instead() -> None:
    pair, x = Pair(), jnp.ones((4, 2))
    fw.testing.assert_effects(pair, x, writes={"encoder.*.mean", "encoder.*.variance"})
    with pytest.raises(
        AssertionError, match=r"is not pure: it writes encoder.layers.1.mean, encoder.layers.1.variance"
    ):
        fw.testing.assert_pure(pair, x)
    with pytest.raises(AssertionError, match=r"writes encoder.layers.1.variance. In all"):
        fw.testing.assert_effects(pair, x, writes={"*.mean"})
    with pytest.raises(AssertionError, match=r"does not have among its removes 'items.0'"):
        fw.testing.assert_effects(pair, x, writes="encoder.*", removes={"items.0"})
    with pair.eval():
        fw.testing.assert_pure(pair, x)


def test_lifted_equals_eager_holds_for_a_model_and_catches_a_function_that_looks_at_tracers() -> None:
    fw.testing.assert_lifted_equals_eager(Pair(), jnp.ones((4, 2)))
    fw.testing.assert_lifted_equals_eager(Lazy(), jnp.ones(3))

    def odd_result(lazy: Lazy) -> Any:
        return lazy.count + (1.0 if isinstance(lazy.count, Tracer) else 0.0)

    def odd_leaf(lazy: Lazy) -> None:
        lazy.count = odd_result(lazy)

    def odd_hyperparameter(lazy: Lazy) -> None:
        lazy.ready = isinstance(lazy.count, Tracer)

    with pytest.raises(AssertionError, match="a result of .*odd_result differs, compiled"):
        fw.testing.assert_lifted_equals_eager(odd_result, Lazy())
    with pytest.raises(AssertionError, match="a leaf that .*odd_leaf leaves differs"):
        fw.testing.assert_lifted_equals_eager(odd_leaf, Lazy())
    with pytest.raises(AssertionError, match="odd_hyperparameter leaves ready different compiled than in plain Python"):
        fw.testing.assert_lifted_equals_eager(odd_hyperparameter, Lazy())

"""Compiled calls keep nothing alive that their callers let go, and threads may call them at once."""

import gc
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import framework as fw


class Model(fw.Module):
    weight: fw.Param
    count: fw.State

    def __init__(self, width: int = 16) -> None:
        self.weight, self.count = jnp.ones((width, width)), jnp.zeros((), jnp.int32)
        self.parts = [fw.nn.Linear(width, width, rngs=fw.Rngs(0))]

    def __call__(self, x: Any) -> Any:
        self.count = self.count + 1
        return self.parts[0](x @ self.weight).sum()


def step(optimizer: fw.Optimizer, x: Any) -> Any:
    value, gradient = fw.value_and_grad(lambda model: model(x))(optimizer.model)
    optimizer.update(gradient)
    return value


def resident() -> int:
    """Returns the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.slow
def test_ten_thousand_calls_leave_objects_arrays_and_memory_as_they_were() -> None:
    optimizer = fw.Optimizer(optax.adam, Model(), learning_rate=1e-6)
    compiled, x = fw.jit(step), jnp.ones((4, 16))

    def measure() -> tuple[int, int, int]:
        gc.collect()
        return len(gc.get_objects()), len(jax.live_arrays()), resident()

    for _ in range(200):
        compiled(optimizer, x)
    before = measure()
    for _ in range(10_000):
        compiled(optimizer, x)
    after = measure()
    assert after[0] - before[0] < 50 and after[1] == before[1]
    assert after[2] - before[2] < 8 * 2**20
    assert int(optimizer.model.count) == 10_200 and len(compiled.traces) == 1  # pyright: ignore


def test_a_new_batch_object_at_each_call_is_let_go() -> None:
    class Batch(fw.Module):
        x: fw.State

        def __init__(self, value: float) -> None:
            self.x = jnp.full(3, value)

    model, compiled = Model(), fw.jit(lambda model, batch: model.count + batch.x.sum())
    references: list[Any] = []
    for value in range(50):
        batch = Batch(float(value))
        references.append(weakref.ref(batch))
        compiled(model, batch)
    del batch
    gc.collect()
    assert sum(reference() is not None for reference in references) == 0
    assert len(compiled.traces) == 1


def test_a_model_that_was_trained_is_freed_with_its_last_reference_and_without_the_collector() -> None:
    compiled, x = fw.jit(lambda model, x: model(x)), jnp.ones((4, 16))
    compiled(Model(), x)
    gc.collect()
    before = len(jax.live_arrays())
    gc.disable()
    try:
        for _ in range(20):
            model = Model()
            compiled(model, x)
            compiled(model, x)
            reference = weakref.ref(model)
            del model
            assert reference() is None
        assert len(jax.live_arrays()) <= before
    finally:
        gc.enable()


def test_a_compiled_function_is_freed_with_its_programs() -> None:
    model = Model()
    compiled = fw.jit(lambda model, x: model(x))
    compiled(model, jnp.ones((4, 16)))
    reference = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert reference() is None


def test_threads_call_one_compiled_function_on_objects_of_their_own() -> None:
    compiled, x = fw.jit(step), jnp.ones((4, 16))
    optimizers = [fw.Optimizer(optax.sgd, Model(), learning_rate=1e-4) for _ in range(4)]
    expected = fw.Optimizer(optax.sgd, Model(), learning_rate=1e-4)
    for _ in range(50):
        compiled(expected, x)
    errors: list[BaseException] = []

    def train(optimizer: fw.Optimizer) -> None:
        try:
            for _ in range(50):
                compiled(optimizer, x)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(optimizer,)) for optimizer in optimizers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(compiled.traces) == 1
    for optimizer in optimizers:
        for path, leaf in fw.select(expected, fw.Param).items():
            np.testing.assert_array_equal(fw.select(optimizer)[path], leaf)


def test_threads_may_trace_at_once() -> None:
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        compiled = fw.jit(lambda model, x: model(x) * number)
        model = Model()
        for _ in range(3):
            results[number] = float(compiled(model, jnp.ones((4, 16))))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose([results[number] / number for number in range(1, 5)], results[1], rtol=1e-5)

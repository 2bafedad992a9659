"""Random streams: compiled draws are the eager ones, and no stream depends on another."""

import copy
import pickle
import subprocess
import sys
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import framework as fw
from framework.errors import LiftError, ModuleError


def normal(rngs: fw.Rngs) -> jax.Array:
    return jax.random.normal(rngs.noise(), (3,))


class Holder(fw.Module):
    def __init__(self, rngs: fw.Rngs) -> None:
        self.rngs = rngs

    def draw(self) -> jax.Array:
        return normal(self.rngs)


def expected(seed: int, number: int) -> list[np.ndarray[Any, Any]]:
    """The definition, in plain JAX."""
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(b"noise"))
    return [np.asarray(jax.random.normal(jax.random.fold_in(key, count), (3,))) for count in range(number)]


def by_eager(rngs: fw.Rngs, number: int) -> list[Any]:
    return [normal(rngs) for _ in range(number)]


def by_jit(rngs: fw.Rngs, number: int) -> list[Any]:
    draw = fw.jit(normal)
    return [draw(rngs) for _ in range(number)]


def by_field(rngs: fw.Rngs, number: int) -> list[Any]:
    holder = Holder(rngs)
    draw = fw.jit(holder.draw)
    return [draw() for _ in range(number)]


def by_one_call(rngs: fw.Rngs, number: int) -> list[Any]:
    return fw.jit(lambda rngs: [normal(rngs) for _ in range(number)])(rngs)


def by_remat(rngs: fw.Rngs, number: int) -> list[Any]:
    return [fw.jit(lambda rngs: fw.remat(normal)(rngs))(rngs) for _ in range(number)]


def by_gradient(rngs: fw.Rngs, number: int) -> list[Any]:
    def loss(x: jax.Array, rngs: fw.Rngs) -> tuple[jax.Array, jax.Array]:
        draw = normal(rngs)
        return (x * draw).sum(), draw

    differentiated = fw.value_and_grad(loss, has_aux=True)
    return [differentiated(jnp.ones(3), rngs)[0][1] for _ in range(number)]


def by_scan(rngs: fw.Rngs, number: int) -> list[Any]:
    rngs.stream("noise")  # a loop cannot make a stream, since its objects must keep their structure
    return list(fw.scan(lambda rngs, _: (rngs, normal(rngs)), rngs, None, length=number)[1])


@pytest.mark.parametrize("way", [by_eager, by_jit, by_field, by_one_call, by_remat, by_gradient, by_scan])
def test_draws_are_the_same_in_every_way_and_the_state_after_them_too(way: Any) -> None:
    rngs, eager = fw.Rngs(7), fw.Rngs(7)
    np.testing.assert_array_equal(way(rngs, 5), expected(7, 5))
    by_eager(eager, 5)
    assert fw.tree_equal(rngs, eager)
    assert int(rngs.noise.count) == 5
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(rngs))


def test_plain_jit_draws_the_same_when_the_streams_are_passed_and_returned() -> None:
    rngs = fw.Rngs(7)
    draw = jax.jit(lambda rngs: (normal(rngs), rngs))
    draws = []
    for _ in range(5):
        value, rngs = draw(rngs)
        draws.append(value)
    np.testing.assert_array_equal(draws, expected(7, 5))


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("transform", [fw.jit, jax.jit])
def test_streams_reached_by_closure_are_refused_at_the_first_call(transform: Any, made: bool) -> None:
    rngs = fw.Rngs(0)
    if made:
        rngs.stream("noise")
    before = jax.tree.leaves(rngs)
    with pytest.raises(LiftError, match=r"^(Rngs|Stream)\..*Pass the (Rngs|Stream) to the"):
        transform(lambda x: x + normal(rngs))(1.0)
    assert all(first is second for first, second in zip(jax.tree.leaves(rngs), before, strict=True))
    np.testing.assert_array_equal(normal(rngs), expected(0, 1)[0])


def test_vmap_gives_eight_elements_eight_draws() -> None:
    rngs = fw.Rngs(0)
    rngs.stream("noise")
    draws = fw.vmap(lambda x, rngs: normal(rngs)[0], (0, None))(jnp.arange(8), rngs)
    assert len(set(draws.tolist())) == 8


@given(st.lists(st.sampled_from(["params", "dropout", "noise", "default"]), max_size=12), st.integers(0, 2**31 - 1))
def test_draws_of_a_name_do_not_depend_on_the_other_names(names: list[str], seed: int) -> None:
    together, counts = fw.Rngs(seed), dict.fromkeys(names, 0)
    for name in names:
        key = together() if name == "default" else together.stream(name)()
        root = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
        assert key == jax.random.fold_in(root, counts[name])
        counts[name] += 1


def test_streams_are_the_same_in_another_process() -> None:
    program = "import framework as fw, jax; print(jax.random.bits(fw.Rngs(3).params()))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(run.stdout) == int(jax.random.bits(fw.Rngs(3).params()))


def test_a_stream_is_one_object() -> None:
    rngs = fw.Rngs(0)
    assert rngs.params is rngs.params is rngs.stream("params")
    assert isinstance(rngs.params, fw.Stream)
    assert not hasattr(rngs, "_private") and list(rngs.streams) == ["params"]


@pytest.mark.parametrize("seed", [3, np.int64(3), jax.random.key(3)])
def test_equal_seeds_of_any_kind_give_equal_streams(seed: Any) -> None:
    assert fw.Rngs(seed).params() == fw.Rngs(3).params()


@pytest.mark.parametrize("seed", [1.5, "0", True, None])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(ModuleError, match=r"Give it a whole number, `fw.Rngs\(0\)`, or one typed key"):
        fw.Rngs(seed)


@pytest.mark.parametrize("key", [0, jnp.zeros(2, jnp.uint32)])
def test_a_key_of_the_old_kind_is_refused(key: Any) -> None:
    with pytest.raises(ModuleError, match=r"Stream was given .*no typed key. Make one with `jax.random.key\(0\)`"):
        fw.Stream(key)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rngs: pickle.loads(pickle.dumps(rngs)), fw.Rngs.clone])
def test_a_copy_goes_on_where_the_original_is(copied: Any) -> None:
    rngs = fw.Rngs(7)
    by_eager(rngs, 2)
    np.testing.assert_array_equal(by_eager(copied(rngs), 3), expected(7, 5)[2:])
    assert int(rngs.noise.count) == 2


def test_a_tree_round_trip_keeps_the_streams() -> None:
    rngs = fw.Rngs(7)
    normal(rngs)
    leaves, structure = jax.tree.flatten(rngs)
    assert fw.tree_equal(jax.tree.unflatten(structure, leaves), rngs)


def test_a_stack_of_streams_draws_like_a_loop_over_them() -> None:
    first, second = fw.Rngs(0).dropout, fw.Rngs(0).dropout
    stack = first.fork(4)
    singles = [fw.Stream(key) for key in jax.random.split(second(), 4)]
    draw = fw.vmap(lambda stream: jax.random.normal(stream()))
    for _ in range(2):
        np.testing.assert_array_equal(draw(stack), [jax.random.normal(stream()) for stream in singles])
    assert stack.count.tolist() == [2, 2, 2, 2]
    _, scanned = fw.scan(lambda carry, stream: (carry, jax.random.normal(stream())), 0.0, stack)
    np.testing.assert_array_equal(scanned, [jax.random.normal(stream()) for stream in singles])


def test_a_stack_of_streams_has_no_next_key_itself() -> None:
    with pytest.raises(ModuleError, match=r"stack of \[2\] streams made by `fork`.*fw.vmap"):
        fw.Rngs(0).params.fork(2)()


def test_forks_differ_from_each_other_and_keep_the_streams_there_are() -> None:
    rngs = fw.Rngs(0)
    rngs.stream("noise")
    first, second = rngs.fork(3), rngs.fork(3)
    assert list(first.streams) == ["noise"]
    draws = [fw.vmap(lambda rngs: normal(rngs)[0])(fork).tolist() for fork in (first, second)]
    assert len({*draws[0], *draws[1]}) == 6
    layers = fw.vmap(lambda rngs: fw.nn.Linear(2, 2, rngs=rngs))(rngs.fork(3))
    assert layers.weight.shape == (3, 2, 2) and len(set(layers.weight[:, 0, 0].tolist())) == 3

"""Promises 1, 3, 4, 5 and 7: a lifted call does what plain Python does, to any object, or leaves it as it was."""

import copy
import os
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import programs
import pytest
from hypothesis import HealthCheck, given, settings

import framework as fw

Box = programs.Box

DTYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool", "complex64")
VALUES: tuple[Any, ...] = (
    1,
    1.0,
    True,
    False,
    0.0,
    -0.0,
    7,
    "text",
    None,
    (1, 2.0),
    jnp.float16,
    programs.double,
    programs.scale,
) + (float("nan"), b"bytes", 10**6)
values = st.sampled_from(VALUES)


@st.composite
def trees(draw: st.DrawFn) -> Any:
    """An object with children in lists, dicts and tuples, some of them in several places."""
    made: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        box = Box()
        for name in draw(st.sets(st.sampled_from(programs.LEAVES), min_size=1)):
            kinds = DTYPES[:3] if name.startswith("p") else DTYPES
            shape = draw(st.sampled_from(((), (2,), (1, 2))))
            setattr(box, name, jnp.full(shape, draw(st.integers(0, 3)), draw(st.sampled_from(kinds))))
        for name in draw(st.sets(st.sampled_from(programs.HYPERPARAMETERS))):
            setattr(box, name, draw(values))
        for name in draw(st.sets(st.sampled_from(programs.CHILDREN))) if made else ():
            chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
            static = draw(values)
            child: Any = {
                "child": lambda c, s: c[0],
                "others": lambda c, s: [*c, s],
                "table": lambda c, s: {"z": c[0], "a": [*c], "s": s},
                "pair": lambda c, s: (*c, s),
            }[name](chosen, static)
            setattr(box, name, child)
        made.append(box)
    return made[-1]


steps = st.tuples(
    st.sampled_from([name for name in programs.STEPS if name != "fail"]), st.integers(0, 5), st.integers(0, 5), values
)
random_programs = st.lists(steps, min_size=1, max_size=6).map(lambda steps: programs.Program(tuple(steps)))
PROGRAMS = int(os.environ.get("FRAMEWORK_PROGRAMS", "2000"))
"""How many random programs are compared with plain Python; each example runs two."""

quiet = settings(max_examples=PROGRAMS // 2, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def with_arrays(value: Any) -> Any:
    """Turns Python numbers of a result into arrays, as the outermost compiled call returns them."""
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, bool | int | float) else leaf,
        value,
        is_leaf=lambda leaf: isinstance(leaf, fw.Module),
    )


@quiet
@given(trees(), random_programs, random_programs)
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_a_compiled_program_does_what_plain_python_does(plain: Any, first: Any, second: Any) -> None:
    lifted = copy.deepcopy(plain)
    compiled = fw.jit(programs.run)
    for program in (first, second):
        # A number that is written or returned would be an int of another width here and there.
        expected = programs.run(plain, jnp.float32(2), program, programs.PLAIN)
        result = compiled(lifted, jnp.float32(2), program, programs.LIFTED)
        programs.assert_equal([plain, with_arrays(expected)], [lifted, result])
        assert fw.tree_equal(plain, lifted)
        assert jax.tree.structure(plain) == jax.tree.structure(lifted)
        assert all(
            isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(lifted)
        )


@settings(quiet, max_examples=100)
@given(trees(), random_programs)
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_an_equal_call_is_traced_once_and_every_other_trace_says_why(tree: Any, program: Any) -> None:
    compiled = fw.jit(programs.run)
    copies = [copy.deepcopy(tree) for _ in range(2)]
    compiled(copies[0], jnp.float32(2), program, programs.LIFTED)
    traces = len(compiled.traces)
    compiled(copies[1], jnp.float32(2), program, programs.LIFTED)
    assert len(compiled.traces) == traces
    compiled(copies[0], jnp.float32(2), program, programs.LIFTED)  # as the program left it
    assert all(trace.changes for trace in compiled.traces[1:])


@settings(quiet, max_examples=60)
@given(trees(), random_programs)
def test_a_failing_program_leaves_every_object_as_it_was(tree: Any, program: Any) -> None:
    before = list(programs.contents(tree))
    with pytest.raises(programs.Failure):
        fw.jit(programs.run)(
            tree, jnp.float32(2), programs.Program((*program.steps, ("fail", 0, 0, None))), programs.LIFTED
        )
    assert list(programs.contents(tree)) == before


@settings(quiet, max_examples=60)
@given(trees(), random_programs)
def test_plain_jax_returns_the_same_object_when_nothing_is_shared(tree: Any, program: Any) -> None:
    if max(programs.occurrences(tree).values()) > 1:
        return
    expected = copy.deepcopy(tree)
    programs.run(expected, jnp.float32(2), program, programs.PLAIN)
    if max(programs.occurrences(expected).values()) > 1:
        return

    def step(tree: Any, x: Any) -> Any:
        programs.run(tree, x, program, programs.LIFTED)
        return tree

    programs.assert_equal(expected, jax.jit(step)(tree, jnp.float32(2)))


@settings(quiet, max_examples=100)
@given(trees())
def test_copies_of_every_kind_are_equal_and_share_what_was_shared(tree: Any) -> None:
    for copied in (copy.deepcopy(tree), tree.clone()):
        programs.assert_equal(tree, copied)
        assert fw.tree_equal(tree, copied)
    again = jax.tree.map(lambda leaf: leaf, tree)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    if max(programs.occurrences(tree).values()) == 1:
        programs.assert_equal(tree, again)


@settings(quiet, max_examples=200)
@given(values, values)
def test_two_hyperparameters_share_a_structure_only_if_type_and_value_are_equal(first: Any, second: Any) -> None:
    a, b = Box(), Box()
    a.h0, b.h0 = first, second
    equal = type(a.h0) is type(b.h0) and repr(a.h0) == repr(b.h0)
    assert (jax.tree.structure(a) == jax.tree.structure(b)) == equal
    assert fw.tree_equal(a, b) == equal

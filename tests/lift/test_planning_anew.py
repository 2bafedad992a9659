"""Objects that change between calls: the prepared call is brought up to date, and does what plain Python does."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import framework as fw


class Leaf(fw.Module):
    value: fw.Param
    scale: Any = 1.0

    def __init__(self, value: float) -> None:
        self.value = jnp.asarray(value)


class Tree(fw.Module):
    total: fw.State

    def __init__(self) -> None:
        self.parts = [Leaf(1.0), Leaf(2.0)]
        self.named = {"a": Leaf(3.0)}
        self.pair = (Leaf(4.0), 2.0)
        self.total = jnp.zeros(())


def step(tree: Tree) -> jax.Array:
    """Depends on every leaf and hyperparameter, and writes leaves."""
    leaves = [*tree.parts, *tree.named.values(), tree.pair[0]]
    for position, leaf in enumerate(leaves):
        extra = getattr(leaf, "extra", 0.0) + (0.5 if not leaf.training else 0.0)
        tree.total = tree.total + (position + 1) * (leaf.value * leaf.scale + extra) * tree.pair[1]
        leaf.value = leaf.value + leaf.scale
    return tree.total * getattr(tree, "factor", 1.0)


def pick(tree: Tree, number: int) -> Leaf:
    leaves = [*tree.parts, *tree.named.values(), tree.pair[0]]
    return leaves[number % len(leaves)]


EDITS: dict[str, Callable[[Tree, int], None]] = {
    "scale": lambda tree, n: setattr(pick(tree, n), "scale", (1.0, 2.0, 1)[n % 3]),
    "extra": lambda tree, n: setattr(pick(tree, n), "extra", float(n)),
    "no extra": lambda tree, n: pick(tree, n).__dict__.get("extra") is not None and delattr(pick(tree, n), "extra"),
    "factor": lambda tree, n: setattr(tree, "factor", float(n)),
    "eval": lambda tree, n: pick(tree, n).eval() and None,
    "train": lambda tree, n: tree.train() and None,
    "append": lambda tree, n: tree.parts.append(Leaf(float(n))),
    "pop": lambda tree, n: tree.parts.pop() and None if len(tree.parts) > 1 else None,
    "swap": lambda tree, n: tree.parts.reverse(),
    "share": lambda tree, n: tree.named.__setitem__("a", tree.parts[0]),
    "replace": lambda tree, n: tree.parts.__setitem__(0, Leaf(float(n))),
    "pair": lambda tree, n: setattr(tree, "pair", (Leaf(float(n)), float(n % 3))),
    "array": lambda tree, n: setattr(pick(tree, n), "value", jnp.asarray(float(n))),
    "name": lambda tree, n: tree.named.__setitem__(f"n{n}", Leaf(1.0)),
}

edits = st.lists(st.tuples(st.sampled_from(sorted(EDITS)), st.integers(0, 4)), max_size=3)


@settings(deadline=None, max_examples=60)
@given(st.lists(edits, min_size=2, max_size=6))
def test_a_compiled_call_follows_all_edits_between_calls(program: list[list[tuple[str, int]]]) -> None:
    plain, lifted, compiled = Tree(), Tree(), fw.jit(step)
    for changes in program:
        for name, number in changes:
            EDITS[name](plain, number)
            EDITS[name](lifted, number)
        np.testing.assert_allclose(compiled(lifted), step(plain), rtol=1e-6)
        for one, other in zip(jax.tree.leaves(lifted), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
        assert jax.tree.structure(lifted) == jax.tree.structure(plain)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 1.0, True, "x", None, (1, 2)])), max_size=8))
def test_the_structure_after_edits_is_that_of_an_object_made_so(edits: list[tuple[str, Any]]) -> None:
    edited = Leaf(1.0)
    content: dict[str, Any] = {}
    for name, value in edits:
        jax.tree.structure(edited)  # so that each edit starts from a known structure
        if value is None and name in content:
            delattr(edited, name)
            del content[name]
        else:
            setattr(edited, name, value)
            content[name] = value
    made = Leaf(1.0)
    for name, value in content.items():
        setattr(made, name, value)
    assert jax.tree.structure(edited) == jax.tree.structure(made)
    assert jax.tree.structure(copy.deepcopy(edited)) == jax.tree.structure(made)


def test_going_to_evaluation_and_back_finds_both_programs_again() -> None:
    tree, compiled = Tree(), fw.jit(step)
    for _ in range(3):
        compiled(tree)
        with tree.eval():
            compiled(tree)
    assert len(compiled.traces) == 2

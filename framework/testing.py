"""Assertions about what functions do to objects, for the tests of models and training code."""

import copy
import fnmatch
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from framework.lift.jit import jit
from framework.lift.report import Report, effects
from framework.module.display import diff
from framework.module.graph import is_node


def assert_pure(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Asserts that a function changes none of the objects that it is passed.

    Args:
        function: a function, method or module.
        args: its arguments.
        kwargs: its keyword arguments.

    Raises:
        AssertionError: if it would change something; the text names it.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.testing.assert_pure(fw.nn.Linear(2, 3, rngs=fw.Rngs(0)), jnp.ones((4, 2)))
    """
    found = effects(function, *args, **kwargs)
    if not found.pure:
        raise AssertionError(f"{_name(function)} is not pure: it {_words(found)}.")


def assert_effects(
    function: Callable[..., Any],
    *args: Any,
    writes: Iterable[str] = (),
    creates: Iterable[str] = (),
    removes: Iterable[str] = (),
    hyperparameters: Iterable[str] = (),
    **kwargs: Any,
) -> None:
    """Asserts that a function changes what it is said to change, and nothing else.

    Args:
        function: a function, method or module.
        args: its arguments; with several objects, a name begins with the position of its object.
        writes: patterns such as `"encoder.*.mean"` of leaves that get another array.
        creates: patterns of what is new.
        removes: patterns of what is gone.
        hyperparameters: patterns of hyperparameters that get another value.
        kwargs: its keyword arguments.

    Raises:
        AssertionError: if a change fits no pattern, or no change fits a pattern.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.testing.assert_effects(fw.nn.BatchNorm(3), jnp.ones((2, 3)), writes={"mean", "variance"})
    """
    found = effects(function, *args, **kwargs)
    wanted = {"writes": writes, "creates": creates, "removes": removes, "hyperparameters": hyperparameters}
    wrong: list[str] = []
    for field, patterns in wanted.items():
        names = list(getattr(found, field))
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        wrong += [f"{field} {name}" for name in names if not any(fnmatch.fnmatchcase(name, one) for one in patterns)]
        missing = [one for one in patterns if not any(fnmatch.fnmatchcase(name, one) for name in names)]
        wrong += [f"does not have among its {field} {one!r}" for one in missing]
    if wrong:
        raise AssertionError(f"{_name(function)} {'; '.join(wrong)}. In all, it {_words(found)}.")


def assert_lifted_equals_eager(
    function: Callable[..., Any], *args: Any, rtol: float = 1e-5, atol: float = 1e-6, **kwargs: Any
) -> None:
    """Asserts that a compiled call returns and changes what plain Python does.

    Args:
        function: a function, method or module; it is called on copies of the arguments.
        args: its arguments.
        rtol: relative tolerance of values.
        atol: absolute tolerance of values.
        kwargs: its keyword arguments.

    Raises:
        AssertionError: if a result, leaf or hyperparameter differs.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.testing.assert_lifted_equals_eager(fw.nn.BatchNorm(3), jnp.arange(6.0).reshape(2, 3))
    """
    calls = [copy.deepcopy((function, args, kwargs)) for _ in range(2)]
    results: list[Any] = []
    for call, lifted in zip(calls, (False, True), strict=True):
        inner, arguments, keywords = call
        results.append((jit(inner) if lifted else inner)(*arguments, **keywords))
    objects = [(getattr(call[0], "__self__", call[0]), *call[1], call[2]) for call in calls]
    pairs = [_objects(value) for value in objects]
    assert len(pairs[0]) == len(pairs[1])
    for plain, other in zip(*pairs, strict=True):
        _same_content(plain, other, rtol, atol, _name(function))
    _same_result(*results, rtol=rtol, atol=atol, name=_name(function))


def _objects(value: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(value, is_leaf=is_node) if is_node(leaf)]


def _same_result(plain: Any, lifted: Any, *, rtol: float, atol: float, name: str) -> None:
    parts = [jax.tree.flatten(value, is_leaf=is_node) for value in (plain, lifted)]
    (leaves, treedef), (others, other_treedef) = parts
    if treedef != other_treedef:
        raise AssertionError(f"{name} returns {treedef} in plain Python and {other_treedef} compiled.")
    for first, second in zip(leaves, others, strict=True):
        if is_node(first):
            _same_content(first, second, rtol, atol, name)
        elif hasattr(second, "shape"):
            _same_array(first, second, rtol, atol, f"a result of {name}")
        elif first != second:
            raise AssertionError(f"{name} returns {first!r} in plain Python and {second!r} compiled.")


def _same_content(plain: Any, lifted: Any, rtol: float, atol: float, name: str) -> None:
    for place, what in diff(plain, lifted):
        if not what.startswith("changed by norm"):
            raise AssertionError(f"{name} leaves {place} different compiled than in plain Python: {what}.")
    for first, second in zip(jax.tree.leaves(plain), jax.tree.leaves(lifted), strict=True):
        _same_array(first, second, rtol, atol, f"a leaf that {name} leaves")


def _same_array(first: Any, second: Any, rtol: float, atol: float, what: str) -> None:
    if jax.numpy.issubdtype(second.dtype, jax.dtypes.prng_key):
        first, second = jax.random.key_data(first), jax.random.key_data(second)
    values = [
        np.asarray(value).astype(np.float64 if np.asarray(value).dtype.kind != "c" else None)
        for value in (first, second)
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=rtol, atol=atol, err_msg=f"{what} differs, compiled (actual)")


def _words(found: Report) -> str:
    parts = [
        f"{field} {', '.join(names)}" for field in ("writes", "creates", "removes") if (names := getattr(found, field))
    ]
    parts += [f"sets {name} from {old!r} to {new!r}" for name, (old, new) in found.hyperparameters.items()]
    return "; ".join(parts) or "changes nothing"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__

"""Annotations decide what is a trained leaf, another leaf, or a hyperparameter."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import framework as fw
from framework.module.fields import ParamKind, StateKind, kind_of


class Cache(fw.StateKind):
    pass


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (fw.Param, ParamKind),
        (fw.State, StateKind),
        (fw.Param[Float[Array, "rows columns"]], ParamKind),
        (fw.State[jax.Array], StateKind),
        (Float[Array, "rows"], StateKind),
        (Float[np.ndarray, "rows"], StateKind),
        (jax.Array, StateKind),
        (Cache, Cache),
        (Annotated[jax.Array, Cache], Cache),
        (fw.Param | None, ParamKind),
        (Optional[fw.Param], ParamKind),  # noqa: UP045
        (list[fw.Param], ParamKind),
        (dict[str, list[fw.State]], StateKind),
        (tuple[fw.Param, ...], ParamKind),
        (Sequence[fw.Param], ParamKind),
        (Mapping[str, fw.State], StateKind),
        (int, None),
        (Any, None),
        (list[int], None),
        (fw.Module, None),
    ],
)
def test_the_kind_of_an_annotation(annotation: Any, kind: Any) -> None:
    assert kind_of(annotation) is kind


def test_a_kind_selects_its_subclasses_and_optimizers_see_trained_leaves_only() -> None:
    class Decoder(fw.Module):
        keys: Cache
        mean: fw.State
        weight: fw.Param

        def __init__(self) -> None:
            self.keys = self.mean = self.weight = jnp.zeros(2)

    decoder = Decoder()
    assert list(fw.select(decoder, Cache)) == ["keys"]
    assert list(fw.select(decoder, fw.State)) == ["keys", "mean"]
    assert list(fw.select(decoder, fw.Param)) == ["weight"]
    assert list(fw.select(decoder)) == ["keys", "mean", "weight"]


def test_an_array_without_annotation_is_refused_with_class_attribute_line_and_both_remedies() -> None:
    class Bare(fw.Module):
        def __init__(self) -> None:
            self.weight = jnp.ones(2)

    with pytest.raises(fw.errors.ModuleError) as refused:
        Bare()
    for part in ("Bare.weight", "test_fields.py:", "weight: fw.Param", "weight: fw.State"):
        assert part in str(refused.value)


def test_an_annotation_that_cannot_be_read_is_named() -> None:
    namespace: dict[str, Any] = {"__name__": "somewhere"}
    source = """
from __future__ import annotations
import framework as fw
def make(array):
    class Local(fw.StateKind): ...
    class Holder(fw.Module):
        cache: Local
    Holder().cache = array
"""
    exec(source, namespace)
    with pytest.raises(fw.errors.ModuleError, match=r"Holder\.cache .* annotation 'Local' cannot be read"):
        namespace["make"](jnp.ones(2))


def test_numbers_become_arrays_in_a_leaf_and_keep_its_dtype() -> None:
    class Rate(fw.Module):
        rate: fw.State

    module = Rate()
    module.rate = 0.5
    assert isinstance(module.rate, jax.Array)
    assert module.rate.dtype == jnp.float32 and not module.rate.weak_type
    module.rate = jnp.zeros((), jnp.bfloat16)
    module.rate = 1
    assert module.rate.dtype == jnp.bfloat16
    module.rate = np.arange(3, dtype=np.int8)
    assert isinstance(module.rate, jax.Array) and module.rate.dtype == jnp.int8


def test_reading_a_leaf_that_was_never_assigned_says_so() -> None:
    class Empty(fw.Module):
        weight: fw.Param

    with pytest.raises(AttributeError, match=r"'Empty' object has no attribute 'weight' yet.*`__init__` has not"):
        Empty().weight
    assert not hasattr(Empty, "weight")

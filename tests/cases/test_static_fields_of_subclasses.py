"""Fields keep their role in every kind of subclass: what a base class calls a leaf or static stays so."""

import dataclasses
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import pytest

import framework as fw

T = TypeVar("T")


@dataclasses.dataclass
class Base(fw.Module):
    a: fw.Param = 1.0
    b: int = 2


@dataclasses.dataclass
class AsDataclass(Base):
    c: fw.Param = 3.0


class WithInit(Base):
    c: fw.Param

    def __init__(self) -> None:
        super().__init__()
        self.c = 3.0


@dataclasses.dataclass
class AsGeneric(Base, Generic[T]):
    c: fw.Param = 3.0


class OfInt(AsGeneric[int]):
    pass


@dataclasses.dataclass
class WithoutInitField(Base):
    b: int = dataclasses.field(init=False, default=2)
    c: fw.Param = 3.0


@dataclasses.dataclass
class WithFactory(Base):
    b: int = dataclasses.field(default_factory=lambda: 2)
    c: fw.Param = dataclasses.field(default_factory=lambda: jnp.array(3.0))


class Loud:
    """A mixin that is no module."""

    volume = 11

    def loud(self) -> Any:
        return self.a * self.volume  # pyright: ignore[reportAttributeAccessIssue]


class MixinFirst(Loud, AsDataclass):
    pass


class MixinLast(AsDataclass, Loud):
    pass


@dataclasses.dataclass
class ModuleMixin(fw.Module):
    c: fw.Param = 3.0


@dataclasses.dataclass
class TwoModules(ModuleMixin, Base):
    pass


@dataclasses.dataclass
class TwoModulesSwapped(Base, ModuleMixin):
    pass


class Annotated(AsDataclass):
    b: int  # said again, without a default


@dataclasses.dataclass(kw_only=True)
class KeywordOnly(AsDataclass):
    pass


class ThirdLevel(WithInit):
    def __init__(self) -> None:
        super().__init__()
        self.b = 2


KINDS = [
    *(AsDataclass, WithInit, AsGeneric, AsGeneric[str], OfInt, WithoutInitField, WithFactory, MixinFirst, MixinLast),
    *(TwoModules, TwoModulesSwapped, Annotated, KeywordOnly, ThirdLevel),
]


# https://github.com/cgarciae/simple-pytree/issues/8
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_leaves_and_static_fields_are_the_same_in_every_kind_of_subclass(kind: Any) -> None:
    module = kind()
    assert sorted(float(leaf) for leaf in jax.tree.leaves(module)) == [1.0, 3.0]
    assert {name: float(leaf) for name, leaf in fw.select(module).items()} == {"a": 1.0, "c": 3.0}
    assert type(module.b) is int and module.b == 2
    rebuilt = jax.tree.map(lambda leaf: leaf, module)
    assert rebuilt.b == 2 and type(rebuilt) is type(module)
    assert jax.tree.structure(module) == jax.tree.structure(kind())
    other = kind()
    other.b = 5
    assert jax.tree.structure(module) != jax.tree.structure(other)


# https://github.com/patrick-kidger/equinox/issues/337
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_derivatives_see_the_leaves_only(kind: Any) -> None:
    seen: list[Any] = []

    def loss(module: Any) -> jax.Array:
        seen.append(module.b)
        return module.a**module.b * module.c

    lifted = fw.grad(loss)(kind())
    assert {name: float(value) for name, value in lifted.items()} == {"a": 6.0, "c": 1.0}
    plain = jax.jit(jax.grad(loss))(kind())
    assert (float(plain.a), float(plain.c), plain.b) == (6.0, 1.0, 2)
    assert [type(value) for value in seen] == [int, int]


@dataclasses.dataclass
class Power(fw.Module):
    weight: fw.Param = 3.0

    def __call__(self) -> jax.Array:
        return self.weight**self.exponent  # pyright: ignore[reportAttributeAccessIssue]


@dataclasses.dataclass
class Square(Power):
    exponent: int = dataclasses.field(init=False, default=2)


@dataclasses.dataclass
class Cube(Power):
    exponent: int = dataclasses.field(init=False, default=3)


@dataclasses.dataclass
class SetLater(Power):
    exponent: int = dataclasses.field(init=False)
    given: int = 2

    def __post_init__(self) -> None:
        self.exponent = self.given
        self.given = 0


class NamedPower(Power):
    def __init__(self, exponent: int) -> None:
        super().__init__()
        self.exponent = exponent


# https://github.com/cusp-ai-oss/kUPS/pull/114
@pytest.mark.parametrize(
    ("square", "cube"),
    [
        (Square, Cube),
        (lambda: SetLater(given=2), lambda: SetLater(given=3)),
        (lambda: NamedPower(2), lambda: NamedPower(3)),
    ],
    ids=["fixed in the class", "set after construction", "set in the constructor"],
)
def test_objects_that_differ_in_a_fixed_static_field_only_never_share_a_program(square: Any, cube: Any) -> None:
    assert jax.tree.structure(square()) != jax.tree.structure(cube())
    lifted, plain = fw.jit(lambda power: power()), jax.jit(lambda power: power())
    for _ in range(2):
        assert float(lifted(square())) == float(plain(square())) == 9.0
        assert float(lifted(cube())) == float(plain(cube())) == 27.0
    assert len(lifted.traces) == 2

"""The JSON form of hyperparameters: every value comes back with its type, and what cannot says so."""

import dataclasses
import enum
import functools
import json
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.module.codec import ALLOWED, CodecError, decode, encode, opaque_parts
from framework.module.hyper import FrozenDict, FrozenList, freeze, key

HERE = (*ALLOWED, __name__)


class Colour(enum.Enum):
    RED = "red"
    CRIMSON = "red"
    BLUE = 2


class Mode(enum.IntFlag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Window:
    size: int
    options: Any = None
    area: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "area", self.size**2)


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    name: str


class Outer:
    @staticmethod
    def inner(x: float) -> float:
        return x


def double(x: float) -> float:
    return 2 * x


def through_json(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value))), allow=HERE)


DTYPES = [
    np.dtype(name)
    for name in (
        "bool",
        "int8",
        "uint64",
        "float16",
        ">f4",
        "complex64",
        "M8[ns]",
        "U3",
        "bfloat16",
        "int4",
        "uint4",
    )
] + [np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu")]
NAMED = [
    jax.nn.relu,
    jax.nn.silu,
    jnp.add,
    np.tanh,
    np.float32,
    optax.adamw,
    int,
    max,
    Outer.inner,
    double,
    Colour,
    Window,
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**30),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.sampled_from([*Colour, Mode.READ, Mode.READ | Mode.WRITE, Ellipsis, *DTYPES, *NAMED]),
)


def nests(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(FrozenList),
        st.frozensets(scalars, max_size=3),
        st.dictionaries(scalars, inner, max_size=3).map(FrozenDict),
        st.builds(Pair, inner, inner),
        st.builds(Window, st.integers(), inner),
        st.builds(Slotted, st.text()),
        st.builds(lambda part, option: functools.partial(double, part, option=option), inner, inner),
    )


@given(st.recursive(scalars, nests, max_leaves=8))
def test_every_value_comes_back_equal_in_type_and_content(value: Any) -> None:
    back = through_json(value)
    assert type(back) is type(value)
    assert key(back) == key(value)
    assert not opaque_parts(encode(value))


@given(st.recursive(scalars, nests, max_leaves=5))
def test_encoding_is_the_same_every_time(value: Any) -> None:
    assert json.dumps(encode(through_json(value))) == json.dumps(encode(value))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1])
def test_floats_keep_their_bits(value: float) -> None:
    back = through_json(value)
    assert np.float64(back).tobytes() == np.float64(value).tobytes()


def test_numbers_of_equal_value_stay_apart() -> None:
    texts = {json.dumps(encode(value)) for value in (1, 1.0, True, 0, 0.0, -0.0, False, 1 + 0j, "1")}
    assert len(texts) == 9


def test_numbers_too_long_for_decimal_come_back() -> None:
    assert through_json(7**9000) == 7**9000
    assert through_json(-(7**9000)) == -(7**9000)


def test_plain_containers_keep_key_types_and_order() -> None:
    value = {3: [1, {"a": {2, 5}}], "3": None, (1, 2): (), 1.5: {}, True: []}
    back = through_json(value)
    assert back == value
    assert [type(name) for name in back] == [int, str, tuple, float, bool]
    assert type(back[3]) is list and type(back[3][1]) is dict and type(back[3][1]["a"]) is set


def test_numpy_scalars_keep_their_dtype_and_bits() -> None:
    for value in (np.float64(0.1), np.float16("nan"), np.int8(-3), np.bool_(True), ml_dtypes.bfloat16(1.5)):
        back = through_json(value)
        assert type(back) is type(value) and back.tobytes() == value.tobytes()


def test_structured_dtypes_come_back() -> None:
    dtype = np.dtype([("image", "<f4", (8, 8)), ("label", "<i4")])
    assert through_json(dtype) == dtype


def test_dtype_hyperparameters_of_jax_come_back() -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float32", "int4"):
        assert through_json(freeze(getattr(jnp, name))) == np.dtype(name)


def test_public_names_are_written_for_private_modules() -> None:
    assert encode(jax.nn.gelu) == {"import": "jax.nn:gelu"}
    assert encode(optax.sgd) == {"import": "optax:sgd"}
    assert through_json(jax.nn.gelu) is jax.nn.gelu


def test_a_dataclass_comes_back_without_calling_its_constructor() -> None:
    value = Window(3)
    object.__setattr__(value, "area", 100)  # as a field that was computed from something no longer known
    assert through_json(value).area == 100


def test_partials_keep_their_class_function_and_arguments() -> None:
    value = functools.partial(optax.adamw, 1e-3, b1=0.5)
    back = through_json(value)
    assert (back.func, back.args, back.keywords) == (optax.adamw, (1e-3,), {"b1": 0.5})
    tree = jax.tree_util.Partial(double, 2)
    assert type(through_json(tree)) is jax.tree_util.Partial


def opaque_values() -> list[Any]:
    rate = 0.1

    def closure(x: float) -> float:
        return rate * x

    @dataclasses.dataclass(frozen=True)
    class Local:
        x: int

    return [
        closure,
        lambda x: x,
        jax.tree.structure((1, {"a": 2})),
        Local(1),
        Local,
        object(),
        optax.adam(0.1).update,
    ]


@pytest.mark.parametrize("position", range(7))
def test_what_has_no_name_is_marked_and_reported(position: int) -> None:
    value = opaque_values()[position]
    encoded = json.loads(json.dumps(encode((1, value))))
    (text,) = opaque_parts(encoded)
    assert "0x" not in text
    with pytest.raises(CodecError, match="was stored as its description only"):
        decode(encoded, allow=HERE)


def test_opaque_marks_of_equal_code_are_equal() -> None:
    assert [encode(value) for value in opaque_values()] == [encode(value) for value in opaque_values()]


@pytest.mark.parametrize(
    "path", ["os:system", "subprocess:Popen", "builtins:eval", "builtins:__import__", "jaxtyping:Array"]
)
def test_names_outside_of_the_allowed_packages_are_refused(path: str) -> None:
    with pytest.raises(CodecError, match=r"is not imported, because .* packages that the reader allows"):
        decode({"import": path})


@pytest.mark.parametrize(
    "path",
    [
        "numpy:os.system",
        "framework.errors:os",
        "framework.errors:os.system",
        "framework.module.codec:Any",
        "jax:nope",
    ],
)
def test_allowed_packages_do_not_open_what_they_import(path: str) -> None:
    with pytest.raises(CodecError, match="no type or function of its own of that name"):
        decode({"import": path})


def test_the_caller_names_more_packages() -> None:
    with pytest.raises(CodecError, match=f"Add '{__name__.partition('.')[0]}' to `allow`"):
        decode(encode(double))
    assert decode(encode(double), allow=[__name__]) is double


@pytest.mark.parametrize(
    "encoded",
    [[], {}, {"tuple": 1}, {"what": 1}, {"tuple": [], "list": []}, {"dtype": "nothing"}, {"int": "x"},
    {"bytes": "%"},
     {"enum": [f"{__name__}:Colour", "GREEN"]}, {"dataclass": [f"{__name__}:Outer", []]},
     {"namedtuple": [f"{__name__}:Window", []]}, {"enum": [f"{__name__}:Window", "RED"]}, {"scalar": ["<f4",
     "00"]}],
)  # fmt: skip
def test_a_damaged_encoding_is_one_kind_of_error(encoded: Any) -> None:
    with pytest.raises(CodecError):
        decode(encoded, allow=HERE)

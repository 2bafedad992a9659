import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.cli.annotations import MisfitError, allows_text, fit


def _annotation(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("annotation", "value", "fitted"),
    [
        ("int", 3, 3),
        ("float", 3, 3.0),
        ("float", 1e-5, 1e-5),
        ("float | None", 1, 1.0),
        ("float | int", 1, 1),
        ("Optional[float]", None, None),
        ("typing.Optional[float]", 2, 2.0),
        ("Union[int, str]", "a", "a"),
        ("'float'", 2, 2.0),
        ("Literal['a', 1]", 1, 1),
        ("list[float]", [1, 2.5], [1.0, 2.5]),
        ("tuple[int, ...]", [1, 2], [1, 2]),
        ("tuple[int, float]", [1, 2], [1, 2.0]),
        ("Sequence[str]", ["a"], ["a"]),
        ("Annotated[float, 'metres']", 1, 1.0),
        ("list", [], []),
        ("Callable[[int], int]", "anything", "anything"),
        ("jax.Array", 3, 3),
    ],
)
def test_values_that_fit(annotation: str, value: Any, fitted: Any) -> None:
    result = fit(value, _annotation(annotation))
    assert result == fitted and repr(result) == repr(fitted)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("int", 3.0),
        ("int", True),
        ("int", None),
        ("float", "1e-3"),
        ("float", False),
        ("bool", 1),
        ("str", 7),
        ("int | None", "none"),
        ("Literal['a', 1]", True),
        ("Literal['a', 1]", "b"),
        ("list[int]", [1, "a"]),
        ("list[int]", 3),
        ("tuple[int, int]", [1]),
        ("list", 3),
    ],
)
def test_values_that_do_not_fit(annotation: str, value: Any) -> None:
    with pytest.raises(MisfitError):
        fit(value, _annotation(annotation))


def test_a_default_of_none_allows_none() -> None:
    assert fit(None, _annotation("int"), ast.Constant(None)) is None


@given(st.integers(-(2**53), 2**53))
def test_a_declared_float_is_always_a_float(value: int) -> None:
    result = fit(value, _annotation("float"))
    assert type(result) is float and result == value


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [("str", True), ("str | None", True), ("'Optional[str]'", True), ("str | int", False), ("int", False)],
)
def test_which_annotations_mean_text(annotation: str, expected: bool) -> None:
    assert allows_text(_annotation(annotation)) is expected

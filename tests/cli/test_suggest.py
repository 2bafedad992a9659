import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.cli.suggest import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "candidates", "expected"),
    [
        ("max_stepz", ["max_steps", "log_every"], "max_steps"),
        ("lr", ["learning_rate", "momentum"], "learning_rate"),
        ("wd", ["weight_decay", "width"], "weight_decay"),
        ("vocab", ["vocabulary_size", "width"], "vocabulary_size"),
        ("zzz", ["width"], None),
        ("anything", [], None),
    ],
)
def test_the_nearest_word(word: str, candidates: list[str], expected: str | None) -> None:
    assert nearest(word, candidates) == expected


@given(st.lists(st.from_regex(r"[a-z]{3,8}(_[a-z]{2,6})?", fullmatch=True), min_size=1, unique=True))
def test_a_right_word_is_nearest_to_itself(words: list[str]) -> None:
    assert all(nearest(word, words) == word for word in words)


def test_many_names_are_not_listed() -> None:
    assert did_you_mean("#", [f"name{i}" for i in range(50)]) == "nothing there has a similar name"
    assert did_you_mean("#", ["b", "a"], "x.") == "it can be: x.a, x.b"
    assert did_you_mean("#", []) == ""

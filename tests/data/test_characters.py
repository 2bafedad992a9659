"""The vocabulary of characters: fixed, and there and back."""

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.data import decode, encode, vocabulary

KNOWN = "\n\t" + "".join(map(chr, range(32, 127)))


def test_vocabulary_is_newline_tab_printable_ascii_and_unknown() -> None:
    assert vocabulary() == (*KNOWN, "\ufffd")
    assert set(string.printable) - set("\r\x0b\x0c") == set(KNOWN)


@given(text=st.text(st.characters(codec=None)))
def test_property_encode_is_the_place_in_the_vocabulary(text: str) -> None:
    assert encode(text).tolist() == [KNOWN.index(c) if c in KNOWN else len(KNOWN) for c in text]


@given(text=st.text(KNOWN))
def test_property_text_of_the_vocabulary_survives(text: str) -> None:
    assert decode(encode(text)) == text


def test_every_id_survives() -> None:
    assert encode(decode(range(98))).tolist() == list(range(98))


@pytest.mark.parametrize("text", ["\x7f", "\x80", "\r", "\0", "é", "\U0001f600", "\ud800"])
def test_characters_outside_of_the_vocabulary_are_one_unknown_each(text: str) -> None:
    assert encode("a" + text + "b").tolist() == [67, 97, 68]


@pytest.mark.parametrize("number", [-1, 98, 1000])
def test_ids_outside_of_the_vocabulary_are_unknown(number: int) -> None:
    assert decode(np.array([number, 67])) == "\ufffda"

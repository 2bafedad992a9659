"""The characters that source text is made of, numbered in the same way on every machine."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_CHARACTERS = ("\n", "\t", *map(chr, range(32, 127)), _UNKNOWN)
_UNKNOWN_ID = len(_CHARACTERS) - 1
_FIRST_NOT_ASCII = 128


def _ids_by_code() -> NDArray[np.uint8]:
    table = np.full(_FIRST_NOT_ASCII + 1, _UNKNOWN_ID, np.uint8)
    for number, character in enumerate(_CHARACTERS[:-1]):
        table[ord(character)] = number
    table.flags.writeable = False
    return table


_IDS = _ids_by_code()


def vocabulary() -> tuple[str, ...]:
    r"""Returns the characters by id: newline, tab, printable ASCII, and one that stands for all others.

    Example:
        >>> len(vocabulary()), vocabulary()[:4]
        (98, ('\n', '\t', ' ', '!'))
    """
    return _CHARACTERS


def encode(text: str) -> NDArray[np.uint8]:
    """Returns the ids of the characters of a text.

    Args:
        text: any text; characters outside of the vocabulary share the last id.

    Returns:
        uint8 of shape `[len(text)]`.

    Example:
        >>> encode("a = 1").tolist()
        [67, 2, 31, 2, 19]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))
    return _IDS[np.minimum(codes, _FIRST_NOT_ASCII)]


def decode(ids: Iterable[int] | NDArray[np.integer]) -> str:
    r"""Returns the text of some ids.

    Args:
        ids: integers of shape `[size]`. Those outside of the vocabulary, which a model with more outputs
            than there are characters can produce, become the character of the unknown.

    Returns:
        Text of that many characters.

    Example:
        >>> decode([67, 2, 31, 2, 19])
        'a = 1'
        >>> decode(encode("caf\u00e9")) == "caf\ufffd"
        True
    """
    return "".join(_CHARACTERS[number] if 0 <= number <= _UNKNOWN_ID else _UNKNOWN for number in map(int, ids))

"""The order of an epoch: a permutation, from the bits that the definition of Philox gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from framework.data.order import LARGEST_SEED, epoch_offset, epoch_order

SEEDS = st.integers(0, LARGEST_SEED)
MASK = 2**64 - 1


def philox_4x64_10(counter: list[int], key: list[int]) -> list[int]:
    """The generator as Salmon et al. define it (2011, "Parallel Random Numbers: As Easy as 1, 2, 3")."""
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [
            (second >> 64) ^ counter[1] ^ key[0],
            second & MASK,
            (first >> 64) ^ counter[3] ^ key[1],
            first & MASK,
        ]
        key = [(key[0] + 0x9E3779B97F4A7C15) & MASK, (key[1] + 0xBB67AE8584CAA73B) & MASK]
    return counter


def bits(seed: int, epoch: int, use: int, count: int) -> list[int]:
    blocks = [philox_4x64_10([block, 0, 0, use], [seed, epoch]) for block in range(1, count // 4 + 2)]
    return [number for block in blocks for number in block][:count]


@given(seed=SEEDS, epoch=st.integers(0, 1000), size=st.integers(1, 50))
def test_property_order_sorts_the_numbers_of_the_published_generator(seed: int, epoch: int, size: int) -> None:
    numbers = bits(seed, epoch, 0, size)
    assert epoch_order(seed, epoch, size).tolist() == sorted(range(size), key=numbers.__getitem__)


@given(seed=SEEDS, epoch=st.integers(0, 1000), limit=st.integers(1, 1000))
def test_property_offset_is_the_first_number_of_another_part_of_the_counter(seed: int, epoch: int, limit: int) -> None:
    assert epoch_offset(seed, epoch, limit) == bits(seed, epoch, 1, 1)[0] % limit


def test_each_example_is_as_likely_at_each_place() -> None:
    epochs, size = 6000, 6
    orders = np.stack([epoch_order(7, epoch, size) for epoch in range(epochs)])
    counts = np.stack([np.bincount(orders[:, place], minlength=size) for place in range(size)])
    expected = epochs / size
    # 25 degrees of freedom: a fair shuffle stays below this in all but one of 10 000 seeds.
    assert ((counts - expected) ** 2 / expected).sum() * (size - 1) / size < 61.0

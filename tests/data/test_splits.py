"""What the data package promises as a whole."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from framework.data import ArrayBatches, Splits


def test_splits_are_frozen_and_facts_are_their_own() -> None:
    batches = ArrayBatches({"x": np.arange(4)}, 2, shuffle=False)
    first, second = Splits(batches, batches), Splits(batches, batches)
    assert first.test is None
    first.facts["num_classes"] = 3
    assert second.facts == {}
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.train = batches  # type: ignore[misc]


def test_reading_data_does_not_load_jax() -> None:
    program = "import sys, framework; framework.data.digits(); print('jax' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"

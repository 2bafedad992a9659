"""How modules look in a notebook."""

import jax.numpy as jnp
import pytest
import treescope

import framework as fw
from framework.nn.models import MLP

# treescope looks at every name in NumPy, this one among them
pytestmark = pytest.mark.filterwarnings("ignore:The chararray class is deprecated:DeprecationWarning")


def test_treescope_draws_modules_their_hyperparameters_containers_and_arrays() -> None:
    model = MLP(4, [3], 2, rngs=fw.Rngs(0))
    text = treescope.render_to_text(model)
    assert text.startswith("MLP(") and "layers=[" in text and "Linear(" in text
    assert "weight=" in text and "float32(4, 3)" in text
    assert "<table" in treescope.render_to_html(model) or "treescope" in treescope.render_to_html(model)


def test_a_dict_of_modules_is_shown_as_a_dict() -> None:
    group = fw.trackers.Group({"loss": fw.trackers.Mean()})
    group.update(loss=jnp.ones(2))
    assert "trackers={" in treescope.render_to_text(group) and "'loss': Mean(" in treescope.render_to_text(group)

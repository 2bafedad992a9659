"""What flattening a module and planning anew after a change of structure cost."""

import dataclasses
import statistics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
from _timing import compare
from dispatch import Layer, Model, lifted


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class PlainLayer:
    w: Any
    b: Any
    m: Any
    v: Any
    dtype: Any = dataclasses.field(default=jnp.float32, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class PlainModel:
    layers: list[PlainLayer]


def flattening(depth: int) -> None:
    plain = PlainModel([PlainLayer(*(jnp.zeros(()) for _ in range(4))) for _ in range(depth)])
    model, layer = Model(depth), Layer()
    alone = plain.layers[0]
    print(f"flatten, {depth} layers x 4 leaves")
    compare(
        {"register_dataclass": lambda: jax.tree.flatten(plain), "fw.Module": lambda: jax.tree.flatten(model)}, calls=100
    )
    print("flatten, one layer")
    compare(
        {"register_dataclass": lambda: jax.tree.flatten(alone), "fw.Module": lambda: jax.tree.flatten(layer)},
        calls=2000,
    )


def planning(depth: int, rounds: int = 60) -> None:
    """Times calls after a hyperparameter was set to the other of two values, whose programs are both compiled."""
    model, plain = Model(depth), Model(depth)
    changed: list[float] = []
    same: list[float] = []
    for number in range(rounds):
        model.layers[depth // 2].dtype = (jnp.float32, jnp.float16)[number % 2]
        for one, times in ((model, changed), (plain, same)):
            start = time.perf_counter()
            lifted(one)
            times.append(time.perf_counter() - start)
    extra = statistics.median(changed[10:]) - statistics.median(same[10:])
    print(f"planning anew, {depth} layers: {1e6 * extra:.0f} us, {1e6 * extra / depth:.2f} us for each module")


if __name__ == "__main__":
    print(f"jax {jax.__version__}, Python {sys.version.split()[0]}")
    for layers in (50, 250):
        flattening(layers)
        planning(layers)

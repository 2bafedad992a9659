"""What a warm compiled call costs beside one `jax.jit` on a flat list: 4 scalar leaves in each of many layers, +1."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
from _timing import compare

import framework as fw


class Layer(fw.Module):
    w: fw.Param
    b: fw.Param
    m: fw.State
    v: fw.State
    dtype: Any = jnp.float32

    def __init__(self) -> None:
        self.w, self.b, self.m, self.v = (jnp.zeros(()) for _ in range(4))


class Model(fw.Module):
    def __init__(self, depth: int) -> None:
        self.layers = [Layer() for _ in range(depth)]


@fw.jit
def lifted(model: Model) -> None:
    for layer in model.layers:
        layer.w, layer.b, layer.m, layer.v = layer.w + 1, layer.b + 1, layer.m + 1, layer.v + 1


def main(depth: int) -> None:
    flat = jax.jit(lambda leaves: [leaf + 1 for leaf in leaves], donate_argnums=0)
    tree = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)
    state: dict[str, Any] = {
        "flat": [jnp.zeros(()) for _ in range(4 * depth)],
        "dict": {f"layer{i}": {name: jnp.zeros(()) for name in "wbmv"} for i in range(depth)},
        "module": Model(depth),
    }
    model = Model(depth)

    def call(name: str, function: Any) -> Any:
        def run() -> None:
            state[name] = function(state[name])

        return run

    print(f"{depth} layers x 4 leaves, jax {jax.__version__}, Python {sys.version.split()[0]}")
    compare(
        {
            "jax.jit on a flat list": call("flat", flat),
            "fw.jit on a module": lambda: lifted(model),
            "jax.jit on a nested dict": call("dict", tree),
            "jax.jit on a module": call("module", tree),
        },
        calls=max(2000 // depth, 5),
    )


if __name__ == "__main__":
    for depth in (50, 250):
        main(depth)

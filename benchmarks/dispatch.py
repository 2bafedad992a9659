"""What a warm compiled call costs beside one `jax.jit` on a flat list: 4 scalar leaves in each of many layers, +1."""

import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from _timing import compare
from flax import nnx

import framework as fw

NAMES = "wbmv"


class Layer(fw.Module):
    w: fw.Param
    b: fw.Param
    m: fw.State
    v: fw.State
    dtype: Any = jnp.float32

    def __init__(self) -> None:
        self.w, self.b, self.m, self.v = (jnp.zeros(()) for _ in NAMES)


class Model(fw.Module):
    def __init__(self, depth: int) -> None:
        self.layers = [Layer() for _ in range(depth)]


@fw.jit
def lifted(model: Model) -> None:
    for layer in model.layers:
        layer.w, layer.b, layer.m, layer.v = layer.w + 1, layer.b + 1, layer.m + 1, layer.v + 1


class EquinoxLayer(eqx.Module):
    w: jax.Array
    b: jax.Array
    m: jax.Array
    v: jax.Array


class EquinoxModel(eqx.Module):
    layers: list[EquinoxLayer]


class NNXLayer(nnx.Module):
    def __init__(self) -> None:
        self.w, self.b = nnx.Param(jnp.zeros(())), nnx.Param(jnp.zeros(()))
        self.m, self.v = nnx.BatchStat(jnp.zeros(())), nnx.BatchStat(jnp.zeros(()))


class NNXModel(nnx.Module):
    def __init__(self, depth: int) -> None:
        self.layers = nnx.List([NNXLayer() for _ in range(depth)])


def nnx_step(model: NNXModel) -> None:
    for layer in model.layers:
        for name in NAMES:
            variable = getattr(layer, name)
            variable[...] = variable[...] + 1


def add(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + 1, tree)


def make_state(depth: int) -> dict[str, Any]:
    zeros: Callable[[], list[Any]] = lambda: [jnp.zeros(()) for _ in NAMES]  # noqa: E731
    dicts: Callable[[int], Any] = lambda n: {  # noqa: E731
        f"layer{i}": dict(zip(NAMES, zeros(), strict=True)) for i in range(n)
    }
    return {
        "flat": [leaf for _ in range(depth) for leaf in zeros()],
        "dict": dicts(depth),
        "linen": {"params": dicts(depth // 2), "batch_stats": dicts(depth - depth // 2)},
        "equinox": EquinoxModel([EquinoxLayer(*zeros()) for _ in range(depth)]),
        "module": Model(depth),
    }


def main(depth: int) -> None:
    tree = jax.jit(add, donate_argnums=0)
    state, model = make_state(depth), Model(depth)

    def functional(name: str, function: Any) -> Any:
        def run() -> None:
            state[name] = function(state[name])

        return run

    graph, partial_model = NNXModel(depth), NNXModel(depth)
    nnx_jit, cached = nnx.jit(nnx_step), nnx.cached_partial(nnx.jit(nnx_step), partial_model)
    functions = {
        "jax.jit on a flat list": functional("flat", jax.jit(add, donate_argnums=0)),
        "fw.jit on a module": lambda: lifted(model),
        "jax.jit on a nested dict": functional("dict", tree),
        "jax.jit on linen's variables": functional("linen", tree),
        "eqx.filter_jit on a module": functional("equinox", eqx.filter_jit(add, donate="all")),
        "jax.jit on our module": functional("module", tree),
        "nnx.cached_partial": cached,
        "nnx.jit, graph mode": lambda: nnx_jit(graph),
    }
    if hasattr(nnx, "jit_partial"):  # in newer versions
        options = {"graph": False, "graph_updates": False}
        functions["nnx.jit_partial, tree mode"] = nnx.jit_partial(nnx_step, NNXModel(depth), **options)
    print(f"{depth} layers x 4 leaves, jax {jax.__version__}, Python {sys.version.split()[0]}")
    compare(functions, calls=max(1000 // depth, 3))


if __name__ == "__main__":
    for depth in (50, 250):
        main(depth)

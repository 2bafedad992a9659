"""What it costs to trace 24 transformer blocks, with the gradient: blocks compiled inside by this library and by hand."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import framework as fw
from framework.nn.models import Block

DEPTH, WIDTH, HEADS, LENGTH = 24, 128, 4, 64
X = jnp.ones((2, LENGTH, WIDTH))


class Stack(fw.Module):
    def __init__(self, call: Callable[[Any, Any], Any]) -> None:
        rngs = fw.Rngs(0)
        self.blocks = [Block(WIDTH, HEADS, rngs=rngs) for _ in range(DEPTH)]
        self.call = call

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = self.call(block, x)
        return (x**2).mean()


def lifted(*, compiled: bool) -> Callable[[], object]:
    """Our blocks; the function of a block is made anew, so that nothing was traced before."""
    body = Block.__call__.function  # pyright: ignore[reportFunctionMemberAccess]

    def block(block: Any, x: Any) -> Any:
        return body(block, x)

    model = Stack(fw.jit(block) if compiled else block)
    step = fw.jit(lambda model, x: fw.value_and_grad(lambda model: model(x))(model), donate=False)
    return lambda: step.trace(model, X)


def by_hand(*, compiled: bool) -> Callable[[], object]:
    """The same computation as pure functions of dicts of arrays."""
    blocks = [fw.select(block, fw.Param) for block in Stack(lambda block, x: x).blocks]

    def norm(p: Any, name: str, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]

    def linear(p: Any, name: str, x: Any) -> Any:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(p: Any, x: Any) -> Any:
        split = (*x.shape[:-1], HEADS, WIDTH // HEADS)
        q, k, v = (linear(p, f"attention.{name}", x).reshape(split) for name in ("query", "key", "value"))
        return linear(p, "attention.out", jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))

    def block(p: Any, x: Any) -> Any:
        x = x + attention(p, norm(p, "attention_norm", x))
        return x + linear(p, "contract", jax.nn.gelu(linear(p, "expand", norm(p, "norm", x))))

    call = jax.jit(block) if compiled else block

    def loss(blocks: Any, x: Any) -> Any:
        for p in blocks:
            x = call(p, x)
        return (x**2).mean()

    return lambda: jax.jit(jax.value_and_grad(loss)).trace(blocks, X)


WAYS: dict[str, Callable[[], Callable[[], object]]] = {
    "jax.jit blocks by hand": lambda: by_hand(compiled=True),
    "fw.jit blocks": lambda: lifted(compiled=True),
    "unrolled by hand": lambda: by_hand(compiled=False),
    "fw blocks, unrolled": lambda: lifted(compiled=False),
}


def main(rounds: int = 5) -> None:
    print(f"tracing {DEPTH} blocks with the gradient, jax {jax.__version__}, Python {sys.version.split()[0]}")
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for round_number in range(rounds + 1):
        for name, make in WAYS.items():
            function = make()
            start = time.perf_counter()
            function()
            if round_number:  # the first warms up what JAX itself caches
                times[name].append(time.perf_counter() - start)
    first = times["jax.jit blocks by hand"]
    for name, values in times.items():
        ratio = statistics.median(value / base for value, base in zip(values, first, strict=True))
        print(f"  {name:44s} {1e3 * statistics.median(values):10.1f} ms   ratio {ratio:6.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Counts the floating-point operations and the memory traffic of a traced program, by the module that does them."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp

_MARK = re.compile(r"module(\d+)!")


class Cost(NamedTuple):
    """What some operations cost, before XLA fuses any of them.

    Attributes:
        flops: floating-point operations; a multiplication and the addition after it are two.
        bytes: bytes that the operations read and write.
    """

    flops: int = 0
    bytes: int = 0

    def __add__(self, other: object) -> "Cost":  # not the sum of tuples
        assert isinstance(other, Cost)
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


def mark(number: int) -> str:
    """Returns the name of the scope in which a module of this number runs."""
    return f"module{number}!"


def costs_by_mark(jaxpr: Any) -> dict[int | None, Cost]:
    """Adds up the costs of a program by the innermost marked scope.

    Args:
        jaxpr: the program, a `ClosedJaxpr` or `Jaxpr`.

    Returns:
        A dict from the number of the scope to the costs; None for operations outside of all scopes. The body of a loop
        counts as often as it runs where that is known (`scan`) and once where it is not; of branches the dearest counts.
    """
    found: defaultdict[int | None, Cost] = defaultdict(Cost)
    _add(getattr(jaxpr, "jaxpr", jaxpr), None, 1, found)
    return dict(found)


def _add(jaxpr: Any, outer: int | None, times: int, found: "defaultdict[int | None, Cost]") -> None:
    for equation in jaxpr.eqns:
        marks = _MARK.findall(str(equation.source_info.name_stack))
        own = int(marks[-1]) if marks else outer
        name = equation.primitive.name
        inner = list(_inner(equation.params))
        if name == "cond":
            branches: list[defaultdict[int | None, Cost]] = []
            for branch in inner:
                branches.append(defaultdict(Cost))
                _add(branch, own, times, branches[-1])
            for number, cost in max(branches, key=lambda one: sum(cost.flops for cost in one.values())).items():
                found[number] += cost
        elif inner and not name.startswith(("reduce", "scatter", "sort", "select_and")):
            length = equation.params["length"] if name == "scan" else 1
            for body in inner[-1:] if name == "while" else inner:
                _add(body, own, times * length, found)
        else:
            flops, traffic = (
                _flops(equation),
                sum(_bytes(value.aval) for value in (*equation.invars, *equation.outvars)),
            )
            found[own] += Cost(times * flops, times * traffic)


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """Yields the programs in the parameters of an equation; of a function with its own derivative only the function."""
    for name, value in params.items():
        if "jvp" in name or "fwd" in name or "bwd" in name:
            continue
        for part in value if isinstance(value, tuple | list) else (value,):
            body = getattr(part, "jaxpr", part)
            if hasattr(body, "eqns"):
                yield body


def _flops(equation: Any) -> int:
    name, (out, *_) = equation.primitive.name, equation.outvars
    size = _size(out.aval)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2 * size * math.prod(left[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2 * size * math.prod(kernel) // max(features, 1)
    if name in _FREE or not jnp.issubdtype(out.aval.dtype, jnp.inexact):
        return 0
    if name.startswith(("reduce", "cum", "arg")):
        return _size(equation.invars[0].aval)
    return size


_FREE = {
    *(
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "squeeze",
        "expand_dims",
        "rev",
        "iota",
        "split",
        "concatenate",
        "pad",
    ),
    *("slice", "dynamic_slice", "dynamic_update_slice", "gather", "select_n", "copy", "copy_p", "convert_element_type"),
    *("bitcast_convert_type", "stop_gradient", "device_put", "sharding_constraint", "optimization_barrier"),
    *("random_bits", "random_wrap", "random_unwrap", "random_seed", "random_fold_in"),
}


def _size(aval: Any) -> int:
    return math.prod(getattr(aval, "shape", ()))


def _bytes(aval: Any) -> int:
    return _size(aval) * getattr(getattr(aval, "dtype", None), "itemsize", 0)

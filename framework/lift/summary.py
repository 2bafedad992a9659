"""`summary`: the leaves of an object, and for an example of its inputs what each module in it costs to run."""

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from framework.lift.costs import Cost, costs_by_mark, mark
from framework.lift.jit import Jit
from framework.lift.lifted import Lifted
from framework.module.base import Module
from framework.module.display import ModuleCosts, Summary, leaf_rows
from framework.module.fields import Kind
from framework.module.graph import walk
from framework.module.paths import node_paths


def summary(module: Module, *inputs: Any, **keywords: Any) -> Summary:
    """Lists the leaves of an object with shape, dtype, size and whether they are trained, and what its modules cost.

    Args:
        module: a module.
        inputs: example arguments of the module, arrays or `jax.ShapeDtypeStruct`; without any, no costs are counted.
        keywords: example keyword arguments.

    Returns:
        The summary; print it for a table. Costs are floating-point operations and bytes read and written, before XLA's
        optimisation: of one call, and of a train step, which is the call and the gradient for all trained leaves.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> print(fw.summary(fw.nn.Linear(2, 3, rngs=fw.Rngs(0))))
        path    shape   dtype    parameters  bytes  trained
        ------  ------  -------  ----------  -----  -------
        weight  [2, 3]  float32           6     24  yes
        bias    [3]     float32           3     12  yes
        Linear: 9 trained of 9 parameters, 36 bytes
        >>> fw.summary(fw.nn.Linear(2, 3, rngs=fw.Rngs(0)), jnp.ones((10, 2))).costs[0].forward.flops
        150
    """
    rows = leaf_rows(module)
    if not inputs and not keywords:
        return Summary(type(module).__name__, rows)
    return Summary(type(module).__name__, rows, _costs(module, inputs, keywords))


def _costs(module: Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[ModuleCosts, ...]:
    lifted = Lifted((module, *inputs), keywords, static_scalars=False)
    root = lifted.graph.structure.roots[0]
    paths = node_paths(lifted.graph, (root,))
    trained = [index for index, slot in enumerate(lifted.graph.slots) if _is_trained(slot.kind)]

    call = _in_scopes({path: number for number, path in paths.items()})

    def forward(leaves: list[Any], arrays: list[Any]) -> list[Any]:
        return lifted.run(call, leaves, arrays)[1]

    def gradient(params: list[Any], leaves: list[Any], arrays: list[Any]) -> Any:
        def loss(params: list[Any]) -> Any:
            merged = dict(enumerate(leaves)) | dict(zip(trained, params, strict=True))
            outputs = forward(list(merged.values()), arrays)
            return sum((out.sum() for out in outputs if jnp.issubdtype(out.dtype, jnp.floating)), jnp.zeros(()))

        return jax.value_and_grad(loss)(params)

    leaves, arrays = lifted.leaves, lifted.call.arrays
    own = costs_by_mark(jax.make_jaxpr(forward)(leaves, arrays))
    params = [leaves[index] for index in trained]
    both = costs_by_mark(jax.make_jaxpr(gradient)(params, leaves, arrays)) if trained else own
    ordered = sorted(((path, number) for number, path in paths.items()), key=lambda one: one[1])
    found: list[ModuleCosts] = []
    for path, number in ordered:
        node = lifted.graph.nodes[number]
        if not callable(node):
            continue
        inside = {other for other, name in paths.items() if not path or name == path or name.startswith(f"{path}.")}
        inside |= {None} if number == root else set[int | None]()
        parts = [sum((costs.get(one, Cost()) for one in inside), Cost()) for costs in (own, both)]
        found.append(ModuleCosts(path, type(node).__name__, *parts))
    return tuple(found)


def _is_trained(kind: type[Kind] | None) -> bool:
    return kind is not None and kind.trained


def _in_scopes(numbers: Mapping[str, int]) -> Callable[..., Any]:
    """Makes a function that calls a twin with every module in it in a named scope, which operations keep for the count."""

    def call(module: Any, *inputs: Any, **keywords: Any) -> Any:
        graph = walk([module])
        for index, path in node_paths(graph).items():
            twin = graph.nodes[index]
            if isinstance(twin, Module) and callable(twin):
                scoped = _scoped(type(twin))
                scoped.numbers[twin] = numbers[path]
                object.__setattr__(twin, "__class__", scoped)
        return module(*inputs, **keywords)

    return call


@functools.cache
def _scoped(cls: type[Module]) -> Any:
    """Makes a class that is `cls` and runs in the scope of its instance's number."""
    numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    function: Any = cls.__call__  # pyright: ignore[reportFunctionMemberAccess]
    function = function.function if isinstance(function, Jit) else function  # one program with the scopes in it

    def __call__(self: Any, *inputs: Any, **keywords: Any) -> Any:
        with jax.named_scope(mark(numbers[self])):
            return function(self, *inputs, **keywords)

    known = {name: getattr(cls, name) for name in ("_cached_properties", "_defaults", "_kinds")}
    return type(cls.__name__, (cls,), {"__call__": __call__, "numbers": numbers, "__module__": cls.__module__, **known})

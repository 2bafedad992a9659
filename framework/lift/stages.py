"""A compiled call in stages: traced, lowered, compiled; to look at, or to compile before the first call."""

import functools
from typing import Any

import jax

from framework.errors import LiftError
from framework.lift.effects import result_of
from framework.lift.plan import Call, take_apart
from framework.lift.report import Report, report
from framework.lift.site import Site
from framework.module.graph import walk_read


class Traced:
    """A traced call; made by the method `trace` of a compiled function.

    Attributes:
        jaxpr: the flat program, as JAX writes it down.
    """

    def __init__(self, owner: Any, site: Site, call: Call) -> None:
        donated, kept = site.gather()
        self._owner, self._site, self._call, self._graph = owner, site, call, site.graph()
        self._traced: Any = site.program.outer.trace(donated, kept, call.arrays)
        self.jaxpr: Any = self._traced.jaxpr
        self._outcome: Any = self._traced.out_info

    @functools.cached_property
    def effects(self) -> Report:
        """What the call would change."""
        return report(self._outcome.effects, self._graph, donated=self._site.program.donated)

    @property
    def out_info(self) -> Any:
        """The result, with `jax.ShapeDtypeStruct` for arrays; returned objects are left out."""
        effects = self._outcome.effects
        if effects.returns_objects:
            raise LiftError(
                "the call returns an object, which has no shape. Use `fw.eval_shape(f, *args)`, which returns objects with "
                "shapes in place of arrays."
            )
        return result_of(
            effects, (), [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in self._outcome.values]
        )

    def lower(self) -> "Lowered":
        """Lowers the program to StableHLO."""
        return Lowered(self._owner, self._traced.lower(), self._site, self._call)


class Lowered:
    """A lowered call; made by the method `lower` of a compiled function."""

    def __init__(self, owner: Any, lowered: Any, site: Site, call: Call) -> None:
        self._owner, self._lowered, self._site, self._call = owner, lowered, site, call

    def as_text(self, dialect: str | None = None) -> str:
        """Returns the program as text, in StableHLO or another dialect that JAX knows."""
        return self._lowered.as_text(dialect)

    def cost_analysis(self) -> dict[str, float]:
        """Returns XLA's estimate of the costs before optimisation, such as `"flops"`."""
        return _one(self._lowered.cost_analysis())

    def compile(self, compiler_options: dict[str, Any] | None = None) -> "Compiled":
        """Compiles the program.

        Args:
            compiler_options: options of XLA by name.
        """
        return Compiled(self._owner, self._lowered.compile(compiler_options), self._site, self._call)


class Compiled:
    """A compiled call; made by the method `compile` of a `Lowered`.

    It is called like the function, with objects of the structure and arrays of the shapes that it was compiled for.
    """

    def __init__(self, owner: Any, compiled: Any, site: Site, call: Call) -> None:
        self._owner, self._compiled, self._program = owner, compiled, site.program
        self._name = call.treedef, call.roles

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program and writes what it changes to the objects it is passed.

        Raises:
            LiftError: if the objects or static arguments are not those that it was compiled for.
            TypeError: if an array has another shape or dtype.
        """
        if self._owner._fix is not None:
            args, kwargs = self._owner._fix(args, kwargs)
        call = take_apart(args, kwargs, static_scalars=False)
        graph = walk_read(call.roots)
        if graph.structure is not self._program.structure or self._name != (call.treedef, call.roles):
            raise LiftError(
                "a program that was compiled ahead of time was called with objects of another structure, or with other "
                "arguments, than it was compiled for. Compile it again: `f.lower(*args).compile()`; `f(*args)` does so by "
                "itself."
            )
        site = Site(self._program, graph, call.roots)
        donated, kept = site.gather()
        return site.write(self._compiled(donated, kept, call.arrays), donated, kept)

    def cost_analysis(self) -> dict[str, float]:
        """Returns XLA's estimate of the costs after optimisation, such as `"flops"` and `"bytes accessed"`."""
        return _one(self._compiled.cost_analysis())

    def memory_analysis(self) -> Any:
        """Returns XLA's account of memory in bytes: arguments, outputs, temporary buffers, aliased (donated) buffers."""
        return self._compiled.memory_analysis()

    def as_text(self) -> str:
        """Returns the optimised program as text."""
        return self._compiled.as_text()


def _one(costs: Any) -> dict[str, float]:
    return dict(costs[0] if isinstance(costs, list | tuple) else costs or {})

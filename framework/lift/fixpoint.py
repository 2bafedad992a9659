"""Lazy initialisation in one compilation of the step.

A module that makes its leaves at its first call has another structure afterwards, so that the program of the first call
runs once and the second call needs another one. Here the first call is split: a small program makes the new leaves, and
the program of all later calls does the rest. That is done only if the two together are proved to compute what the first
call would have: the expressions of all results are compared, operation by operation.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import Literal, jaxpr_as_fun

from framework.lift.effects import Effects, Input, Output, apply
from framework.lift.plan import Call
from framework.lift.program import Outcome, Program
from framework.module.graph import Graph, LeafRef, Structure, build, walk


@dataclass(frozen=True)
class Initialisation:
    """The program that makes the leaves which a first call makes.

    Attributes:
        effects: what it does to the objects.
        program: the compiled program, from leaves and arrays to output values.
    """

    effects: Effects
    program: Any

    def run(self, graph: Graph, arrays: Sequence[Any]) -> None:
        """Makes the leaves of objects that were not called yet."""
        leaves = graph.gather()
        apply(self.effects, graph.nodes, leaves, self.program(leaves, list(arrays)))


def find_initialisation(first: Program, graph: Graph, call: Call, later: Any) -> Initialisation | None:
    """Splits a first call, if that is the same.

    Args:
        first: the prepared program of the first call.
        graph: the objects of the call.
        call: the arguments.
        later: a function from call and graph to the prepared program for another structure.

    Returns:
        The program to run before the one of all later calls; None if the call creates no leaves, or is not proved to be
        the same when it is split.
    """
    if first.effects is None or first.effects.same_structure or not first.created:
        return None
    traced = first.inner.trace(graph.gather(), list(call.arrays))
    outcome: Outcome = traced.out_info
    effects, before = outcome.effects, first.structure
    if traced.jaxpr.effects or len(effects.after.nodes) != len(before.nodes) or effects.returns_objects:
        return None
    slots, old_slots = _leaf_slots(effects.after), _leaf_slots(before)
    if slots is None or old_slots is None:
        return None
    made = {place: effects.output_count + index for index, place in enumerate(first.created)}
    if any(source is None for source in (*_starts(effects, slots, old_slots, made),)):
        return None
    shapes = [_shape(value) for value in (*graph.gather(), *outcome.values)]
    ends = [shapes[_position(source, len(graph.slots))] for source in effects.leaves]
    twins = build(effects.after, ends)
    roots = [twins[root] for root in before.roots]
    settled = walk(roots)
    if settled.structure.nodes != effects.after.nodes:
        return None
    program: Program = later(call._replace(roots=roots), settled)
    again = program.inner.trace(settled.gather(), list(call.arrays))
    after: Outcome = again.out_info
    if not after.effects.same_structure or again.jaxpr.effects:
        return None
    starts = _starts(effects, slots, old_slots, made, written=set(after.effects.written))
    found = _Expressions()
    inputs: list[Hashable] = [("input", index) for index in range(len(graph.slots) + len(call.arrays))]
    values = found.outputs(traced.jaxpr, inputs)
    begun = [_pick(source, inputs, values) for source in starts]
    if [shapes[_position(source, len(graph.slots))] for source in starts if source] != ends:
        return None
    values_after = found.outputs(again.jaxpr, [*begun, *inputs[len(graph.slots) :]])
    same = all(
        _pick(one, inputs, values) == _pick(other, begun, values_after)
        for one, other in zip(effects.leaves, after.effects.leaves, strict=True)
    )
    if not same or not _same_results(effects, after.effects, values, values_after):
        return None
    wanted = [source.value for source in starts if isinstance(source, Output)]
    function = jaxpr_as_fun(traced.jaxpr)

    def initialise(leaves: list[Any], arrays: list[Any]) -> list[Any]:
        outputs = function(*leaves, *arrays)
        return [outputs[index] for index in wanted]  # XLA leaves out what else the call computes

    numbers = {index: Output(position) for position, index in enumerate(wanted)}
    sources = tuple(numbers[source.value] if isinstance(source, Output) else source for source in starts if source)
    made_only = Effects(before, effects.after, sources, jax.tree.structure(None), (), len(wanted), effects.lines)
    return Initialisation(made_only, jax.jit(initialise))


def _leaf_slots(structure: Structure) -> dict[tuple[int, Any], int] | None:
    """Maps node number and name to leaf number; None if a leaf is inside of a tuple or foreign pytree."""
    found: dict[tuple[int, Any], int] = {}
    for number, (layout, refs) in enumerate(structure.nodes):
        for name, ref in zip(layout.dynamic, refs, strict=True):
            if isinstance(ref, LeafRef):
                found[number, name] = ref.leaf
            elif hasattr(ref, "children"):
                return None
    return found


def _starts(
    effects: Effects,
    slots: dict[tuple[int, Any], int],
    old_slots: dict[tuple[int, Any], int],
    made: dict[tuple[int, Any], int],
    written: set[int] | None = None,
) -> list[Input | Output | None]:
    """Returns for each leaf of the settled structure what it begins with: as it was, as it was made, or as it ends."""
    starts: list[Input | Output | None] = [None] * len(slots)
    for place, leaf in slots.items():
        if place in old_slots and (written is None or leaf in written or isinstance(effects.leaves[leaf], Input)):
            starts[leaf] = Input(old_slots[place])
        elif place in old_slots:
            starts[leaf] = effects.leaves[leaf]  # only the initialisation writes it, as it does a stream of keys
        elif place in made:
            starts[leaf] = Output(made[place])
    return starts


def _position(source: Input | Output, inputs: int) -> int:
    return source.leaf if isinstance(source, Input) else inputs + source.value


def _pick(source: Any, inputs: Sequence[Hashable], values: Sequence[Hashable]) -> Hashable:
    return inputs[source.leaf] if isinstance(source, Input) else values[source.value]


def _shape(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _same_results(one: Effects, other: Effects, values: Sequence[Hashable], values_after: Sequence[Hashable]) -> bool:
    if one.treedef != other.treedef:
        return False
    return all(
        values[a.value] == values_after[b.value] if isinstance(a, Output) and isinstance(b, Output) else a == b
        for a, b in zip(one.returned, other.returned, strict=True)
    )


class _Expressions:
    """Numbers expressions, so that two are equal exactly when they are the same operations on the same inputs."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def _number(self, expression: Hashable) -> Hashable:
        return self._numbers.setdefault(expression, len(self._numbers))

    def outputs(self, closed: Any, inputs: Sequence[Hashable]) -> list[Hashable]:
        """Returns the expressions of the results of a program."""
        jaxpr = closed.jaxpr
        known: dict[Any, Hashable] = dict(zip(jaxpr.invars, inputs, strict=True))
        known |= {
            variable: ("constant", id(value)) for variable, value in zip(jaxpr.constvars, closed.consts, strict=True)
        }

        def read(atom: Any) -> Hashable:
            return ("literal", str(atom.aval), repr(atom.val)) if isinstance(atom, Literal) else known[atom]

        for equation in jaxpr.eqns:
            operands = tuple(read(atom) for atom in equation.invars)
            parameters = tuple(
                sorted((name, _text(value)) for name, value in equation.params.items() if _matters(name))
            )
            for position, variable in enumerate(equation.outvars):
                expression = equation.primitive.name, parameters, operands, position, str(variable.aval)
                known[variable] = self._number(expression)
        return [read(atom) for atom in jaxpr.outvars]


def _matters(name: str) -> bool:
    """Tells whether a parameter says what an operation computes; rules for derivatives do not, here where all are taken."""
    return not any(part in name for part in ("jvp", "fwd", "bwd", "ctx_mesh"))


def _text(value: Any) -> str:
    if hasattr(value, "consts") and hasattr(value, "jaxpr"):
        return f"{value} with {[id(constant) for constant in value.consts]}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    return f"function {id(value)}" if callable(value) and not isinstance(value, type) else repr(value)

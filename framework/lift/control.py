"""`scan`, `fori_loop`, `while_loop`, `cond` and `switch` over functions that change objects."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from framework.errors import LiftError
from framework.lift.effects import Effects, Input, Output, Static, apply, own_slots, result_of
from framework.lift.lifted import Lifted, require_same_structure, require_same_types, structure_changes
from framework.lift.plan import ARRAY
from framework.module.graph import NodeRef, walk


def scan(
    function: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Runs `carry, y = function(carry, x)` along the first axis of `xs`, in one compiled loop.

    Objects in the carry keep what each iteration changes. An object in `xs` stands for one object per iteration, stacked
    along the first axis of its leaves; what is written to its leaves is written back stacked.

    Args:
        function: maps `(carry, x)` to `(carry, y)`; it returns the objects of the carry where it got them.
        init: the first carry, with objects and arrays.
        xs: arrays and stacked objects with a common first axis, or None.
        length: number of iterations, needed without `xs`.
        reverse: whether to run from the last to the first.
        unroll: see `jax.lax.scan`.

    Returns:
        The last carry, with the caller's objects, and the stacked `y`.

    Raises:
        LiftError: if a hyperparameter, an attribute, or the shape or dtype of a leaf changes in an iteration.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> tracker = fw.trackers.Sum()
        >>> def body(tracker, x):
        ...     tracker.update(x)
        ...     return tracker, tracker.compute()
        >>> _, running = fw.scan(body, tracker, jnp.arange(4.0))
        >>> running.tolist(), float(tracker.compute())
        ([0.0, 1.0, 3.0, 6.0], 6.0)
    """
    loop = _Loop((init, xs), carried=1, name="scan")
    lifted = loop.lifted
    xs_arrays, stacked = lifted.call.arrays[loop.carry_arrays :], loop.stacked
    sliced = jax.eval_shape(lambda values: jax.tree.map(lambda x: x[0], values), [lifted.leaves[i] for i in stacked])
    sliced_arrays = [jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)) for x in xs_arrays]
    loop.discover(function, dict(zip(stacked, sliced, strict=True)), sliced_arrays)

    def body(carry: Any, x: Any) -> Any:
        values, y, slices = loop.step(function, carry, dict(zip(stacked, x[0], strict=True)), x[1])
        return values, (y, slices)

    inputs = [lifted.leaves[leaf] for leaf in stacked], xs_arrays
    final, (ys, slices) = jax.lax.scan(body, loop.first, inputs, length, reverse=reverse, unroll=unroll)
    return loop.finish(final, slices), loop.unpack(ys)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """Runs `value = body(i, value)` for `i` from `lower` to `upper - 1`, keeping what it changes on objects in `value`.

    Args:
        lower: first index; a Python number together with `upper` makes the loop differentiable in reverse.
        upper: index after the last.
        body: maps `(i, value)` to `value`; it returns the objects where it got them.
        init: the first value, with objects and arrays.

    Returns:
        The last value, with the caller's objects.

    Raises:
        LiftError: if a hyperparameter, an attribute, or the shape or dtype of a leaf changes in an iteration.

    Example:
        >>> import framework as fw
        >>> tracker = fw.trackers.Sum()
        >>> def body(i, tracker):
        ...     tracker.update(i * 1.0)
        ...     return tracker
        >>> float(fw.fori_loop(0, 4, body, tracker).compute())
        6.0
    """
    loop = _Loop((init,), carried=1, name="fori_loop")
    index = jax.ShapeDtypeStruct((), jnp.result_type(lower, upper))

    def indexed(i: Any) -> Callable[[Any], tuple[Any, None]]:
        return lambda value: (body(i, value), None)

    jax.eval_shape(lambda i: loop.discover_with(indexed(i)), index)
    final = jax.lax.fori_loop(lower, upper, lambda i, carry: loop.step(indexed(i), carry, {}, [])[0], loop.first)
    return loop.finish(final, [])


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """Runs `value = body(value)` while `condition(value)`, keeping what the body changes on objects in `value`.

    Args:
        condition: maps the value to a scalar bool; it may read objects and not change them.
        body: maps the value to the next; it returns the objects where it got them.
        init: the first value, with objects and arrays.

    Returns:
        The last value, with the caller's objects.

    Raises:
        LiftError: if the condition changes an object, or the structure of one changes in the body.

    Example:
        >>> import framework as fw
        >>> tracker = fw.trackers.Sum()
        >>> def body(tracker):
        ...     tracker.update(2.0)
        ...     return tracker
        >>> float(fw.while_loop(lambda tracker: tracker.total < 5, body, tracker).compute())
        6.0
    """
    loop = _Loop((init,), carried=1, name="while_loop")

    def step(value: Any) -> tuple[Any, None]:
        return body(value), None

    loop.discover(step, {}, [])
    final = jax.lax.while_loop(
        lambda carry: loop.test(condition, carry), lambda carry: loop.step(step, carry, {}, [])[0], loop.first
    )
    return loop.finish(final, [])


class _Loop:
    """What the loops share: leaves that the body writes are carried, the others are constants of the loop."""

    def __init__(self, args: tuple[Any, ...], *, carried: int, name: str) -> None:
        self.name = name
        self.lifted = Lifted(args, static_scalars=False)
        call, graph = self.lifted.call, self.lifted.graph
        first = call.treedef.children()[0].children()
        leaf_count = sum(child.num_leaves for child in first[:carried])
        roles, other = call.roles[:leaf_count], call.roles[leaf_count:]
        self.carry_arrays = sum(role is ARRAY for role in roles)
        stacked = walk([call.roots[role.root] for role in other if role.name == "object"])
        carry = walk([call.roots[role.root] for role in roles if role.name == "object"])
        both = {id(node) for node in stacked.nodes} & {id(node) for node in carry.nodes}
        if both:
            shared = next(node for node in carry.nodes if id(node) in both)
            raise LiftError(
                f"fw.{name}: a {type(shared).__name__} is both in the carry and in the stacked inputs; an object is either "
                f"one object for all iterations or one for each. Pass `{type(shared).__name__}.clone()` in one place."
            )
        own = {id(node) for node in stacked.nodes}
        self.stacked = [leaf for leaf, slot in enumerate(graph.slots) if id(graph.nodes[slot.node]) in own]
        self.written: tuple[int, ...] = ()
        self.effects: Effects | None = None

    def discover(self, function: Callable[..., Any], slices: dict[int, Any], arrays: Sequence[Any]) -> None:
        """Finds out which leaves the body writes, by an abstract run."""

        def run(leaves: list[Any], own: list[Any], other: list[Any]) -> None:
            self._note(function, leaves, [*own, *other])

        leaves = [slices.get(leaf, value) for leaf, value in enumerate(self.lifted.leaves)]
        jax.eval_shape(run, leaves, self.lifted.call.arrays[: self.carry_arrays], list(arrays))

    def discover_with(self, function: Callable[..., Any]) -> None:
        """As `discover`, inside of an abstract run that the caller has begun."""
        self._note(function, self.lifted.leaves, self.lifted.call.arrays)

    def _note(self, function: Callable[..., Any], leaves: Sequence[Any], arrays: Sequence[Any]) -> None:
        effects, _ = self.lifted.run(function, leaves, arrays)
        self._check_carry(effects)
        require_same_structure(self.lifted, effects, self.name)
        carried = set(effects.written) - set(self.stacked)
        # A leaf that moved to another slot is written, too: the slots of the next iteration hold other leaves.
        carried |= {leaf for leaf, source in enumerate(effects.leaves) if source != Input(leaf)} - set(self.stacked)
        self.written = tuple(sorted(carried))

    @property
    def first(self) -> tuple[list[Any], list[Any]]:
        """The carry before the first iteration: written leaves, and arrays of the carry."""
        arrays = [jnp.asarray(array) for array in self.lifted.call.arrays[: self.carry_arrays]]
        return [self.lifted.leaves[leaf] for leaf in self.written], arrays

    def _leaves(self, carry: Any, slices: dict[int, Any]) -> list[Any]:
        known = dict(zip(self.written, carry[0], strict=True)) | slices
        return [known.get(leaf, value) for leaf, value in enumerate(self.lifted.leaves)]

    def step(
        self, function: Callable[..., Any], carry: Any, slices: dict[int, Any], arrays: Sequence[Any]
    ) -> tuple[Any, list[Any], list[Any]]:
        """Runs one iteration on twins.

        Returns:
            The next carry, the arrays of `y`, and the new slices of stacked leaves.
        """
        leaves = self._leaves(carry, slices)
        effects, values = self.lifted.run(function, leaves, [*carry[1], *arrays])
        require_same_structure(self.lifted, effects, self.name)
        require_same_types(self.lifted, effects, leaves, values, self.name)
        after = [leaves[s.leaf] if isinstance(s, Input) else values[s.value] for s in effects.leaves]
        split = self._check_carry(effects)
        returned = [values[part.value] for part in effects.returned if isinstance(part, Output)]
        self.effects = effects
        count = sum(isinstance(part, Output) for part in effects.returned[:split])
        following = [after[leaf] for leaf in self.written], returned[:count]
        return following, returned[count:], [after[leaf] for leaf in self.stacked]

    def _check_carry(self, effects: Effects) -> int:
        """Refuses a carry that comes back with other objects or another structure; returns its number of parts."""
        call = self.lifted.call
        expected = call.treedef.children()[0].children()[0]
        parts = effects.treedef.children()
        if len(parts) != 2 or parts[0] != expected:
            raise LiftError(
                f"fw.{self.name}: the function returned a carry of another structure than it got. It got {expected} and "
                f"returned {parts[0] if parts else effects.treedef} (`*` is an array or an object). Return the carry as "
                f"it came, with the same containers."
            )
        split = expected.num_leaves
        for role, part in zip(call.roles[:split], effects.returned[:split], strict=True):
            if role.name == "object" and part != NodeRef(self.lifted.graph.structure.roots[role.root]):
                raise LiftError(
                    f"fw.{self.name}: the function returned another object in the carry than the one it got. Change the "
                    f"object in place and return it: `return model, y`."
                )
        if any(isinstance(part, NodeRef) for part in effects.returned[split:]):
            raise LiftError(
                f"fw.{self.name}: an object was returned as y. Keep it in the carry, and return its arrays."
            )
        return split

    def test(self, condition: Callable[[Any], Any], carry: Any) -> Any:
        """Runs the condition of a while loop on twins, which it may not change."""
        leaves = self._leaves(carry, {})
        effects, values = self.lifted.run(condition, leaves, carry[1])
        if effects.written or not effects.same_structure:
            where = [self.lifted.path(leaf) for leaf in effects.written] or structure_changes(self.lifted, effects)
            raise LiftError(
                f"fw.{self.name}: the condition changed {', '.join(where)}. A condition only reads; make the change in "
                f"the body."
            )
        (part,) = effects.returned
        return values[part.value] if isinstance(part, Output) else part.value  # pyright: ignore[reportAttributeAccessIssue]

    def finish(self, final: Any, slices: Sequence[Any]) -> Any:
        """Writes back the leaves after the last iteration, and returns the carry with the caller's objects."""
        lifted, call = self.lifted, self.lifted.call
        new = dict(zip(self.written, final[0], strict=True))
        assert self.effects is not None
        changed = set(self.effects.written)
        new |= {leaf: value for leaf, value in zip(self.stacked, slices, strict=True) if leaf in changed}
        values = list(new.values())
        position = {leaf: Output(index) for index, leaf in enumerate(new)}
        sources = tuple(position.get(leaf, Input(leaf)) for leaf in range(len(lifted.leaves)))
        structure = lifted.graph.structure
        apply(Effects(structure, structure, sources, None, (), len(values)), lifted.graph.nodes, lifted.leaves, values)
        return call.rebuild(call.roots, [*final[1], *call.arrays[self.carry_arrays :]])[0][0]

    def unpack(self, arrays: Sequence[Any]) -> Any:
        """Returns `y` of a scan from its stacked arrays; what was no array is returned as it is."""
        assert self.effects is not None
        children = self.effects.treedef.children()
        rest = iter(arrays)
        parts = self.effects.returned[children[0].num_leaves :]
        return jax.tree.unflatten(children[1], [p.value if isinstance(p, Static) else next(rest) for p in parts])


def cond(condition: Any, true_function: Callable[..., Any], false_function: Callable[..., Any], *operands: Any) -> Any:
    """Runs one of two functions, chosen while the program runs, keeping what it changes on objects in the operands.

    Args:
        condition: a scalar bool.
        true_function: called with the operands if the condition is true.
        false_function: called with the operands if it is false.
        operands: objects and arrays.

    Returns:
        What the chosen function returns.

    Raises:
        LiftError: if the functions return or leave behind different structures.

    Example:
        >>> import framework as fw
        >>> tracker = fw.trackers.Sum()
        >>> fw.cond(True, lambda t: t.update(3.0), lambda t: None, tracker)
        >>> float(tracker.compute())
        3.0
    """
    return _branch("cond", jnp.asarray(condition, jnp.int32), (false_function, true_function), operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Runs the function number `index`, chosen while the program runs, keeping what it changes on objects.

    Args:
        index: a scalar integer; out of range it is clamped.
        branches: functions of the operands.
        operands: objects and arrays.

    Returns:
        What the chosen function returns.

    Raises:
        LiftError: if the functions return or leave behind different structures.

    Example:
        >>> import framework as fw
        >>> tracker = fw.trackers.Sum()
        >>> fw.switch(1, [lambda t: t.update(1.0), lambda t: t.update(2.0)], tracker)
        >>> float(tracker.compute())
        2.0
    """
    return _branch("switch", jnp.asarray(index, jnp.int32), tuple(branches), operands)


def _branch(name: str, index: Any, branches: tuple[Callable[..., Any], ...], operands: tuple[Any, ...]) -> Any:
    lifted = Lifted(operands, static_scalars=True)
    arrays = lifted.call.arrays
    found: list[Effects] = []
    shapes: list[list[Any]] = []

    def discover(branch: Callable[..., Any]) -> None:
        def run(leaves: list[Any], arrays: list[Any]) -> list[Any]:
            effects, values = lifted.run(branch, leaves, arrays)
            found.append(effects)
            return [jnp.asarray(value) for value in values]

        shapes.append(jax.eval_shape(run, lifted.leaves, arrays))

    for branch in branches:
        discover(branch)
    shared = _unify(lifted, found, name)
    _require_same_types(lifted, found, shapes, shared, name)

    def flat(branch: Callable[..., Any]) -> Callable[..., Any]:
        def run(leaves: list[Any], arrays: list[Any]) -> list[Any]:
            effects, values = lifted.run(branch, leaves, arrays)
            written = [
                leaves[source.leaf] if isinstance(source, Input) else values[source.value]
                for source, out in zip(effects.leaves, shared.leaves, strict=True)
                if isinstance(out, Output)
            ]
            parts = zip(effects.returned, shared.returned, strict=True)
            returned = [_value(part, values) for part, out in parts if isinstance(out, Output)]
            return [*written, *map(jnp.asarray, returned)]

        return run

    values = jax.lax.switch(index, [flat(branch) for branch in branches], lifted.leaves, arrays)
    everything = apply(shared, lifted.graph.nodes, lifted.leaves, values)
    return result_of(shared, everything, values)


def _require_same_types(
    lifted: Lifted, found: Sequence[Effects], shapes: Sequence[Sequence[Any]], shared: Effects, name: str
) -> None:
    """Refuses a leaf that becomes another type in one branch than in another, naming it before JAX does so without."""
    own = own_slots(shared.before, shared.after)
    for leaf, out in enumerate(shared.leaves):
        if not isinstance(out, Output):
            continue
        types: list[str] = []
        for effects, values in zip(found, shapes, strict=True):
            source = effects.leaves[leaf]
            value = lifted.leaves[source.leaf] if isinstance(source, Input) else values[source.value]
            types.append(f"{value.dtype}{list(value.shape)}")
        if len(set(types)) > 1:
            each = ", ".join(f"{kind} in branch {number}" for number, kind in enumerate(types))
            path = lifted.path(own[leaf]) if leaf in own else "a new leaf"
            raise LiftError(
                f"fw.{name}: {path} is {each} afterwards. Which branch runs is known only when the program runs, so that "
                f"shape and dtype must be the same; convert the value, as in `x.astype(self.total.dtype)`."
            )


def _value(part: Any, values: Sequence[Any]) -> Any:
    return values[part.value] if isinstance(part, Output) else part.value


def _unify(lifted: Lifted, found: Sequence[Effects], name: str) -> Effects:
    """Returns the effects that all branches can have: a leaf that one of them writes is an output of each."""
    first = found[0]
    for number, other in enumerate(found[1:], 1):
        if other.after.nodes != first.after.nodes:
            ours, theirs = structure_changes(lifted, first), structure_changes(lifted, other)
            only = [change for change in (*ours, *theirs) if change not in ours or change not in theirs]
            raise LiftError(
                f"fw.{name}: the branches leave objects with different structures ({'; '.join(only) or 'other objects'}). "
                f"Which branch runs is known only when the program runs, so hyperparameters and attributes must come out "
                f"the same. Make the change in both branches or before, or keep the value as a State."
            )
        if other.treedef != first.treedef:
            raise LiftError(
                f"fw.{name}: branch 0 returns {first.treedef} and branch {number} returns {other.treedef}. All branches "
                f"return the same containers."
            )
    outputs = 0
    leaves: list[Input | Output] = []
    for sources in zip(*(effects.leaves for effects in found), strict=True):
        if isinstance(sources[0], Input) and all(source == sources[0] for source in sources):
            leaves.append(sources[0])
        else:
            leaves.append(Output(outputs))
            outputs += 1
    returned: list[Any] = []
    for parts in zip(*(effects.returned for effects in found), strict=True):
        nodes = [part for part in parts if isinstance(part, NodeRef)]
        statics = [part for part in parts if isinstance(part, Static)]
        if nodes and (len(nodes) < len(parts) or len(set(nodes)) > 1):
            raise LiftError(f"fw.{name}: the branches return different objects; return the same object in each.")
        if nodes or (len(statics) == len(parts) and all(part == parts[0] for part in parts)):
            returned.append(parts[0])
        else:
            returned.append(Output(outputs))
            outputs += 1
    return Effects(first.before, first.after, tuple(leaves), first.treedef, tuple(returned), outputs)

"""Random objects and random programs that change them, and a comparison that does not use the framework's own walk."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import framework as fw
from framework.module.containers import Dict, List

LEAVES = ("p0", "p1", "s0", "s1")
HYPERPARAMETERS = ("h0", "h1", "h2")
CHILDREN = ("child", "others", "table", "pair")


class Box(fw.Module):
    """An object with every kind of content; no attribute needs to be there."""

    p0: fw.Param
    p1: fw.Param
    s0: fw.State
    s1: fw.State
    bag: list[fw.Param]
    book: dict[str, fw.State]


def is_box(value: Any) -> bool:
    return isinstance(value, Box)


def boxes(root: Box) -> list[Box]:
    """Returns the boxes below and including one, each once, depth first."""
    found: list[Box] = []

    def visit(value: Any) -> None:
        if is_box(value):
            if not any(value is box for box in found):
                found.append(value)
                for part in list(vars(value).values()):
                    visit(part)
        elif isinstance(value, dict):
            for part in dict.values(value):
                visit(part)
        elif isinstance(value, list | tuple):
            for part in list(value):
                visit(part)

    visit(root)
    return found


def occurrences(root: Box) -> dict[int, int]:
    """Counts the paths that lead to each box."""
    count: dict[int, int] = {}

    def visit(value: Any) -> None:
        if is_box(value):
            count[id(value)] = count.get(id(value), 0) + 1
            for part in list(vars(value).values()):
                visit(part)
        elif isinstance(value, dict):
            for part in dict.values(value):
                visit(part)
        elif isinstance(value, list | tuple):
            for part in list(value):
                visit(part)

    visit(root)
    return count


def contains(outer: Any, inner: Any) -> bool:
    """Tells whether a box can be reached from another."""
    return any(inner is box for box in boxes(outer))


class Way(NamedTuple):
    """How a program runs: how its nested calls are made, how it takes a gradient, and what its control flow is."""

    call: Callable[..., Any]
    gradient: Callable[[Box, "Program", "Way"], dict[str, Any]]
    control: dict[str, Callable[..., Any]]


@dataclass(frozen=True)
class Program:
    """The steps of a program: name, where, with what, and a hyperparameter. It is static: JAX does not look into it."""

    steps: tuple[tuple[Any, ...], ...]


class Failure(Exception):
    """What a program raises on purpose."""


def scale(value: Any) -> Any:
    return value + value


def double(value: Any) -> Any:
    return value * 2


def run(root: Box, x: Any, program: Program, way: Way) -> Any:
    """Runs a program: each step is a name and numbers that choose where it acts.

    Values are small whole numbers, so that a compiled and a plain run agree in every bit.
    """
    results: list[Any] = []
    for name, where, which, value in program.steps:
        there = boxes(root)
        box = there[where % len(there)]
        other = there[which % len(there)]
        results.append(STEPS[name](box, other, x, which, value, way))
    return results


def _leaf(box: Box, which: int) -> str | None:
    names = [name for name in LEAVES if name in vars(box)]
    return names[which % len(names)] if names else None


def fits(name: str, leaf: Any) -> bool:
    """Tells whether a leaf may be trained under a name: whole numbers have no gradient."""
    return not name.startswith("p") or floating(leaf)


def write(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    name = _leaf(box, which)
    if name is None:
        return None
    setattr(box, name, getattr(box, name) + jnp.asarray(x).astype(getattr(box, name).dtype))
    return getattr(box, name)


def set_state(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    name = "s0" if which % 2 else "s1"
    if name in vars(box):
        setattr(box, name, getattr(box, name) * 2)


def double_state(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    name = "s0" if which % 2 else "s1"
    if name in vars(box):
        setattr(box, name, (getattr(box, name) * 2).astype(getattr(box, name).dtype))


def overwrite(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    setattr(box, LEAVES[which % 4], jnp.full((which % 3,), 2.0 if which % 4 < 2 else 3) * x)


def move_leaf(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    first, second = _leaf(box, which), _leaf(other, which + 1)
    if first and second:
        a, b = getattr(box, first), getattr(other, second)
        if fits(first, b) and fits(second, a):
            setattr(box, first, b)
            setattr(other, second, a)


def share_leaf(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    name = _leaf(other, which)
    target = LEAVES[(which + 1) % 4]
    if name and fits(target, getattr(other, name)):
        setattr(box, target, getattr(other, name))


def set_hyperparameter(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    setattr(box, HYPERPARAMETERS[which % 3], value)
    return None


def use_hyperparameter(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    found = vars(box).get(HYPERPARAMETERS[which % 3])
    return (type(found).__name__, x * found) if isinstance(found, int | float) else repr(found)


def delete(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    names = list(vars(box))
    if names:
        delattr(box, sorted(names)[which % len(names)])


def new_child(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    made = Box()
    made.s0 = jnp.asarray(x) * 1
    made.h0 = value
    box.child = made
    return None


def replace_child(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    if not contains(other, box):
        setattr(box, CHILDREN[which % 2], other if which % 2 == 0 else [other, value])


def pair(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    if not contains(other, box):
        box.pair = (other, value, other) if which % 2 else (value, other)


def append(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    items = vars(box).get("others")
    if isinstance(items, list) and not contains(other, box):
        items.append(other if which % 3 else value)
    elif items is None:
        box.others = []


def pop(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    items = vars(box).get("others")
    if isinstance(items, list) and len(items):
        return is_box(items.pop(which % len(items)))
    return None


def insert(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    items = vars(box).get("others")
    if isinstance(items, list) and not contains(other, box):
        items.insert(which, other)
        items.reverse()
        return len(items)
    return None


def put(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    table = vars(box).get("table")
    if isinstance(table, dict) and not contains(other, box):
        table["zyx"[which % 3]] = other if which % 2 else value
        return list(table)
    if table is None:
        box.table = {}
    return None


def take_out(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    table = vars(box).get("table")
    if isinstance(table, dict) and len(table):
        del table[list(table)[which % len(table)]]


def bag(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    if "bag" not in vars(box):
        box.bag = [jnp.ones(2), jnp.zeros(2)]
    elif which % 3 == 0:
        box.bag.append(jnp.ones(2) * x)
    elif which % 3 == 1 and len(box.bag):
        box.bag[which % len(box.bag)] = box.bag[0] + x
    else:
        box.bag.reverse()
    return sum(box.bag) if len(box.bag) else None


def book(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    if "book" not in vars(box):
        box.book = {"b": jnp.ones((), jnp.int32), "a": jnp.zeros(())}
    elif which % 2:
        box.book["cab"[which % 3]] = jnp.asarray(x) * 2
    else:
        for name in box.book:
            box.book[name] = box.book[name] + 1
    return jnp.stack([page.astype(jnp.float32) for page in box.book.values()])


def nested(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    steps = (("write", which, which, value), ("set_hyperparameter", 0, which, value), ("append", which, 1, value))
    return way.call(box, x, Program(steps), way)


def nested_reading(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    return way.call(box, x, Program((("use_hyperparameter", 0, which, value),)), way)


def nested_two(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    holder = Box()
    holder.others = [box, other, box]
    way.call(holder, x, Program((("move_leaf", 1, 2, value), ("write", 1, which, value))), way)
    return holder.others[0] is box, holder.others[2] is box


def gradient(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    steps = (("set_state", which, which, value), ("set_hyperparameter", 0, which, value))
    return way.gradient(box, Program(steps), way)


def controlled(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    """Runs leaf writes inside of control flow, which may hold more control flow: structure has to stay there."""
    names = sorted(way.control)  # JAX sorts a dict that is an argument
    steps = [("write", which, which, value), ("double_state", which + 1, which, value)]
    if which >= 2:
        steps.append(("controlled", which // 2, which - 2, value))
    program = Program(tuple(steps))
    return way.control[names[(which + len(repr(value))) % len(names)]](lambda box: run(box, x, program, way), box, x)


def fail(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    raise Failure


def returned(box: Box, other: Box, x: Any, which: int, value: Any, way: Way) -> Any:
    return [box, {"other": other, "twice": box}]


STEPS: dict[str, Callable[..., Any]] = {
    step.__name__: step
    for step in (
        write,
        set_state,
        double_state,
        overwrite,
        move_leaf,
        share_leaf,
        set_hyperparameter,
        use_hyperparameter,
        delete,
        new_child,
    )
    + (replace_child, pair, append, pop, insert, put, take_out, bag, book, nested, nested_reading, nested_two)
    + (gradient, controlled, fail, returned)
}


def floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def loss(root: Box, x: Any, program: Program, way: Way) -> Any:
    run(root, x, program, way)
    return trained_sum(root)


def trained_sum(value: Any) -> Any:
    """Sums three times every trained leaf, once for each path that leads to it."""
    total = jnp.zeros(())
    if is_box(value):
        for name, part in list(vars(value).items()):
            if name in ("p0", "p1"):
                total = total + 3 * part.sum().astype(jnp.float32)
            elif name not in ("s0", "s1", "book", "bag"):
                total = total + trained_sum(part)
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            total = total + trained_sum(part)
    return total


def trained(path: str) -> bool:
    return path.rpartition(".")[2] in ("p0", "p1")


def lifted_gradient(root: Box, program: Program, way: Way) -> dict[str, Any]:
    chosen = {path: leaf for path, leaf in fw.select(root).items() if trained(path)}
    if not chosen:
        run(root, 1, program, way)
        return {}
    return fw.grad(loss, wrt=trained)(root, 1, program, way)


def plain_gradient(root: Box, program: Program, way: Way) -> dict[str, Any]:
    """The gradient of `loss` by counting: the program writes states only, so each path adds 3."""
    count = occurrences(root)
    chosen = {path: leaf for path, leaf in fw.select(root).items() if trained(path)}
    result = {}
    for path, leaf in chosen.items():
        box = root
        for part in path.split(".")[:-1]:
            box = (
                box[int(part)]
                if isinstance(box, list | tuple)
                else box[part]
                if isinstance(box, dict)
                else vars(box)[part]
            )
        result[path] = jnp.full(leaf.shape, 3 * count[id(box)], leaf.dtype)
    run(root, 1, program, way)
    return result


def _nothing(body: Callable[[Box], Any]) -> Callable[[Box], None]:
    def call(box: Box) -> None:
        body(box)

    return call


def _loop(body: Callable[[Box], Any], box: Box, x: Any) -> Any:
    for _ in range(3):
        body(box)
    return jnp.arange(3) * 2


def _count(body: Callable[[Box], Any], box: Box, x: Any) -> None:
    for _ in range(2):
        body(box)


PLAIN_CONTROL: dict[str, Callable[..., Any]] = {
    "scan": _loop,
    "fori_loop": _count,
    "while_loop": _count,
    "cond": lambda body, box, x: _nothing(body)(box) if x > 1 else None,
    "switch": lambda body, box, x: None if x > 1 else _nothing(body)(box),
    "remat": lambda body, box, x: _nothing(body)(box),
    "vmap": lambda body, box, x: (body(box), jnp.arange(3) * 2)[1],  # all elements write the same
    "jit": lambda body, box, x: _nothing(body)(box),
}


def _again(body: Callable[[Box], Any]) -> Callable[[Any, Box], Box]:
    def call(_: Any, box: Box) -> Box:
        body(box)
        return box

    return call


def _count_lifted(body: Callable[[Box], Any], box: Box, x: Any) -> None:
    def again(carry: Any) -> Any:
        count, box = carry
        body(box)
        return count + 1, box

    fw.while_loop(lambda carry: carry[0] < 2, again, (0, box))


LIFTED_CONTROL: dict[str, Callable[..., Any]] = {
    "scan": lambda body, box, x: fw.scan(lambda box, i: (_again(body)(i, box), i * 2), box, jnp.arange(3))[1],
    "fori_loop": lambda body, box, x: _nothing(lambda box: fw.fori_loop(0, 2, _again(body), box))(box),
    "while_loop": _count_lifted,
    "cond": lambda body, box, x: fw.cond(jnp.asarray(x) > 1, _nothing(body), lambda box: None, box),
    "switch": lambda body, box, x: fw.switch(jnp.asarray(x) > 1, [_nothing(body), lambda box: None], box),
    "remat": lambda body, box, x: fw.remat(_nothing(body))(box),
    "vmap": lambda body, box, x: fw.vmap(lambda box, i: (body(box), i * 2)[1], (None, 0))(box, jnp.arange(3)),
    "jit": lambda body, box, x: fw.jit(_nothing(body))(box),
}

INNER = fw.jit(run)
PLAIN = Way(run, plain_gradient, PLAIN_CONTROL)
LIFTED = Way(INNER, lifted_gradient, LIFTED_CONTROL)


def assert_equal(first: Any, second: Any, pairs: dict[int, Any] | None = None) -> None:
    """Compares two results or objects: types, values bit by bit, order of dicts, and which objects are the same one."""
    pairs = {} if pairs is None else pairs
    if isinstance(first, Box | List | Dict):
        assert type(first) is type(second)
        if id(first) in pairs:
            assert pairs[id(first)] is second
            return
        assert not any(second is other for other in pairs.values())
        pairs[id(first)] = second
        if isinstance(first, Box):
            first, second = vars(first), vars(second)
            assert set(first) == set(second)
            leaves = [[name for name, item in part.items() if isinstance(item, jax.Array)] for part in (first, second)]
            assert leaves[0] == leaves[1]
            for name in first:
                assert_equal(first[name], second[name], pairs)
            return
    if isinstance(first, dict):
        assert list(first) == list(second)
        for name in first:
            assert_equal(dict.__getitem__(first, name), dict.__getitem__(second, name), pairs)
    elif isinstance(first, list | tuple):
        assert type(first) is type(second)
        assert len(first) == len(second)
        for a, b in zip(list(first), list(second), strict=True):
            assert_equal(a, b, pairs)
    elif isinstance(first, jax.Array | np.ndarray):
        assert not isinstance(second, jax.core.Tracer)
        assert first.dtype == second.dtype
        assert first.shape == second.shape
        assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
    else:
        assert type(first) is type(second)
        assert repr(first) == repr(second)


def contents(root: Box) -> Iterator[tuple[int, Any, Any]]:
    """Yields every object below a root with its names and the very objects that it holds."""
    seen: list[Any] = []

    def visit(value: Any) -> Iterator[tuple[int, Any, Any]]:
        if isinstance(value, Box | List | Dict) and not any(value is other for other in seen):
            seen.append(value)
            parts = (
                vars(value) if isinstance(value, Box) else dict(enumerate(value)) if isinstance(value, list) else value
            )
            yield id(value), list(parts), [id(part) for part in parts.values()]
            for part in parts.values():
                yield from visit(part)
        elif isinstance(value, tuple):
            for part in value:
                yield from visit(part)

    return visit(root)

"""`fw.jit` on everything that can be called, and objects in every place of arguments and results."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import framework as fw
from framework.errors import LiftError


class Counter(fw.Module):
    count: fw.State

    def __init__(self, step: int = 1) -> None:
        self.count, self.step = jnp.zeros((), jnp.int32), step

    @fw.jit
    def up(self, by: Any = 1) -> Any:
        self.count = self.count + by * self.step
        return self.count

    def down(self, *, by: Any = 1) -> Any:
        self.count = self.count - by
        return self.count

    def __call__(self, x: Any) -> Any:
        self.count = self.count + 1
        return x * 2


def add(counter: Counter, by: Any = 1, *, twice: bool = False) -> Any:
    counter.count = counter.count + by
    return counter.count


def test_functions_methods_modules_lambdas_and_partials() -> None:
    counter = Counter()
    assert int(counter.up()) == 1 and int(counter.up(by=2)) == 3 and int(Counter.up(counter, 4)) == 7
    assert int(fw.jit(counter.down)(by=2)) == 5
    assert float(fw.jit(counter)(2.0)) == 4.0 and int(counter.count) == 6
    assert int(fw.jit(add)(counter, 2)) == 8 and int(fw.jit(add)(counter=counter, by=2)) == 10
    assert int(fw.jit(functools.partial(add, by=5))(counter)) == 15
    assert int(fw.jit(lambda c: add(c))(counter)) == 16
    assert int(fw.jit(donate=False)(add)(counter)) == 17
    assert add.__name__ == fw.jit(add).__name__ and "traces=0" in repr(fw.jit(add))


def test_a_method_is_traced_once_for_all_instances_of_one_structure() -> None:
    class Own(Counter):
        @fw.jit
        def up(self, by: Any = 1) -> Any:
            self.count = self.count + by * self.step

        def shrink(self) -> None:
            self.count = self.count - 1

    for _ in range(3):
        Own().up()
        fw.jit(Own().shrink)()
    assert len(Own.up.traces) == 1
    Own(step=2).up()
    assert len(Own.up.traces) == 2
    first = fw.jit(Own().shrink)
    assert len(first.__func__.traces) == 1 and first.__func__ is fw.jit(Own().shrink).__func__


def test_objects_are_found_anywhere_in_the_arguments_and_come_back_as_themselves() -> None:
    @fw.jit
    def step(nest: dict[str, Any], *rest: Any, last: Counter) -> Any:
        for counter in (nest["a"][0], rest[0], last):
            add(counter)
        made = Counter(step=7)
        return {
            "same": nest["a"][0],
            "part": [rest, last],
            "made": made,
            "text": "text",
            "none": None,
            "x": nest["x"] + 1,
        }

    a, b, c = Counter(), Counter(), Counter()
    result = step({"a": (a, 1.0), "x": np.ones(2)}, b, "static", last=c)
    assert result["same"] is a and result["part"][0][0] is b and result["part"][1] is c
    assert [int(one.count) for one in (a, b, c)] == [1, 1, 1]
    assert isinstance(result["made"], Counter) and result["made"].step == 7 and int(result["made"].count) == 0
    assert result["text"] == "text" and result["none"] is None and result["part"][0][1] == "static"
    add(result["made"])  # it is an object of the caller's now


def test_one_object_under_two_names_is_one_object_inside() -> None:
    @fw.jit
    def step(first: Counter, second: Counter) -> bool:
        first.count = first.count + 1
        second.count = second.count * 10
        return first is second

    counter, other = Counter(), Counter()
    assert bool(step(counter, counter)) and int(counter.count) == 10
    assert not bool(step(counter, other)) and int(counter.count) == 11


class Tree(fw.Module):
    def __init__(self) -> None:
        self.left, self.right = Counter(), Counter()
        self.items: list[Any] = [Counter(), "text"]
        self.table: dict[str, Any] = {"b": Counter(), "a": Counter()}


def test_structure_that_the_function_changes_is_changed_on_the_callers_objects() -> None:
    @fw.jit
    def restructure(tree: Tree) -> None:
        tree.right = tree.left  # now shared
        tree.items.append(tree.left)
        tree.items[1] = 5
        tree.table["c"] = Counter(step=3)
        del tree.table["b"]
        tree.name = "new"
        add(tree.left)

    tree = Tree()
    left, a, items = tree.left, tree.table["a"], tree.items
    restructure(tree)
    assert tree.left is left and tree.right is left and tree.items[2] is left and tree.items is items
    assert tree.items[1] == 5 and list(tree.table) == ["a", "c"] and tree.table["a"] is a
    assert tree.table["c"].step == 3 and tree.name == "new" and int(left.count) == 1
    restructure_again = fw.jit(lambda tree: setattr(tree, "right", Counter()))
    restructure_again(tree)
    assert tree.right is not left and tree.left is left


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_exception_while_tracing_leaves_everything_as_it_was(where: str) -> None:
    @fw.jit
    def fail(tree: Tree) -> None:
        if where == "after":
            add(tree.left)
            tree.items.clear()
            tree.other = Counter()
        raise ZeroDivisionError

    tree = Tree()
    before, identities = tree.clone(), [id(tree.left), id(tree.items), id(tree.left.count)]
    with pytest.raises(ZeroDivisionError):
        fail(tree)
    assert fw.tree_equal(tree, before) and identities == [id(tree.left), id(tree.items), id(tree.left.count)]


def test_a_nested_call_keeps_python_values_and_is_traced_once() -> None:
    seen: list[type] = []

    @fw.jit
    def inner(counter: Counter, x: Any, n: int, flag: bool) -> Any:
        seen.append(type(n))
        assert isinstance(n, int) and isinstance(flag, bool)
        add(counter)
        return x * n if flag else x.reshape(n, -1)

    @fw.jit
    def outer(counter: Counter, x: Any) -> Any:
        for _ in range(20):
            x = inner(counter, x, 1, True)
        return inner(counter, x, 2, False)

    counter = Counter()
    assert outer(counter, jnp.ones(6)).shape == (2, 3) and int(counter.count) == 21
    assert seen == [int, int] and len(inner.traces) == 2
    inline = fw.jit(inner.function, nested="inline")
    fw.jit(lambda counter, x: [inline(counter, x, 1, True) for _ in range(5)])(counter, jnp.ones(6))
    assert len(seen) == 7 and int(counter.count) == 26


def test_the_result_of_numbers_is_an_array_outside_and_a_number_inside() -> None:
    inner = fw.jit(lambda x: (x, 3, "text"))

    @fw.jit
    def outer(x: Any) -> Any:
        found = inner(x)
        assert found[1] == 3 and isinstance(found[1], int)
        return found

    for function in (inner, outer):
        x, three, text = function(1.0)
        assert isinstance(x, jax.Array) and isinstance(three, jax.Array) and text == "text"


def test_an_argument_that_can_be_neither_array_nor_static_is_refused() -> None:
    class Opaque:
        __hash__ = None  # pyright: ignore

    with pytest.raises(
        LiftError, match="an argument of type Opaque can be passed to a compiled function neither as an"
    ):
        fw.jit(lambda x: x)(Opaque())


def test_a_list_or_dict_of_a_module_is_an_argument_like_any_object() -> None:
    tree = Tree()
    compiled = fw.jit(lambda items, table: (add(items[0]), add(table["a"]), items.append("more"))[0])
    for _ in range(2):
        compiled(tree.items, tree.table)
    assert int(tree.items[0].count) == 2 and int(tree.table["a"].count) == 2 and tree.items[2:] == ["more", "more"]


def test_alternating_objects_and_outside_writes_are_seen() -> None:
    compiled = fw.jit(add)
    first, second = Counter(), Counter()
    for turn in range(6):
        compiled(first if turn % 2 else second, 1)
    assert int(first.count) == int(second.count) == 3
    first.count = jnp.array(100)
    assert int(compiled(first, 1)) == 101
    add(first, 5)
    fw.update(first, {"count": first.count + 1})
    fw.jit(add)(first, 10)
    assert int(compiled(first, 1)) == 118
    restored = first.clone()
    restored.count = jnp.array(0)
    first.__setstate__(restored.__getstate__())
    assert int(compiled(first, 1)) == 1

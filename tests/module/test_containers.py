"""Lists, dicts and tuples of modules and arrays behave as their own types, notice changes, and stay trees."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import framework as fw
from framework.module.containers import Dict, List


class Leaf(fw.Module):
    value: fw.Param

    def __init__(self, value: float = 0.0) -> None:
        self.value = jnp.array(value)


class Holder(fw.Module):
    weights: list[fw.Param]
    pages: dict[Any, fw.State]
    both: tuple[fw.Param, ...]


def structure(module: Any) -> Any:
    return jax.tree.structure(module)


list_changes = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "insert", "pop", "set", "delete", "reverse", "extend", "slice", "clear", "iadd", "remove"]
        ),
        st.integers(0, 4),
    ),
    max_size=8,
)


def change_list(items: Any, name: str, number: int, new: Any) -> Any:
    if name == "append":
        items.append(new)
    elif name == "insert":
        items.insert(number, new)
    elif name == "pop" and items:
        return items.pop(number % len(items))
    elif name == "set" and items:
        items[number % len(items)] = new
    elif name == "delete" and items:
        del items[number % len(items)]
    elif name == "reverse":
        items.reverse()
    elif name == "extend":
        items.extend([new, number])
    elif name == "slice":
        items[number:] = [new]
    elif name == "clear":
        items.clear()
    elif name == "iadd":
        items += (new,)
    elif name == "remove" and items:
        items.remove(items[-1])
    return None


@given(list_changes)
def test_a_list_in_a_module_is_a_list(changes: Any) -> None:
    module, plain = Holder(), [Leaf()]
    module.items = list(plain)
    for name, number in changes:
        new = Leaf()
        before = structure(module)
        assert change_list(module.items, name, number, new) is change_list(plain, name, number, new)
        assert module.items == plain and list(module.items) == plain and len(module.items) == len(plain)
        assert list(reversed(module.items)) == plain[::-1] and module.items[1:] == plain[1:]
        assert module.items + [1] == plain + [1] and module.items.copy() == plain
        counts = [sum(isinstance(item, Leaf) for item in items) for items in (plain, module.items)]
        assert len(jax.tree.leaves(module)) == counts[0] == counts[1]
        fresh = Holder()
        fresh.items = list(plain)
        if len(plain):  # an empty list is compared below
            assert structure(module) == structure(fresh)
        assert (before == structure(module)) or before is not None


dict_changes = st.lists(
    st.tuples(
        st.sampled_from(["set", "delete", "pop", "update", "setdefault", "popitem", "ior"]), st.sampled_from("cab")
    ),
    max_size=8,
)


@given(dict_changes)
def test_a_dict_in_a_module_is_a_dict_and_keeps_its_order(changes: Any) -> None:
    module, plain = Holder(), {"z": Leaf()}
    module.table = dict(plain)
    for name, where in changes:
        new = Leaf()
        for table in (module.table, plain):
            if name == "set":
                table[where] = new
            elif name == "delete" and where in table:
                del table[where]
            elif name == "pop":
                table.pop(where, None)
            elif name == "update":
                table.update({where: new}, b=3)
            elif name == "setdefault":
                table.setdefault(where, new)
            elif name == "popitem" and table:
                table.popitem()
            elif name == "ior":
                table |= {where: new}
        assert list(module.table.items()) == list(plain.items())
        assert list(dict(module.table)) == list({**module.table}) == list(plain) == list(module.table.copy())
        assert list(fw.select(module)) == [
            f"table.{key}.value" for key, item in plain.items() if isinstance(item, Leaf)
        ]
        again = jax.tree.map(lambda leaf: leaf, module)
        assert list(again.table) == list(plain)


def test_an_empty_container_is_a_child_and_can_be_filled() -> None:
    module = Holder()
    module.weights, module.pages, module.layers, module.nothing = [], {}, [], ()
    assert isinstance(module.layers, List) and isinstance(module.pages, Dict) and module.nothing == ()
    module.weights.append(jnp.ones(2))
    module.pages["a"] = jnp.zeros(1)
    module.layers.append(Leaf())
    assert list(fw.select(module, fw.Param)) == ["weights.0", "layers.0.value"]
    assert list(fw.select(module, fw.State)) == ["pages.a"]


def test_containers_may_mix_modules_functions_and_values() -> None:
    module = Holder()
    module.layers = [Leaf(), jax.nn.relu, None, 3, "text", (Leaf(), 2.5)]
    assert len(jax.tree.leaves(module)) == 2
    assert module.layers[1] is jax.nn.relu and module.layers[2] is None and module.layers[5][1] == 2.5
    other = Holder()
    other.layers = [Leaf(), jax.nn.relu, None, 3, "text", (Leaf(), 2)]
    assert structure(module) != structure(other)


def test_arrays_in_containers_take_the_kind_of_the_annotation() -> None:
    module = Holder()
    module.weights = [jnp.ones(2), [jnp.ones(3)]]
    module.pages = {"a": {"b": jnp.ones(1)}}
    module.both = (jnp.ones(1), 5.0, "text")  # a number is one, too, where the annotation says so
    assert list(fw.select(module, fw.Param)) == ["weights.0", "weights.1.0", "both.0", "both.1"]
    assert list(fw.select(module, fw.State)) == ["pages.a.b"]


def test_an_array_in_a_container_without_annotation_is_refused_with_both_remedies() -> None:
    module = Holder()
    module.layers = []
    with pytest.raises(
        fw.errors.ModuleError, match=r"0 of a list .*test_containers\.py:\d+.*list\[fw\.Param\].*fw\.State"
    ):
        module.layers.append(jnp.ones(2))
    module.table = {}
    with pytest.raises(fw.errors.ModuleError, match=r"'a' of a dict .*dict\[str, fw\.Param\]"):
        module.table["a"] = jnp.ones(2)
    assert not len(module.layers) and not len(module.table)


@pytest.mark.parametrize(
    "place", ["append", "insert", "extend", "set", "slice", "dict", "setdefault", "own", "deep", "tuple"]
)
def test_an_object_cannot_be_put_inside_of_itself(place: str) -> None:
    module, child = Holder(), Holder()
    module.layers, module.table = [child], {}
    child.inner = []
    with pytest.raises(fw.errors.ModuleError, match="cannot contain itself"):
        {
            "append": lambda: module.layers.append(module),
            "insert": lambda: module.layers.insert(0, module),
            "extend": lambda: module.layers.extend([module]),
            "set": lambda: module.layers.__setitem__(0, module),
            "slice": lambda: module.layers.__setitem__(slice(0, 1), [module]),
            "dict": lambda: module.table.__setitem__("up", module),
            "setdefault": lambda: module.table.setdefault("up", module),
            "own": lambda: module.layers.append(module.layers),
            "deep": lambda: child.inner.append({"up": module}),
            "tuple": lambda: child.inner.append((1, module)),
        }[place]()
    later = Holder()
    module.layers.append(later)
    with pytest.raises(fw.errors.ModuleError, match=r"Holder\.up = .* inside of itself"):
        later.up = module
    assert len(jax.tree.leaves(module)) == 0


def test_one_object_may_be_in_two_places() -> None:
    module, leaf = Holder(), Leaf(1.0)
    module.first, module.others = leaf, [leaf, leaf]
    assert list(fw.select(module)) == ["first.value"]
    assert len(jax.tree.leaves(module)) == 3

"""How objects are shown and compared: repr, the summary table, and differences between two trees."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from framework.module.fields import Kind
from framework.module.graph import Graph, walk
from framework.module.hyper import is_array, same
from framework.module.layout import Node, layout_of
from framework.module.paths import join, leaf_paths, node_paths


def module_repr(module: Any) -> str:
    """Returns an indented description of a module: hyperparameters by value, arrays by dtype and shape.

    Example:
        >>> import framework as fw
        >>> print(fw.trackers.Mean())
        Mean(
          total: float32[],
          weight: float32[],
        )
    """
    return "\n".join(_lines(module, "", ()))


def _lines(value: Any, indent: str, above: tuple[int, ...]) -> Iterator[str]:
    if not isinstance(value, Node):
        yield f"{indent}{_short(value)}"
        return
    if id(value) in above:
        yield f"{indent}..."
        return
    brackets = {list: "[]", dict: "{}"}.get(type(value).__mro__[1], "")
    opening, closing = brackets or (f"{type(value).__name__}(", ")")
    items = _items(value)
    if not items:
        yield f"{indent}{opening}{closing}"
        return
    yield f"{indent}{opening}"
    for name, item in items:
        separator = "" if not name else ": " if is_array(item) or isinstance(value, dict) else "="
        label = f"{name}{separator}"
        first, *rest = _lines(item, indent + "  ", (*above, id(value)))
        yield f"{indent}  {label}{first.lstrip()}{'' if rest else ','}"
        for number, line in enumerate(rest):
            yield line + ("," if number == len(rest) - 1 else "")
    yield f"{indent}{closing}"


def _items(node: Node) -> list[tuple[str, Any]]:
    storage = node._storage()
    if isinstance(storage, list):
        return [("", item) for item in list.__iter__(storage)]
    return [(str(name), item) for name, item in dict.items(storage)]


def _short(value: Any) -> str:
    if is_array(value):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    if isinstance(value, tuple) and any(map(is_array, value)):
        return f"({', '.join(map(_short, value))})"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Row(NamedTuple):
    """One leaf in a summary.

    Attributes:
        path: name of the leaf.
        shape: its shape.
        dtype: its dtype.
        size: number of elements.
        bytes: its size in memory.
        trained: whether its kind is trained.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    bytes: int
    trained: bool


class ModuleCosts(NamedTuple):
    """What a module in a summary costs to run, with all that is in it.

    Attributes:
        path: name of the module, empty for the object itself.
        name: its class.
        forward: floating-point operations and bytes of one call.
        step: those of a call and the gradient for all trained leaves.
    """

    path: str
    name: str
    forward: Any
    step: Any


class Summary(NamedTuple):
    """The leaves of an object; `str` makes a table of it.

    Attributes:
        name: class of the object.
        rows: one for each leaf; a shared leaf appears once.
        costs: one for each module that was counted.
    """

    name: str
    rows: tuple[Row, ...]
    costs: tuple[ModuleCosts, ...] = ()

    @property
    def trained(self) -> int:
        """Number of trained elements."""
        return sum(row.size for row in self.rows if row.trained)

    @property
    def total(self) -> int:
        """Number of elements."""
        return sum(row.size for row in self.rows)

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return sum(row.bytes for row in self.rows)

    def __str__(self) -> str:
        leaves = [
            (
                row.path,
                str(list(row.shape)),
                row.dtype,
                f"{row.size:,}",
                f"{row.bytes:,}",
                "yes" if row.trained else "no",
            )
            for row in self.rows
        ]
        lines = _table(("path", "shape", "dtype", "parameters", "bytes", "trained"), leaves, "lllrrl")
        lines.append(f"{self.name}: {self.trained:,} trained of {self.total:,} parameters, {self.bytes:,} bytes")
        if self.costs:
            modules = [
                (cost.path or self.name, cost.name, *(f"{n:,}" for part in (cost.forward, cost.step) for n in part))
                for cost in self.costs
            ]
            head = ("module", "class", "FLOPs forward", "bytes forward", "FLOPs step", "bytes step")
            lines += ["", *_table(head, modules, "llrrrr")]
        return "\n".join(lines)


def _table(head: tuple[str, ...], body: Sequence[tuple[str, ...]], alignment: str) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        padded = (
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(cells, widths, alignment, strict=True)
        )
        return "  ".join(padded).rstrip()

    return [line(head), line(tuple("-" * width for width in widths)), *map(line, body)]


def leaf_rows(module: Node) -> tuple[Row, ...]:
    """Describes the leaves of an object, in order.

    Args:
        module: a module.

    Returns:
        One row for each leaf; a shared leaf appears once, under its first path.
    """
    graph = walk([module])
    leaves = graph.gather()
    return tuple(_row(path, leaves[leaf], graph.slots[leaf].kind) for leaf, path in leaf_paths(graph).items())


def _row(path: str, leaf: Any, kind: type[Kind] | None) -> Row:
    count = int(np.prod(leaf.shape, dtype=np.int64))
    size = count * leaf.dtype.itemsize
    return Row(path, tuple(leaf.shape), str(leaf.dtype), count, size, kind is not None and kind.trained)


class Difference(NamedTuple):
    """One place where two objects differ.

    Attributes:
        path: name of the leaf or hyperparameter.
        what: what differs, as `old -> new`.
    """

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def diff(first: Node, second: Node) -> list[Difference]:
    """Lists where two objects differ: leaves by value, dtype and shape, hyperparameters, classes, what is shared.

    Args:
        first: a module.
        second: a module.

    Returns:
        The differences, empty if there are none; arrays are compared by their bits, so that NaN equals NaN.

    Example:
        >>> import framework as fw
        >>> a = fw.nn.Linear(2, 3, rngs=fw.Rngs(0))
        >>> b = a.clone()
        >>> b.bias = b.bias + 2.0
        >>> print(*fw.diff(a, b))
        bias: changed by norm 3.4641
    """
    graphs = walk([first]), walk([second])
    found: list[Difference] = []
    old, new = _statics(graphs[0]), _statics(graphs[1])
    for path in {**old, **new}:
        before, after = old.get(path, "absent"), new.get(path, "absent")
        if path not in old or path not in new or not same(before, after):
            found.append(Difference(path, f"{before!r} -> {after!r}"))
    leaves = [graph.gather() for graph in graphs]
    names = [
        {path: values[leaf] for leaf, path in leaf_paths(graph).items()}
        for graph, values in zip(graphs, leaves, strict=True)
    ]
    for path in {**names[0], **names[1]}:
        if path not in names[0] or path not in names[1]:
            found.append(Difference(path, "absent -> leaf" if path in names[1] else "leaf -> absent"))
        elif (what := _leaf_difference(names[0][path], names[1][path])) is not None:
            found.append(Difference(path, what))
    return found


def _statics(graph: Graph) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, path in node_paths(graph).items():
        layout = layout_of(graph.nodes[index])
        found[join(path, "(class)")] = layout.cls.__qualname__
        found |= {join(path, str(name)): value for name, value in layout.statics}
    return found


def _leaf_difference(first: Any, second: Any) -> str | None:
    if first.dtype != second.dtype or first.shape != second.shape:
        return f"{_short(first)} -> {_short(second)}"
    if jax.numpy.issubdtype(first.dtype, jax.dtypes.prng_key):
        first, second = jax.random.key_data(first), jax.random.key_data(second)
    before, after = np.asarray(first), np.asarray(second)
    if before.tobytes() == after.tobytes():
        return None
    norm = np.linalg.norm((after.astype(np.float64) - before.astype(np.float64)).ravel())
    return f"changed by norm {norm:.6g}"


def tree_equal(first: Node, second: Node) -> bool:
    """Tells whether two objects have equal classes, hyperparameters, sharing and leaves, bit by bit.

    Args:
        first: a module.
        second: a module.

    Returns:
        Whether they are equal in content.

    Example:
        >>> import framework as fw
        >>> a = fw.nn.Linear(2, 3, rngs=fw.Rngs(0))
        >>> fw.tree_equal(a, a.clone()), fw.tree_equal(a, fw.nn.Linear(2, 3, rngs=fw.Rngs(1)))
        (True, False)
    """
    return walk([first]).structure is walk([second]).structure and not diff(first, second)

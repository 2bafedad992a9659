"""Whether a configured value fits a parameter's annotation, judged from the annotation's source.

Only annotations that a YAML value can plainly break are judged: int, float, bool, str, None, Literal, and
lists, tuples and unions of them. Everything else fits.
"""

import ast
from typing import Any

from framework.cli.modules import last_name

_LISTS = frozenset({"list", "List", "Sequence", "Iterable", "Collection"})


class MisfitError(Exception):
    """A value does not fit."""


def fit(value: Any, annotation: ast.expr | None, default: ast.expr | None = None) -> Any:
    """Gives the value as its annotation means it: an int becomes a float where a float is declared.

    Args:
        value: a value from the configuration.
        annotation: the parameter's annotation, None when it has none.
        default: the parameter's default; a default of None allows None.

    Returns:
        The value, converted where nothing is lost.

    Raises:
        MisfitError: the annotation does not allow the value.

    Example:
        >>> fit(1, ast.parse("float | None", mode="eval").body)
        1.0
    """
    if annotation is None or (value is None and isinstance(default, ast.Constant) and default.value is None):
        return value
    if isinstance(annotation, ast.Constant):
        return _fit_constant(value, annotation)
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return _fit_any(value, [annotation.left, annotation.right])
    name = last_name(annotation)
    if isinstance(annotation, ast.Subscript):
        inner = annotation.slice
        parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        if name == "Optional":
            return value if value is None else fit(value, inner)
        if name == "Union":
            return _fit_any(value, parts)
        if name == "Annotated":
            return fit(value, parts[0])
        if name == "Literal":
            return _fit_literal(value, parts)
        if name in _LISTS:
            return [fit(one, inner) for one in _items(value)]
        if name in ("tuple", "Tuple"):
            return _fit_tuple(value, parts)
        return value
    return _fit_plain(value, name)


def describe(annotation: ast.expr) -> str:
    """Writes an annotation as it stands in the source.

    Args:
        annotation: the annotation.

    Returns:
        Its text.

    Example:
        >>> describe(ast.parse("'int | None'", mode="eval").body)
        'int | None'
    """
    quoted = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
    return str(annotation.value) if quoted else ast.unparse(annotation)  # pyright: ignore


def allows_text(annotation: ast.expr | None) -> bool:
    """Tells whether an annotation allows strings, so that `007` is to be read as it is written.

    Args:
        annotation: the parameter's annotation, None when it has none.

    Returns:
        True when `str` is among what it says and no number is.

    Example:
        >>> allows_text(ast.parse("str | None", mode="eval").body)
        True
    """
    if annotation is None:
        return False
    try:
        parsed = ast.parse(describe(annotation), mode="eval")
    except SyntaxError:
        return False
    names = {node.id for node in ast.walk(parsed) if isinstance(node, ast.Name)}
    return "str" in names and names <= {"str", "None", "Optional", "Union", "typing"}


def _fit_plain(value: Any, name: str) -> Any:
    if name == "int":
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif name == "float":
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        fits = isinstance(value, float)
    elif name in ("bool", "str"):
        fits = isinstance(value, bool if name == "bool" else str)
    elif name in _LISTS or name in ("tuple", "Tuple"):
        fits = bool(_items(value)) or value == []
    else:
        fits = True
    if not fits:
        raise MisfitError
    return value


def _fit_constant(value: Any, annotation: ast.Constant) -> Any:
    if annotation.value is None and value is not None:
        raise MisfitError
    if isinstance(annotation.value, str):
        try:
            return fit(value, ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return value
    return value


def _fit_any(value: Any, choices: list[ast.expr]) -> Any:
    converted: list[Any] = []
    for choice in choices:
        try:
            fitted = fit(value, choice)
        except MisfitError:
            continue
        if type(fitted) is type(value):  # 1 stays an int in `float | int`
            return fitted
        converted.append(fitted)
    if not converted:
        raise MisfitError
    return converted[0]


def _fit_literal(value: Any, choices: list[ast.expr]) -> Any:
    constants = [choice.value for choice in choices if isinstance(choice, ast.Constant)]
    if len(constants) == len(choices) and not any(
        type(value) is type(constant) and value == constant for constant in constants
    ):
        raise MisfitError
    return value


def _fit_tuple(value: Any, parts: list[ast.expr]) -> Any:
    items = _items(value)
    if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is Ellipsis:
        return [fit(one, parts[0]) for one in items]
    if len(items) != len(parts):
        raise MisfitError
    return [fit(one, part) for one, part in zip(items, parts, strict=True)]


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise MisfitError
    return list(value)

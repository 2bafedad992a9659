"""Checks the nodes that name a `_target_`: that it exists, takes these keywords, and their types fit."""

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from framework.cli import schema
from framework.cli.annotations import MisfitError, allows_text, describe, fit
from framework.cli.modules import TargetNotFoundError
from framework.cli.origin import Origins
from framework.cli.signatures import Parameter, Signature, signature
from framework.cli.suggest import did_you_mean
from framework.errors import ConfigError

# Keywords that `build.py` gives, so that a configuration neither needs nor may set them.
SUPPLIED: Mapping[str, frozenset[str]] = {
    "model": frozenset({"rngs"}),
    "task": frozenset({"model", "optimizer"}),
    "optimizer": frozenset({"model"}),
}
_HYDRA = frozenset({"_target_", "_partial_", "_args_", "_recursive_", "_convert_"})


def check_node(path: str, node: Any, origins: Origins) -> Iterator[tuple[str, Any]]:
    """Checks one of the nodes data, model, task and optimizer, and all targets inside it.

    Args:
        path: the node's key.
        node: its resolved content.
        origins: tells where each value was written.

    Yields:
        The dotted key and the new value of each value that its declared type converts, for example 1 to 1.0.

    Raises:
        ConfigError: a target cannot be found, or a keyword is unknown, missing or of the wrong type.

    Example:
        >>> nowhere = Origins([], [], {}, "train")
        >>> list(check_node("optimizer", {"_target_": "optax.sgd", "learning_rate": 1}, nowhere))
        [('optimizer.learning_rate', 1.0)]
    """
    if not isinstance(node, dict) or not isinstance(node.get("_target_"), str):
        raise ConfigError(
            f"{origins.place(path)}: {path} says nothing to build; it needs the key _target_ with the dotted "
            "name of a "
            f"class or function, for example _target_: my_module.MyClass"
        )
    own: dict[str, Parameter] = {}
    if path == "optimizer":
        own = _optimizer_keywords()
        schedule = node.get("schedule")
        if isinstance(schedule, dict) and "_target_" not in schedule:
            raise ConfigError(
                f"{origins.place('optimizer.schedule')}: optimizer.schedule says nothing to build; it needs "
                "the key "
                f"_target_, for example optimizer.schedule._target_=optax.warmup_cosine_decay_schedule"
            )
    yield from _check_target(path, node, origins, own, SUPPLIED.get(path, frozenset()))


def _check_target(
    path: str, node: dict[str, Any], origins: Origins, own: Mapping[str, Parameter], supplied: frozenset[str]
) -> Iterator[tuple[str, Any]]:
    target = node["_target_"]
    found = _find(path, target, origins)
    given = set(node) - _HYDRA
    for key in sorted(given & supplied):
        raise ConfigError(
            f"{origins.place(f'{path}.{key}')}: {path}.{key} is given by the framework when it builds "
            f"{target}; "
            f"remove this key"
        )
    if found is not None:
        known = {**found.parameters, **own}
        for key in node:
            if key in given and key not in known and not found.open:
                allowed = set(known) - supplied
                raise ConfigError(
                    f"{origins.place(f'{path}.{key}')}: {target} takes no keyword '{key}' ({path}.{key}); "
                    f"{did_you_mean(key, allowed, path + '.')}"
                )
        _check_missing(path, node, origins, found, given | supplied | set(own))
    else:
        known = dict(own)
    for key, value in node.items():
        if key in given:
            yield from _check_value(f"{path}.{key}", value, known.get(key), target, origins)


def _check_missing(path: str, node: dict[str, Any], origins: Origins, found: Signature, given: set[str]) -> None:
    if node.get("_partial_"):
        return
    missing = found.missing(given, positional=len(node.get("_args_") or ()))
    if missing:
        raise ConfigError(
            f"{origins.place(f'{path}._target_')}: {node['_target_']} needs the keyword '{missing[0]}', "
            "which has no "
            f"value; write {path}.{missing[0]}=VALUE"
        )


def _check_value(
    path: str, value: Any, parameter: Parameter | None, target: str, origins: Origins
) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and isinstance(value.get("_target_"), str):
        yield from _check_target(path, value, origins, {}, frozenset())
        return
    yield from _check_inner(path, value, origins)
    if parameter is None or _holds_target(value):
        return
    if allows_text(parameter.annotation) and isinstance(value, bool | int | float):
        origin = origins.find(path)  # 007 and 1e10 are text where text is declared
        value = origin.text if origin and origin.text else value
        yield path, value
    try:
        fitted = fit(value, parameter.annotation, parameter.default)
    except MisfitError:
        expected = describe(parameter.annotation) if parameter.annotation else ""
        raise ConfigError(
            f"{origins.place(path)}: {path} must be {expected} for {target}, not {value!r} ({type(value).__name__})"
        ) from None
    if repr(fitted) != repr(value):  # 1 == 1.0, but they are written differently
        yield path, fitted


def _check_inner(path: str, value: Any, origins: Origins) -> Iterator[tuple[str, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _check_value(f"{path}.{key}", inner, None, "", origins)


def _holds_target(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and "_target_" in value) or any(_holds_target(one) for one in inner)


def _find(path: str, target: str, origins: Origins) -> Signature | None:
    try:
        return signature(target)
    except TargetNotFoundError as error:
        if error.found:
            hint = did_you_mean(error.missing, error.candidates, error.found + ".") if error.missing else ""
            hint = hint or "write the dotted name of a class or function"
        else:
            hint = "it is looked for in the current directory and among the installed packages"
        raise ConfigError(
            f"{origins.place(f'{path}._target_')}: the target '{target}' of {path} cannot be found: {error}; {hint}"
        ) from error


def _optimizer_keywords() -> dict[str, Parameter]:
    """Reads the keys that `framework.Optimizer` takes off the schema, as if they were a signature's."""
    return {
        field.name: Parameter(
            field.name,
            ast.parse(field.type if isinstance(field.type, str) else _written(field.type), mode="eval").body,
            ast.Constant(field.default),  # pyright: ignore[reportArgumentType]
        )
        for field in dataclasses.fields(schema.OptimizerConfig)
    }


def _written(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared).replace("typing.", "")

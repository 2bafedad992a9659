"""Checks a composed configuration as a whole, before anything is built from it.

The YAML's typed nodes were checked while Hydra merged them. What Hydra lets pass is checked here: keys added
with `+`, values that are still missing, bounds, and the keywords of every `_target_`.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from framework.cli import schema, targets
from framework.cli.origin import Origins
from framework.cli.suggest import did_you_mean, nearest
from framework.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


def check(config: DictConfig, origins: Origins, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Checks a configuration and completes it in place.

    Args:
        config: the composed configuration without its `hydra` node; given a name, and values as their
            declared types.
        origins: tells where each value was written.
        choices: the option that was chosen of each group, which names a run that has no name.

    Returns:
        The resolved configuration: nested plain dicts, lists and values.

    Raises:
        ConfigError: something in it is wrong; the message names the key, its place and what to write.

    Example:
        >>> config = OmegaConf.structured(schema.Config)
        >>> check(config, Origins([], [], {}, "train"), {})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        framework.errors.ConfigError: the configuration: trainer.max_steps has no value yet; write ...
    """
    _check_keys(config, schema.Config, "", origins)
    _resolve(config, origins)
    _restore_text(config, schema.Config, "", origins)
    _name_run(config, origins, choices)
    resolved = _resolve(config, origins)
    _check_values(resolved, schema.Config, "", origins)
    for node in schema.TARGET_NODES:
        for path, value in targets.check_node(node, resolved[node], origins):
            _put(resolved, path, value)
            if not OmegaConf.is_interpolation(*_owner(config, path)):
                OmegaConf.update(config, path, value, force_add=True)
    return resolved


def fields(node: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """Lists the keys of a node of the schema.

    Args:
        node: one of the schema's dataclasses.

    Returns:
        For each key its field and its type.

    Example:
        >>> fields(schema.CheckpointConfig)["keep"][1]
        <class 'int'>
    """
    hints = typing.get_type_hints(node)
    return {one.name: (one, hints[one.name]) for one in dataclasses.fields(node)}


def field_at(path: str) -> tuple[dataclasses.Field[Any], Any] | None:
    """Finds what the schema says of a key.

    Args:
        path: the dotted key.

    Returns:
        The field and its type; None for a key that the schema does not list.

    Example:
        >>> field_at("trainer.log_every")[1], field_at("model.width")
        (<class 'int'>, None)
    """
    node: Any = schema.Config
    entry = None
    for part in path.split("."):
        entry = fields(node).get(part) if dataclasses.is_dataclass(node) and isinstance(node, type) else None
        if entry is None:
            return None
        node = entry[1]
    return entry


def type_name(declared: Any) -> str:
    """Writes a declared type in words.

    Args:
        declared: a type of the schema.

    Returns:
        For example `a whole number or null`.

    Example:
        >>> type_name(int | None)
        'a whole number or null'
    """
    if isinstance(declared, types.UnionType) or typing.get_origin(declared) is typing.Union:
        return " or ".join(type_name(one) for one in typing.get_args(declared))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return words.get(declared, "a node with keys of its own")


def nearest_key(path: str, candidates: Mapping[str, Any]) -> str:
    """Writes what an unknown key should have been: one beside it, or one elsewhere in the schema.

    Args:
        path: the dotted key that does not exist.
        candidates: the keys that exist beside it.

    Returns:
        A sentence without its final full stop.

    Example:
        >>> nearest_key("max_steps", {"seed": None})
        "did you mean 'trainer.max_steps'?"
    """
    above, _, leaf = path.rpartition(".")
    prefix = above + "." if above else ""
    beside = did_you_mean(leaf, candidates, prefix)
    if beside.startswith("did you mean"):
        return beside
    nested = [schema.TrainerConfig, schema.MonitorConfig, schema.CheckpointConfig, schema.PathsConfig]
    names = ("trainer", "monitor", "checkpoint", "paths")
    for name, node in [*zip(names, nested, strict=True), ("optimizer", schema.OptimizerConfig)]:
        near = nearest(leaf, fields(node))
        if near is not None:
            return f"did you mean '{name}.{near}'?"
    return beside


def _check_keys(config: DictConfig, node: type, path: str, origins: Origins) -> None:
    known = fields(node)
    for key in config:
        here = f"{path}.{key}" if path else str(key)
        if key not in known:
            raise ConfigError(f"{origins.place(here)}: there is no key '{here}'; {nearest_key(here, known)}")
        declared = known[str(key)][1]
        given = not OmegaConf.is_missing(config, key) and not OmegaConf.is_interpolation(config, key)
        if dataclasses.is_dataclass(declared) and given:
            _check_keys(config[key], typing.cast(type, declared), here, origins)


def _restore_text(config: DictConfig, node: type, path: str, origins: Origins) -> None:
    """Puts back the text that was written: YAML reads 007 as 7, 1e10 as a number and off as false."""
    for key, (_, declared) in fields(node).items():
        here = f"{path}.{key}" if path else key
        if dataclasses.is_dataclass(declared):
            _restore_text(config[key], typing.cast(type, declared), here, origins)
        elif declared is str or declared == (str | None):
            if OmegaConf.is_interpolation(config, key) or config[key] is None:
                continue
            origin = origins.find(here)
            if origin and origin.text and re.fullmatch(r"[\w.+-]+", origin.text):
                config[key] = origin.text


def _name_run(config: DictConfig, origins: Origins, choices: Mapping[str, Any]) -> None:
    if config.name is None:
        chosen = str(choices.get("experiment") or "run")
        config.name = re.sub(r"[^A-Za-z0-9._-]+", "_", chosen).strip("_.-") or "run"
    if not _NAME.fullmatch(config.name):
        better = re.sub(r"[^A-Za-z0-9._-]+", "_", config.name).strip("_.-") or "run"
        raise ConfigError(
            f"{origins.place('name')}: name={config.name!r} cannot name a directory that needs no quoting; "
            "use letters, "
            f"digits, '_', '-' and '.', for example name={better}"
        )


def _resolve(config: DictConfig, origins: Origins) -> dict[str, Any]:
    try:
        return typing.cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    except OmegaConfBaseException as error:
        key = re.sub(r"\[(\w+)\]", r".\1", str(error.full_key or "the configuration"))
        if isinstance(error, MissingMandatoryValue):
            raise ConfigError(f"{origins.place(key)}: {key} has no value yet; write {key}=VALUE") from error
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{origins.place(key)}: {key} cannot be resolved: {reason}") from error


def _check_values(resolved: Mapping[str, Any], node: type, path: str, origins: Origins) -> None:
    for key, (field, declared) in fields(node).items():
        here = f"{path}.{key}" if path else key
        value = resolved[key]
        if dataclasses.is_dataclass(declared):
            _check_values(value, typing.cast(type, declared), here, origins)
        minimum, choices = field.metadata.get("minimum"), field.metadata.get("choices")
        if minimum is not None and value is not None and value < minimum:
            raise ConfigError(f"{origins.place(here)}: {here} must be at least {minimum}, not {value}")
        if choices is not None and value not in choices:
            raise ConfigError(
                f"{origins.place(here)}: {here}={value!r} is unknown; {did_you_mean(str(value), choices)}"
            )


def _owner(config: DictConfig, path: str) -> tuple[Any, Any]:
    above, _, leaf = path.rpartition(".")
    owner = OmegaConf.select(config, above)
    return owner, int(leaf) if OmegaConf.is_list(owner) else leaf


def _put(resolved: Any, path: str, value: Any) -> None:
    *above, leaf = path.split(".")
    for part in above:
        resolved = resolved[int(part)] if isinstance(resolved, list) else resolved[part]
    resolved[int(leaf) if isinstance(resolved, list) else leaf] = value

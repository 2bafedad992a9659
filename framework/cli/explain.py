"""Turns what Hydra and OmegaConf raise while they compose into one `ConfigError` that teaches."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    OmegaConfBaseException,
    ValidationError,
)

from framework.cli import schema
from framework.cli.check import field_at, fields, nearest_key, type_name
from framework.cli.origin import Origins, display, find_in_file, package_of, split_override
from framework.cli.suggest import did_you_mean
from framework.errors import ConfigError, FrameworkError, RunError

_FILE = re.compile(r"In '([^']+)'")


def explain(error: Exception, origins: Origins) -> FrameworkError | None:
    """Writes the paragraph for an error of composing.

    Args:
        error: what Hydra raised.
        origins: the directories and arguments it composed from.

    Returns:
        The error to show; None when this is not a mistake in the configuration.

    Example:
        >>> error = OverrideParseException("seed", "missing EQUAL")
        >>> str(explain(error, Origins([], ["seed"], {}, "train")))[:51]
        "command line: 'seed' cannot be read: missing EQUAL;"
    """
    if isinstance(error, FrameworkError):
        return error
    if isinstance(error, yaml.MarkedYAMLError):
        return ConfigError(_bad_yaml(error))
    if isinstance(error, MissingConfigException):
        return ConfigError(_missing_option(error, origins))
    if isinstance(error, OverrideParseException):
        reason = _sentence(error.message).partition("See https")[0]
        reason = re.sub(r"^Error parsing override '.*?' ", "", reason).strip()
        return ConfigError(
            f"command line: {error.override!r} cannot be read: {reason}; an argument is written KEY=VALUE, "
            "and a value "
            f"with spaces, commas or brackets is quoted twice: 'KEY=\"a, b\"'"
        )
    cause = next((one for one in _chain(error) if isinstance(one, OmegaConfBaseException) and one.full_key), None)
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        return ConfigError(_unknown_key(error, cause, origins))
    if isinstance(cause, ValidationError):
        return ConfigError(_wrong_type(error, cause, origins))
    if isinstance(cause, ConfigTypeError):
        return ConfigError(
            f"command line: '~{cause.full_key}' cannot be removed, since every configuration has it; give it "
            "a value "
            f"instead: {cause.full_key}=VALUE"
        )
    if isinstance(error, OSError):
        return RunError(f"{error.filename} cannot be written: {error.strerror}; choose another place: paths.runs=DIR")
    if isinstance(error, HydraException | OmegaConfBaseException | ValueError):
        return ConfigError(_other(error, origins))
    return None


def unlisted_keyword(error: Exception) -> str | None:
    """Recognises a keyword of a target that no YAML lists, such as `model.dropout=0.5`.

    Hydra asks for a `+` there. We need none, since the keyword is checked against the target's signature.

    Args:
        error: what Hydra raised.

    Returns:
        The dotted key, or None for any other error.

    Example:
        >>> unlisted_keyword(ValueError("something else")) is None
        True
    """
    if not isinstance(error, ConfigCompositionException) or _FILE.search(str(error)):
        return None
    for cause in _chain(error):
        if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.object_type is dict:
            key = str(cause.full_key)
            return key if key.partition(".")[0] in schema.TARGET_NODES else None
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place(error: Exception, key: str, origins: Origins) -> str:
    """Names the file and line if Hydra says in which file it failed; all else is from the command line."""
    match = _FILE.search(str(error))
    if match is None:
        return "command line"
    file = origins.option_file(match[1])
    if file is None:
        return match[1]
    group = match[1].rpartition("/")[0].replace("/", ".")
    origin = find_in_file(file, key, package_of(file, match[1], group))
    return origin.place if origin else display(file)


def _unknown_key(error: Exception, cause: OmegaConfBaseException, origins: Origins) -> str:
    key = str(cause.full_key)
    place = _place(error, key, origins)
    node = cause.object_type
    known: dict[str, Any] = {}
    if isinstance(node, type) and dataclasses.is_dataclass(node):
        known = dict(fields(node)) if node.__module__ == schema.__name__ else _plain_fields(node)
    if key in _groups(origins) and _FILE.search(str(error)):
        return (
            f"{place}: options of the group '{key}' change the whole configuration; begin the file with the "
            "line "
            f"'# @package _global_'"
        )
    node_name, _, inner = key.partition(".")
    if node_name in schema.TARGET_NODES and inner and not known:
        return (
            f"{place}: {node_name}={{...}} is merged into the chosen option of the group '{node_name}', which has no key "
            f"'{inner}'; to use another target, write the node into a file DIR/{node_name}/NAME.yaml and choose it with "
            f"--config-dir=DIR {node_name}=NAME"
        )
    if "." not in key:
        known |= dict.fromkeys(_groups(origins))
    return f"{place}: there is no key '{key}'; {nearest_key(key, known)}"


def _wrong_type(error: Exception, cause: OmegaConfBaseException, origins: Origins) -> str:
    key = str(cause.full_key)
    place = _place(error, key, origins)
    entry = field_at(key)
    expected = type_name(entry[1]) if entry else "of another type"
    value = cause.value
    hint = ""
    if isinstance(value, float) and value.is_integer() and entry and entry[1] is int:
        hint = f"; write {int(value)}"
    elif value == "" and entry:
        hint = "; there is nothing after the '='"
    shown = "null" if value is None else repr(value)
    return f"{place}: {key} must be {expected}, not {shown}{hint}"


def _missing_option(error: MissingConfigException, origins: Origins) -> str:
    wanted = str(error.missing_cfg_file or "")
    group, _, option = wanted.rpartition("/")
    place = origins.chooser(wanted)
    if not group:
        where = ", ".join(display(one) for one in origins.directories)
        return f"{place}: there is no configuration '{wanted}' in {where}"
    options = list(error.options or [])
    near = did_you_mean(option, options)
    listed = f" It can be: {', '.join(options)}." if options and near.startswith("did you mean") else "."
    return (
        f"{place}: the group '{group}' has no option '{option}'; {near}{listed} An option of your own is a "
        "file "
        f"{wanted}.yaml in a directory given with --config-dir."
    )


def _bad_yaml(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{display(Path(mark.name))}:{mark.line + 1}" if mark else "a YAML file"
    problem = " ".join(one for one in (error.problem, error.context) if one)
    return f"{place}: this is not valid YAML: {problem}; check the brackets, quotes and indentation of this line"


def _other(error: Exception, origins: Origins) -> str:
    text = _sentence(str(error)).partition("See https")[0].strip()
    match = _FILE.search(text)
    file = origins.option_file(match[1]) if match else None
    place = display(file) if file else "command line"
    text = re.sub(r"^In '[^']+': ?", "", text)
    swept = re.match(r"Ambiguous value for argument '(.+?)'", text)
    if swept:
        key, _, value = swept[1].partition("=")
        return (
            f"{place}: {swept[1]} is several values; add -m for one run with each, or write {key}=[{value}] for a list"
        )
    if text.startswith("Config group override must be"):
        return _not_an_option(origins)
    removed = re.search(r"Could not delete from config\. '(.+?)' does not exist", text)
    if removed:
        known = fields(schema.Config)
        return f"{place}: there is no key '{removed[1]}' to remove; {nearest_key(removed[1], known)}"
    merged = re.search(r"Merge error: (\w+) is not a subclass of (\w+)", text)
    if merged:
        names = [
            name
            for name, (_, declared) in fields(schema.Config).items()
            if getattr(declared, "__name__", "") == merged[2]
        ]
        if names:
            place = _place(error, names[0], origins)
            return f"{place}: {names[0]} holds keys of its own and cannot be one value of type {merged[1]}"
    if not text and error.__cause__ is not None:
        text = _sentence(str(error.__cause__))
    return f"{place}: {text}"


def _not_an_option(origins: Origins) -> str:
    """Finds the argument that gives a group something else than an option; Hydra does not name it."""
    groups = _groups(origins)
    for override in map(split_override, origins.arguments):
        if override and override.key in groups and origins.option_file(f"{override.key}/{override.text}") is None:
            return (
                f"command line: {override.key}={override.text} names no option of the group "
                f"'{override.key}'; one value "
                f"inside it is written {override.key}.KEY=VALUE"
            )
    return "command line: a group takes the name of one of its options, GROUP=OPTION"


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _groups(origins: Origins) -> list[str]:
    directories = [one for one in origins.directories if one.is_dir()]
    return [one.name for directory in directories for one in directory.iterdir() if one.is_dir()]


def _plain_fields(node: type) -> dict[str, Any]:
    return {one.name: one for one in dataclasses.fields(node)}

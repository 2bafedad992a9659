"""Where a configuration value was written: the command line, or a line of a YAML file.

Hydra's composed configuration does not remember it. It is found again by walking the defaults lists from
train.yaml in the order in which Hydra merges them and looking for the key, the last place first.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

_OVERRIDE = re.compile(r"^(?P<sign>\+\+|\+|~)?(?P<key>[^=]+?)(?:=(?P<text>.*))?$", re.DOTALL)
_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Origin:
    """A place that set a value; `text` is what was written there if it was a plain word, without quotes."""

    place: str
    text: str | None = None


@dataclasses.dataclass(frozen=True)
class Override:
    """One argument of the command line, split but not interpreted."""

    sign: str
    key: str
    text: str | None


def split_override(argument: str) -> Override | None:
    """Splits `+model.width=3` into its sign, key and text.

    Args:
        argument: one argument of the command line.

    Returns:
        Its parts; None for an option such as `--cfg`.

    Example:
        >>> split_override("++name=a=b")
        Override(sign='++', key='name', text='a=b')
    """
    match = None if argument.startswith("-") else _OVERRIDE.match(argument)
    return Override(match["sign"] or "", match["key"], match["text"]) if match else None


def display(file: Path) -> str:
    """Writes a file's path the way the user would: relative to the current directory if it lies inside.

    Args:
        file: an absolute path.

    Returns:
        The shorter path.

    Example:
        >>> display(Path.cwd() / "configs" / "train.yaml")
        'configs/train.yaml'
    """
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


class Origins:
    """Finds where values of one composed configuration were written.

    Args:
        directories: the directories that were searched for YAML, in order.
        arguments: the overrides of the command line.
        choices: the option that was chosen of each group; empty while composing failed.
        primary: the name of the primary configuration, without `.yaml`.

    Example:
        >>> origins = Origins([], ["+model.width=3"], {}, "train")
        >>> origins.find("model.width")
        Origin(place='command line', text='3')
    """

    def __init__(
        self, directories: Sequence[Path], arguments: Sequence[str], choices: Mapping[str, Any], primary: str
    ) -> None:
        self.directories = list(directories)
        self.arguments = list(arguments)
        self._overrides = [one for one in map(split_override, arguments) if one]
        self._choices = choices
        self._primary = primary

    def find(self, path: str) -> Origin | None:
        """Finds the last place that set a key.

        Args:
            path: the dotted key, for example `trainer.max_steps`.

        Returns:
            The place, or None when no file and no argument sets the key itself.
        """
        for override in reversed(self._overrides):
            if override.key == path and override.key not in self._choices:
                return Origin("command line", _unquoted(override.text))
            if path.startswith(override.key + ".") and override.key not in self._choices:
                return Origin("command line")
        for file, package in reversed(list(self._files(self._primary, "", frozenset()))):
            origin = find_in_file(file, path, package)
            if origin is not None:
                return origin
        below = any(one.key.startswith(path + ".") for one in self._overrides)
        return Origin("command line") if below else None

    def place(self, path: str) -> str:
        """Names the place that set a key, or the nearest key above it.

        Args:
            path: the dotted key.

        Returns:
            For example `command line` or `configs/model/mlp.yaml:3`.
        """
        while path:
            origin = self.find(path)
            if origin is not None:
                return origin.place
            path = path.rpartition(".")[0]
        return "the configuration"

    def chooser(self, option: str) -> str:
        """Names the place that chose an option which does not exist.

        Args:
            option: the group and the option, separated by slashes.

        Returns:
            `command line`, or the line of the file whose defaults list names the option.
        """
        named = [f"{one.key.partition('@')[0]}/{one.text}" for one in self._overrides]
        if option in named:
            return "command line"
        for file in filter(None, map(self.option_file, [*reversed(named), self._primary])):
            for entry in _defaults(file):
                for key, value in entry.items() if isinstance(entry, dict) else ():
                    group = str(key).split()[-1].partition("@")[0].lstrip("/")
                    if f"{group}/{value}" == option:
                        return display(file)
        return "command line"

    def option_file(self, option: str) -> Path | None:
        """Finds the file of a configuration such as `model/mlp`.

        Args:
            option: the group and the option, separated by slashes.

        Returns:
            The first such file of the search path, or None.
        """
        for directory in self.directories:
            for suffix in ("", ".yaml", ".yml"):
                file = directory / (option + suffix)
                if file.is_file():
                    return file
        return None

    def _files(self, option: str, package: str, seen: frozenset[str]) -> Iterator[tuple[Path, str]]:
        """Yields the files that make up an option, as they are merged, with the node that each fills."""
        file = self.option_file(option)
        if file is None or option in seen:
            return
        package = package_of(file, option, package)
        group = option.rpartition("/")[0]
        entries = _defaults(file)
        if "_self_" not in entries:
            entries.append("_self_")
        for entry in entries:
            if entry == "_self_":
                yield file, package
            elif isinstance(entry, str):
                inner = entry[1:] if entry.startswith("/") else f"{group}/{entry}".lstrip("/")
                yield from self._files(inner, package, seen | {option})
            elif isinstance(entry, dict):
                yield from self._chosen(entry, group, package, seen | {option})

    def _chosen(
        self, entry: dict[Any, Any], group: str, package: str, seen: frozenset[str]
    ) -> Iterator[tuple[Path, str]]:
        for key, default in entry.items():
            words = str(key).split()
            name, _, explicit = words[-1].partition("@")
            if "override" in words[:-1]:
                continue  # the choice that it makes is among the choices already
            inner = name[1:] if name.startswith("/") else f"{group}/{name}".lstrip("/")
            chosen = self._choices.get(f"{inner}@{explicit}" if explicit else inner, default)
            for option in chosen if isinstance(chosen, list) else [chosen]:
                if option is not None:
                    target = explicit or inner.replace("/", ".")
                    yield from self._files(f"{inner}/{option}", target.removeprefix("_global_"), seen)


def package_of(file: Path, option: str, default: str) -> str:
    """Names the node of the configuration that a file fills.

    Args:
        file: the YAML file.
        option: its group and option, separated by slashes.
        default: the node that it fills if it has no `# @package` line.

    Returns:
        The dotted key of the node, empty for the root.

    Example:
        >>> package_of(Path("configs/experiment/digits_cnn.yaml"), "experiment/digits_cnn", "experiment")
        ''
    """
    header = _PACKAGE.search(file.read_text(encoding="utf-8", errors="replace"))
    if header is None:
        return default
    written = header[1].replace("_group_", option.rpartition("/")[0].replace("/", "."))
    return re.sub(r"^_global_\.?", "", written)


def find_in_file(file: Path, path: str, package: str) -> Origin | None:
    """Finds the line of a YAML file that sets a key.

    Args:
        file: the file.
        path: the dotted key in the composed configuration.
        package: the node that the file fills, empty for the root.

    Returns:
        The line, or None when the file does not set the key.

    Example:
        >>> find_in_file(Path("configs/model/mlp.yaml"), "model.dropout", "model").text
        '0.0'
    """
    if package and not path.startswith(package + "."):
        return None
    node = _parse(file)
    mark = None
    for part in (path[len(package) + 1 :] if package else path).split("."):
        if not isinstance(node, yaml.MappingNode):
            return None
        for key, value in node.value:
            if str(key.value) == part:
                mark, node = key.start_mark, value
                break
        else:
            return None
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    line = f":{mark.line + 1}" if mark else ""
    return Origin(display(file) + line, str(node.value) if plain and node is not None else None)


def _parse(file: Path) -> yaml.Node | None:
    try:
        return yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return None


def _defaults(file: Path) -> list[Any]:
    try:
        content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return []
    entries: Any = content.get("defaults") if isinstance(content, dict) else None  # pyright: ignore
    return list(entries) if isinstance(entries, list) else []  # pyright: ignore


def _unquoted(text: str | None) -> str | None:
    if text is None or text[:1] in ("'", '"', "[", "{", "$") or "${" in text:
        return None
    return text.strip()


def search_directories(main: Path, config_dir: str | None, arguments: Sequence[str]) -> list[Path]:
    """Lists the directories in which Hydra looks for YAML, for messages when it cannot compose.

    Args:
        main: the directory of train.yaml.
        config_dir: what `--config-dir` says, None without it.
        arguments: the overrides, which may set `hydra.searchpath`.

    Returns:
        The directories in the order of the search.

    Example:
        >>> [str(one) for one in search_directories(Path("/a"), None, ["hydra.searchpath=[file:///b]"])]
        ['/a', '/b']
    """
    directories = [main]
    if config_dir is not None:
        directories.append(Path(config_dir).absolute())
    for argument in arguments:
        override = split_override(argument)
        if override and override.key == "hydra.searchpath" and override.text:
            names = override.text.strip("[]").split(",")
            directories += [Path(one.strip(" '\"").removeprefix("file://")).absolute() for one in names]
    return directories

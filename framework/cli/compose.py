"""Has Hydra compose the configuration of `framework train`, and explains what goes wrong in that."""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Generator
from typing import NoReturn

import hydra
from omegaconf import DictConfig

from framework.cli import schema
from framework.cli.check import field_at
from framework.cli.explain import explain, unlisted_keyword
from framework.cli.origin import Origins, search_directories, split_override
from framework.cli.suggest import did_you_mean
from framework.errors import ConfigError

_PRIMARY = "train"
_WITH_VALUE = frozenset({"-i", "--info", "-cp", "--config-path", "--experimental-rerun"})
_LEFT_TO_HYDRA = frozenset(
    {"-h", "--help", "--hydra-help", "--version", "-r", "--run", "-m", "--multirun", "-sc", "--shell-completion"}
    | _WITH_VALUE
)


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """The arguments of `framework train`.

    Attributes:
        arguments: what Hydra is given.
        written: for each of them that was changed for Hydra, what the user wrote.
        show: print the configuration (`--cfg job`) instead of training.
        package: print only this node.
        resolve: print values in place of `${...}`.
        config_dir: a directory with YAML of the user's, None without one.
        config_name: the primary configuration.
    """

    arguments: list[str]
    written: dict[str, str]
    show: bool
    package: str | None
    resolve: bool
    config_dir: str | None
    config_name: str

    def original(self, override: str) -> str:
        """Gives an override as the user wrote it.

        Args:
            override: an override as Hydra was given it.

        Returns:
            The user's text, or the override itself if Hydra made it, as in a sweep.
        """
        return self.written.get(override, self.written.get(override.removeprefix("++"), override))


def parse(arguments: list[str]) -> CommandLine:
    """Reads the options of Hydra that concern us, and prepares the arguments for it.

    Args:
        arguments: the arguments after `framework train`.

    Returns:
        What they say.

    Raises:
        ConfigError: an option does not exist.

    Example:
        >>> parse(["--cfg", "job", "name=1e10"]).arguments
        ["name='1e10'"]
    """
    options, rest = _parser().parse_known_args(arguments)
    for unknown in (one for one in rest if one.startswith("-") and one.partition("=")[0] not in _LEFT_TO_HYDRA):
        raise ConfigError(f"command line: there is no option {unknown}; {did_you_mean(unknown, _LEFT_TO_HYDRA)}")
    show = options.cfg == "job"
    kept = {"--config-dir": options.config_dir, "--config-name": options.config_name}
    if not show:  # for --cfg job Hydra composes as for a run, and our task prints
        kept |= {"--cfg": options.cfg, "--package": options.package}
    flags = [f"{name}={value}" for name, value in kept.items() if value is not None]
    flags += ["--resolve"] if options.resolve and not show else []
    # Hydra's own parser wants all overrides in one place: `seed=1 -m name=a,b` would be an error.
    after = ["", *rest]
    overrides = [one for one, before in zip(rest, after, strict=False) if one[:1] != "-" and before not in _WITH_VALUE]
    arguments = flags + [one for one in rest if one not in overrides] + overrides
    written = {_keep_text(one): one for one in arguments}
    primary = options.config_name or _PRIMARY
    return CommandLine(
        list(map(_keep_text, arguments)),
        written,
        show,
        options.package,
        options.resolve,
        options.config_dir,
        primary,
    )


def compose(task: Callable[[DictConfig], None], line: CommandLine) -> None:
    """Has Hydra compose the configuration and call the task: once, or for each value of a sweep.

    Args:
        task: called with the configuration; must not raise.
        line: the command line.

    Raises:
        FrameworkError: the configuration cannot be composed; the message names the key, its place and what to
            write.
        SystemExit: the arguments ask Hydra for help or information, which it has printed.

    Example:
        >>> compose(lambda config: print(config.trainer.max_steps), parse(["trainer.max_steps=7"]))
        7
    """
    schema.register()
    main_directory, arguments = schema.config_directory(), line.arguments
    run = hydra.main(config_path=str(main_directory), config_name=_PRIMARY, version_base="1.3")(task)
    while True:
        try:
            with _hydra_environment(arguments):
                run()
            return
        except Exception as error:
            key = unlisted_keyword(error)
            retried = [f"++{one}" if key and one.startswith(key + "=") else one for one in arguments]
            if retried == arguments:
                directories = search_directories(main_directory, line.config_dir, arguments)
                explained = explain(error, Origins(directories, arguments, {}, line.config_name))
                if explained is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
                    raise
                raise explained from error
            arguments = retried


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"command line: {message}; framework train --help shows what can be written")


def _parser() -> argparse.ArgumentParser:
    """The options of Hydra that we look at ourselves; it checks all of them later."""
    parser = _Parser(prog="framework train", add_help=False, allow_abbrev=False)
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-name", "-cn")
    return parser


def _keep_text(argument: str) -> str:
    """Quotes a number or truth value that is given for a key declared as text, which Hydra would rewrite."""
    override = split_override(argument)
    if override is None or not override.text or override.sign == "~":
        return argument
    entry = field_at(override.key)
    if entry is None or entry[1] not in (str, str | None):
        return argument
    words = override.text.split(",")
    if not any(_looks_like_number(word) for word in words):
        return argument
    return f"{override.sign}{override.key}=" + ",".join(f"'{one}'" if _looks_like_number(one) else one for one in words)


def _looks_like_number(word: str) -> bool:
    with contextlib.suppress(ValueError):
        float(word)
        return True
    return word.lower() in ("true", "false")


@contextlib.contextmanager
def _hydra_environment(arguments: list[str]) -> Generator[None, None, None]:
    """Gives Hydra its arguments, and has it raise its errors rather than print them and exit."""
    before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = ["framework", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv = before[0]
        os.environ.pop("HYDRA_FULL_ERROR")
        if before[1] is not None:
            os.environ["HYDRA_FULL_ERROR"] = before[1]

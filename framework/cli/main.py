"""The command `framework`: reads the command line, has Hydra compose the configuration, and starts the work.

Nothing here imports JAX; `build.py` does, after the configuration was found right.
"""

import contextlib
import json
import logging
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from framework.cli import runs
from framework.cli.check import check
from framework.cli.compose import CommandLine, compose, parse
from framework.cli.origin import Origins
from framework.cli.saved import saved_config
from framework.cli.suggest import did_you_mean
from framework.errors import ConfigError, FrameworkError

_IMPORTED_AT = time.time()
_LOG = logging.getLogger(__name__)
_HELP = """usage: framework COMMAND [KEY=VALUE ...]

  framework train                      train a model; configured by Hydra, see framework train --help
      experiment=digits_cnn trainer.max_steps=500 optimizer.learning_rate=3e-4
      --cfg job                        print the configuration instead
      --config-dir DIR                 look for YAML groups of your own in DIR too
      -m seed=1,2,3                    one run for each value
  framework resume run=DIR             continue a run; may change trainer.*, monitor.* and checkpoint.*
      trainer.max_steps=2000
  framework evaluate run=DIR           measure the newest checkpoint of a run on held-out data

The last lines of a training say where its run directory is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the command and its arguments; those of the process when None.

    Returns:
        The exit code: 0 for success, 2 for a mistake that a message explains, 130 after Ctrl-C.

    Example:
        >>> main(["--help"])  # doctest: +ELLIPSIS
        usage: framework COMMAND [KEY=VALUE ...]
        ...
        0
    """
    command, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # so that a target may stand in a module of the current directory
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "resume": _resume,
        "evaluate": _evaluate,
    }
    try:
        if command in ("--help", "-h", "help"):
            print(_HELP)
            return 0
        if command == "-sc":
            return _complete(rest, list(commands))
        if command not in commands:
            raise ConfigError(f"there is no command '{command}'; {did_you_mean(command, commands)}")
        return commands[command](rest)
    except FrameworkError as error:
        _report(error)
        return 2
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:  # Hydra's and argparse's way to return
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _train(arguments: list[str]) -> int:
    line = parse(arguments)
    codes: list[int] = []

    def task(config: DictConfig) -> None:
        begin = _process_start() if not codes else time.time()
        codes.append(_job(config, line, begin))

    compose(task, line)
    return max(codes, default=0)


def _job(config: DictConfig, line: CommandLine, begin: float) -> int:
    """Does one run of `framework train`, or prints its configuration; returns the exit code."""
    settings = HydraConfig.get()
    try:
        overrides: Any = OmegaConf.to_container(settings.overrides.task)  # text: `${...}` in it is not to be resolved
        directories = [Path(one.path) for one in settings.runtime.config_sources if one.schema == "file"]
        origins = Origins(directories, overrides, settings.runtime.choices, str(settings.job.config_name))
        if line.show:
            return _show(config, origins, settings.runtime.choices, line)
        resolved = check(config, origins, settings.runtime.choices)
        text = OmegaConf.to_yaml(OmegaConf.create(resolved))
        given = [line.original(one) for one in overrides]
        run = runs.create(resolved["paths"]["runs"], resolved["name"], text, given)
        return _attempt(run, resolved, [], begin)
    except FrameworkError as error:
        _report(error)
        return 2
    except Exception:  # a fault of ours or of the user's code keeps its traceback; a sweep goes on with the next run
        traceback.print_exc()
        return 1


def _show(config: DictConfig, origins: Origins, choices: Any, line: CommandLine) -> int:
    """Prints the configuration as it would be run; a mistake in it is told after it, where it can be seen."""
    mistake = None
    try:
        check(config, origins, choices)
        if line.resolve:
            OmegaConf.resolve(config)
    except FrameworkError as error:
        mistake = error
    part: Any = OmegaConf.select(config, line.package) if line.package else config
    if part is None:
        near = did_you_mean(str(line.package), map(str, config))
        raise ConfigError(f"command line: there is no node '{line.package}'; {near}")
    print(f"# @package {line.package}\n" if line.package else "", end="")
    print(OmegaConf.to_yaml(part) if OmegaConf.is_config(part) else f"{part}\n", end="")
    if mistake is not None:
        raise mistake
    return 0


def _resume(arguments: list[str]) -> int:
    run, overrides = _run_argument("resume", arguments)
    config = saved_config(run, overrides)
    return _attempt(run, config, overrides, _process_start())


def _evaluate(arguments: list[str]) -> int:
    run, overrides = _run_argument("evaluate", arguments)
    if overrides:
        raise ConfigError(f"command line: framework evaluate takes nothing but run=DIR; remove {' '.join(overrides)}")
    config = saved_config(run, [])
    from framework.cli import build  # here, so that everything above goes without JAX

    step, splits = build.evaluate(config, run)
    names = sorted({name for metrics in splits.values() for name in metrics})
    width = max(12, *(len(name) + 2 for name in names))
    print(f"step {step} of {run.directory}")
    print("split".ljust(8) + "".join(name.rjust(width) for name in names))
    for split, metrics in splits.items():
        cells = (f"{metrics[name]:.6g}" if name in metrics else "" for name in names)
        print(split.ljust(8) + "".join(cell.rjust(width) for cell in cells))
    print(json.dumps({"run": str(run.directory), "step": step, **splits}))
    return 0


def _attempt(run: runs.Run, config: dict[str, Any], overrides: list[str], begin: float) -> int:
    """Trains in a run directory and prints what came out."""
    directory = shlex.quote(str(run.directory))
    print(f"run directory: {run.directory}", flush=True)
    try:
        with run.attempt(overrides) as attempt:
            from framework.cli import build  # here, so that everything above goes without JAX

            result = build.train(config, run, attempt)
            metrics, test = _words(result.metrics), _words(result.test or {})
            _LOG.info("step %d: %s", result.last_step, metrics)
            if test:
                _LOG.info("test: %s", test)
    except KeyboardInterrupt:
        print(f"\ninterrupted; continue this run with: framework resume run={directory}", file=sys.stderr)
        raise
    if result.first_step_at is not None:
        print(f"{result.first_step_at - begin:.1f} s from start to first step")
    elif result.last_step == result.first_step:
        more = f"framework resume run={directory} trainer.max_steps={2 * result.last_step}"
        print(f"step {result.last_step} was reached before; train further with: {more}")
    if metrics:
        print(f"step {result.last_step}: {metrics}")
    if test:
        print(f"test: {test}")
    print(f"run directory: {run.directory}")
    if config["monitor"]["tensorboard"]:
        print(f"curves: tensorboard --logdir {directory}/tensorboard")
    return 0


def _words(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in sorted(metrics.items()))


def _complete(arguments: list[str], commands: list[str]) -> int:
    """Answers the shell's question how a line goes on: with a command, or what Hydra knows after `train`."""
    line = os.environ.get("COMP_LINE", "")
    program, _, rest = line.strip().partition(" ")
    first, space, after = rest.lstrip().partition(" ")
    if first == "train" and (space or line.endswith(" ")):
        os.environ["COMP_LINE"] = f"{program} {after}" + (" " if line.endswith(" ") and after else "")
        return _train(["-sc", *arguments])
    if arguments[:1] and arguments[0].startswith("query="):
        print(" ".join(one for one in commands if one.startswith(first) and not space))
        return 0
    return _train(["-sc", *arguments])


def _run_argument(command: str, arguments: list[str]) -> tuple[runs.Run, list[str]]:
    """Takes `run=DIR` out of the arguments."""
    if any(one in ("--help", "-h") for one in arguments):
        print(_HELP)
        raise SystemExit(0)
    given = [one.removeprefix("run=") for one in arguments if one.startswith("run=")]
    if len(given) != 1 or not given[0]:
        raise ConfigError(f"command line: framework {command} needs one run directory: framework {command} run=DIR")
    return runs.Run(given[0]), [one for one in arguments if not one.startswith("run=")]


def _process_start() -> float:
    """Tells when this process was started, or came here if the system does not say; seconds since 1970."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
        started = time.time() - age
        if 0 <= _IMPORTED_AT - started < 60:
            return started
    return _IMPORTED_AT


def _report(error: FrameworkError) -> None:
    print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)

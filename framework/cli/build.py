"""Builds what a checked configuration names and trains or evaluates it: the only file here with JAX."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hydra.utils
import jax
from hydra.errors import InstantiationException

import framework as fw
from framework.checkpoint import Checkpoints
from framework.cli.runs import Attempt, Run
from framework.cli.signatures import signature
from framework.data import Splits
from framework.errors import CheckpointError, ConfigError, DataError, FrameworkError
from framework.monitor import Monitor, Progress, Records, TensorBoard, Writer

_OPTIMIZER_KEYS = ("_target_", "learning_rate", "clip_norm", "schedule")


@dataclasses.dataclass(frozen=True)
class Result:
    """What training did.

    Attributes:
        metrics: the last metrics of the evaluation data, or of the training data if there is none.
        test: the metrics of the test data at the end, or None if there is none.
        first_step: the step it began at.
        last_step: the step it ended at.
        first_step_at: when the first step of this process was done, in seconds since 1970.
    """

    metrics: dict[str, float]
    test: dict[str, float] | None
    first_step: int
    last_step: int
    first_step_at: float | None


def train(config: Mapping[str, Any], run: Run, attempt: Attempt) -> Result:
    r"""Trains what a configuration says, from the newest checkpoint of the run if there is one.

    Args:
        config: a checked and resolved configuration.
        run: where to write.
        attempt: told the last step, however training ends.

    Returns:
        What was done.

    Raises:
        FrameworkError: the data, the model or the run directory cannot be used.

    Example:
        >>> import tempfile
        >>> from framework.cli.runs import create
        >>> from framework.cli.saved import saved_config
        >>> data = "data: {_target_: framework.data.digits, flat: true}\n"
        >>> sizes = "in_features: 64, hidden: [8], out_features: 10"
        >>> model = f"model: {{_target_: framework.nn.models.MLP, {sizes}}}\n"
        >>> task = "task: {_target_: framework.train.Classification, num_classes: 10}\n"
        >>> optimizer = "optimizer: {_target_: optax.sgd, learning_rate: 0.1}\n"
        >>> trainer = "trainer: {max_steps: 2}\nmonitor: {tensorboard: false, progress: 'off'}\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = create(folder, "digits", data + model + task + optimizer + trainer, [])
        ...     with run.attempt() as attempt:
        ...         result = train(saved_config(run, []), run, attempt)
        ...     step, splits = evaluate(saved_config(run, []), run)
        >>> result.last_step, step, sorted(splits)
        (2, 2, ['eval', 'test'])
    """
    splits, task = _build(config)
    checkpoints = Checkpoints(run.directory / "checkpoints", **config["checkpoint"])
    start = checkpoints.latest() or 0
    monitor = _monitor(config, run.directory, start)
    trainer = fw.Trainer(**config["trainer"], checkpoints=checkpoints, monitor=monitor)
    try:
        if not start:
            monitor.text("train", 0, "config", run.config_text(), code=True)
            monitor.text("train", 0, "model", str(fw.summary(task.model)), code=True)
            monitor.hparams(_scalars(config), {})
        metrics = trainer.fit(task, splits.train, splits.eval)
        test = None if splits.test is None else trainer.evaluate(task, splits.test)
    finally:
        attempt.last_step = max(trainer.step, start)
        monitor.close()
    return Result(metrics, test, start, trainer.step, trainer.first_step_at)


def evaluate(config: Mapping[str, Any], run: Run) -> tuple[int, dict[str, dict[str, float]]]:
    """Measures the newest checkpoint of a run on its held-out data.

    Args:
        config: the run's configuration.
        run: the run.

    Returns:
        The step of the checkpoint, and the metrics by split: `eval`, and `test` if the data has one.

    Raises:
        CheckpointError: the run has no checkpoint, or it cannot be read.
    """
    splits, task = _build(config)
    checkpoints = Checkpoints(run.directory / "checkpoints", **config["checkpoint"])
    if checkpoints.latest() is None:
        raise CheckpointError(
            f"the run {run.directory} has no checkpoint to evaluate; train it first: framework resume "
            f"run={run.directory}"
        )
    step = checkpoints.restore(task).step
    trainer = fw.Trainer(**config["trainer"])
    held_out = {"eval": splits.eval} | ({} if splits.test is None else {"test": splits.test})
    return step, {name: trainer.evaluate(task, batches) for name, batches in held_out.items()}


def _build(config: Mapping[str, Any]) -> tuple[Splits, fw.Task]:
    seed = config["seed"]
    _keep_compiled_programs()
    splits = _instantiate("data", config["data"])
    rngs = {"rngs": fw.Rngs(seed)} if _takes(config["model"]["_target_"], "rngs") else {}
    model = _instantiate("model", config["model"], **rngs)
    optimizer = _optimizer(config["optimizer"], model)
    return splits, _instantiate("task", config["task"], model=model, optimizer=optimizer)


def _keep_compiled_programs() -> None:
    """Keeps every compiled program on disk, so that a second start of the same run compiles nothing."""
    chosen = os.environ.get("FRAMEWORK_CACHE") or os.environ.get("JAX_COMPILATION_CACHE_DIR")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "framework" / "compilation"
    update: Any = jax.config.update  # it has no annotations
    update("jax_compilation_cache_dir", str(folder))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _instantiate(path: str, node: Any, **supplied: Any) -> Any:
    """Calls a node's target with the node's keywords and with objects of ours.

    The objects are given to a partial, since Hydra would merge them into the configuration as if they were
    nodes.
    """
    try:
        partial = hydra.utils.instantiate(node, _partial_=True, _convert_="all")
        return partial(**supplied)
    except InstantiationException as error:
        raise _refused(path, error, node["_target_"]) from error
    except OSError as error:  # from the target itself
        raise _unusable_file(path, error, node["_target_"]) from error


def _optimizer(node: Mapping[str, Any], model: fw.Module) -> fw.Optimizer:
    try:
        # Hydra refuses dangerous targets only where it instantiates them.
        hydra.utils.instantiate({"_target_": node["_target_"], "_partial_": True})
        factory = hydra.utils.get_method(node["_target_"])
    except InstantiationException as error:
        raise _refused("optimizer", error, node["_target_"]) from error
    schedule = node.get("schedule")
    rate = node.get("learning_rate")
    if schedule is not None:
        try:
            rate = _instantiate("optimizer.schedule", schedule)
        except ValueError as error:  # optax refuses, for example, a warm-up that is longer than the run
            target = schedule["_target_"]
            raise ConfigError(f"optimizer.schedule: {target} refuses these values: {error}") from error
    nested = {key: value for key, value in node.items() if key not in _OPTIMIZER_KEYS}
    keywords = hydra.utils.instantiate(nested, _convert_="all")
    return fw.Optimizer(factory, model, learning_rate=rate, clip_norm=node.get("clip_norm"), **keywords)


def _refused(path: str, error: InstantiationException, target: str) -> Exception:
    """Finds what to raise for an error of Hydra: our own error inside it, or a paragraph if there is none."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, FrameworkError):
            return cause
        if isinstance(cause, OSError):
            return _unusable_file(path, cause, target)
        cause = cause.__cause__
    if error.__cause__ is None or isinstance(error.__cause__, ImportError):
        return ConfigError(f"{path} cannot be built: {' '.join(str(error).split())}")
    return error


def _unusable_file(path: str, error: OSError, target: str) -> FrameworkError:
    kind = DataError if path == "data" else ConfigError
    return kind(
        f"{path} cannot be built: {target} failed to use a file: {error}. Correct the path in the node '{path}' of the "
        f"configuration, or put the file there; relative paths begin at the current directory, {Path.cwd()}."
    )


def _takes(target: str, keyword: str) -> bool:
    """Tells whether a target takes a keyword, as far as reading its source can tell."""
    found = signature(target)
    return found is None or found.open or keyword in found.parameters


def _monitor(config: Mapping[str, Any], directory: Path, start: int) -> Monitor:
    wanted = config["monitor"]
    writers: list[Writer] = []
    if wanted["records"]:
        writers.append(Records(directory / "metrics.jsonl", first_step=start))
    if wanted["tensorboard"]:
        writers.append(TensorBoard(directory / "tensorboard", first_step=start))
    return Monitor(writers, Progress(config["trainer"]["max_steps"], start=start, mode=wanted["progress"]))


def _scalars(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens a configuration to dotted keys; TensorBoard's table has one column for each."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _scalars(value, f"{prefix}{key}.")
        elif value is not None:
            flat[prefix + key] = value if isinstance(value, bool | int | float | str) else str(value)
    return flat

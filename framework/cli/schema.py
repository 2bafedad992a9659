"""What a configuration may contain: the typed schema of configs/ and the place where its YAML lies.

Nodes that we own (trainer, monitor, checkpoint, paths) are closed: an unknown key is refused while the YAML
is merged. Nodes that name a `_target_` (data, model, task, optimizer) are open here, since their keys are the
target's keywords; `targets.py` checks them against the target's signature.
"""

import dataclasses
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

TARGET_NODES = ("data", "model", "task", "optimizer")
RESUMABLE = ("trainer", "monitor", "checkpoint")


def _bounded(minimum: int, default: Any = MISSING) -> Any:
    return dataclasses.field(default=default, metadata={"minimum": minimum})


@dataclasses.dataclass
class PathsConfig:
    """Where files are written; relative paths start at the current working directory."""

    runs: str = "runs"


@dataclasses.dataclass
class TrainerConfig:
    """The keywords of `framework.Trainer`; steps are optimizer updates."""

    max_steps: int = _bounded(1)
    log_every: int = _bounded(1, 50)
    evaluate_every: int | None = _bounded(1, 200)
    prefetch: int = _bounded(0, 2)


@dataclasses.dataclass
class MonitorConfig:
    """Which records of a run are written, and how progress is shown."""

    tensorboard: bool = True
    records: bool = True
    progress: str = dataclasses.field(default="auto", metadata={"choices": ("auto", "rich", "plain", "off")})


@dataclasses.dataclass
class CheckpointConfig:
    """How often a checkpoint is saved, in steps, and how many are kept."""

    every: int = _bounded(1, 200)
    keep: int = _bounded(1, 3)


@dataclasses.dataclass
class Config:
    """A whole configuration, as `framework train --cfg job` prints it."""

    name: str | None = None
    seed: int = _bounded(0, 0)
    paths: PathsConfig = dataclasses.field(default_factory=PathsConfig)
    data: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    model: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    task: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    optimizer: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    trainer: TrainerConfig = dataclasses.field(default_factory=TrainerConfig)
    monitor: MonitorConfig = dataclasses.field(default_factory=MonitorConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)


@dataclasses.dataclass
class OptimizerConfig:
    """The keys of `optimizer` that `framework.Optimizer` takes; all others are the optax factory's."""

    learning_rate: float = 1e-3
    clip_norm: float | None = None
    schedule: dict[str, Any] | None = None


def register() -> None:
    """Makes the schema known to Hydra under the name that train.yaml lists first in its defaults.

    Example:
        >>> register()
    """
    ConfigStore.instance().store(name="schema", node=Config)


def config_directory() -> Path:
    """Finds the directory that holds train.yaml and the groups.

    An installed package carries it inside itself; a source checkout keeps it beside the package.

    Returns:
        The absolute path of the directory.

    Example:
        >>> (config_directory() / "train.yaml").is_file()
        True
    """
    package = Path(__file__).resolve().parent.parent
    shipped = package / "configs"
    return shipped if (shipped / "train.yaml").is_file() else package.parent / "configs"

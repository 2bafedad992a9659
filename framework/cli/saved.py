"""Reads the configuration of an existing run, checks it, and applies what an attempt may change."""

from collections.abc import Sequence
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from framework.cli import schema
from framework.cli.check import check
from framework.cli.explain import explain
from framework.cli.origin import Origins, split_override
from framework.cli.runs import Run
from framework.errors import ConfigError


def saved_config(run: Run, overrides: Sequence[str]) -> dict[str, Any]:
    """Gives the configuration for one more attempt of a run.

    Args:
        run: the run.
        overrides: arguments such as `trainer.max_steps=800`; only trainer, monitor and checkpoint may change.

    Returns:
        The resolved configuration: config.yaml, changed by all earlier attempts and by these overrides.

    Raises:
        ConfigError: an override is wrong or not allowed, or config.yaml no longer fits the schema.

    Example:
        >>> import tempfile
        >>> from framework.cli.runs import create
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = create(folder, "a", "trainer: {max_steps: 5}", [])
        ...     saved_config(run, ["seed=1"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        framework.errors.ConfigError: command line: a run keeps seed=1 as it was; ...
    """
    refused = [one for one in overrides if not _allowed(one)]
    if refused:
        raise ConfigError(
            f"command line: a run keeps {', '.join(refused)} as it was; resume may change only "
            f"{', '.join(f'{node}.*' for node in schema.RESUMABLE)}. For other changes start a new run: "
            "framework train "
            f"{' '.join(refused)}"
        )
    origins = Origins([run.directory], overrides, {}, "config")
    try:
        config = _load(run)
        for override in OverridesParser.create().parse_overrides([*run.overrides(), *overrides]):
            OmegaConf.update(config, override.key_or_group, override.value())
    except Exception as error:
        explained = explain(error, origins)
        if explained is None:
            raise
        raise explained from error
    return check(config, origins, {})


def _allowed(argument: str) -> bool:
    override = split_override(argument)
    if override is None or override.sign or override.text is None:
        return False
    return override.key.partition(".")[0] in schema.RESUMABLE


def _load(run: Run) -> DictConfig:
    try:
        loaded = OmegaConf.create(run.config_text())
    except yaml.MarkedYAMLError as error:
        for mark in (error.problem_mark, error.context_mark):
            if mark is not None:
                mark.name = str(run.directory / "config.yaml")
        raise
    try:
        config = OmegaConf.merge(OmegaConf.structured(schema.Config), loaded)
    except OmegaConfBaseException as error:
        raise ConfigCompositionException(f"In 'config': {error}") from error
    assert isinstance(config, DictConfig)
    OmegaConf.set_struct(config, True)
    return config

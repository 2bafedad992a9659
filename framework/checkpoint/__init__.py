"""Checkpoints of modules on disk: written in the background, complete or absent, restored in place."""

from framework.checkpoint.checkpoints import Checkpoints as Checkpoints
from framework.checkpoint.checkpoints import Restored as Restored

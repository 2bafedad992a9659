"""Optimizers that hold their state and change the model in place, with optax underneath."""

from framework.optim.optimizer import Optimizer as Optimizer

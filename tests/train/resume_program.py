"""Trains a small network with dropout and batch norm; run by test_resume.py in processes of its own.

Usage: python resume_program.py CHECKPOINTS RESULT MAX_STEPS KILL_AT
"""

import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax

import framework as fw
from framework.checkpoint import Checkpoints
from framework.monitor import Monitor


class Killer:
    """A writer that kills the process without a warning when the metrics of a step arrive."""

    def __init__(self, step: int) -> None:
        self.step = step

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        if step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def drain(self) -> None: ...

    def close(self) -> None: ...


class Net(fw.Module):
    calls: fw.State

    def __init__(self, rngs: Any) -> None:
        self.layers = [fw.nn.Linear(64, 32, rngs=rngs), fw.nn.Linear(32, 10, rngs=rngs)]
        self.norm = fw.nn.BatchNorm(32)
        self.dropout = fw.nn.Dropout(0.2, rngs=rngs)
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        if self.training:
            self.calls = self.calls + 1
        return self.layers[1](self.dropout(jax.nn.relu(self.norm(self.layers[0](x)))))


def main(checkpoints: str, result: str, max_steps: int, kill_at: int) -> None:
    data = fw.data.digits(batch_size=48, flat=True, seed=3)
    model = Net(fw.Rngs(5))
    schedule = optax.cosine_decay_schedule(1e-2, 60)
    optimizer = fw.Optimizer(optax.adamw, model, learning_rate=schedule, clip_norm=1.0)
    task = fw.Classification(model, optimizer, num_classes=10)
    saver = Checkpoints(checkpoints, every=10, keep=3)
    monitor = Monitor([Killer(kill_at)]) if kill_at else None
    trainer = fw.Trainer(max_steps=max_steps, log_every=7, evaluate_every=20, checkpoints=saver, monitor=monitor)
    trainer.fit(task, data.train, data.eval)
    saver.close()
    leaves = {}
    for path, leaf in fw.select(task).items():
        leaves[path] = np.asarray(
            jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        )
    np.savez(result, step=trainer.step, **leaves)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

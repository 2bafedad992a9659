"""What a run keeps and shows of its measurements; needs no JAX."""

from framework.monitor.monitor import Monitor
from framework.monitor.progress import Progress
from framework.monitor.records import Records, read_records
from framework.monitor.tensorboard import TensorBoard
from framework.monitor.writer import TextWriter, Writer

__all__ = ["Monitor", "Progress", "Records", "TensorBoard", "TextWriter", "Writer", "read_records"]

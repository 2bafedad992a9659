"""Random streams that are objects."""

from framework.random.rngs import Rngs as Rngs
from framework.random.rngs import Stream as Stream

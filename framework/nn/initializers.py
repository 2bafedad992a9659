"""What layers begin with unless another initialiser is given."""

from collections.abc import Callable

import jax

Initializer = Callable[..., jax.Array]
"""A function of a key, a shape and a dtype, such as those of `jax.nn.initializers`."""

lecun_normal: Initializer = jax.nn.initializers.lecun_normal()
zeros: Initializer = jax.nn.initializers.zeros
ones: Initializer = jax.nn.initializers.ones

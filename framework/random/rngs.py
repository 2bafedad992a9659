# ruff: noqa: F722 - the shapes in jaxtyping annotations are strings that are no expressions
"""`Rngs`: named streams of random keys, that know how often they were used."""

import zlib
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt32

from framework.errors import ModuleError
from framework.module.base import Module
from framework.module.fields import KeyKind, State
from framework.module.ownership import check_write


class Stream(Module):
    """A stream of random keys: the key of draw number n is the key of the stream, folded with n.

    Args:
        key: the key of the stream, a typed JAX key of shape `[]`; or of shape `[n]` for n streams in one object, which
            `fw.scan` and `fw.vmap` take apart again.

    Raises:
        ModuleError: if it is no typed key.

    Example:
        >>> import jax
        >>> stream = Stream(jax.random.key(0))
        >>> first, second = stream(), stream()
        >>> bool(first == second), int(stream.count)
        (False, 2)
    """

    key: Annotated[Key[Array, "..."], KeyKind]
    count: State[UInt32[Array, "..."]]

    def __init__(self, key: Key[Array, "..."]) -> None:
        if not _is_key(key):
            raise ModuleError(
                f"Stream was given {_shown(key)}, which is no typed key. Make one with `jax.random.key(0)`, or take a "
                f"stream of an `Rngs`: `fw.Rngs(0).noise`."
            )
        self.key = key
        self.count = jnp.zeros(key.shape, jnp.uint32)

    def __call__(self) -> Key[Array, ""]:
        """Returns the next key, a typed JAX key of shape `[]`.

        Raises:
            ModuleError: if the object is a stack of streams.
        """
        if self.count.ndim:
            raise ModuleError(
                f"this Stream is a stack of {list(self.count.shape)} streams made by `fork`, and only one of them has "
                f"a next key. Draw inside of `fw.vmap` or `fw.scan` with the stack as mapped argument: "
                f"`fw.vmap(lambda stream: jax.random.normal(stream()))(stack)`."
            )
        key = jax.random.fold_in(self.key, self.count)
        self.count = self.count + 1
        return key

    def fork(self, number: int) -> "Stream":
        """Draws one key, and splits it into streams for the layers of a stack.

        Args:
            number: how many streams.

        Returns:
            One object whose key and count have an axis of this length in front.

        Example:
            >>> import jax
            >>> import framework as fw
            >>> stack = fw.Rngs(0).dropout.fork(3)
            >>> stack.key.shape, stack.count.tolist()
            ((3,), [0, 0, 0])
            >>> draws = fw.vmap(lambda stream: jax.random.normal(stream()))(stack)
            >>> len(set(draws.tolist())), stack.count.tolist()
            (3, [1, 1, 1])
        """
        return Stream(jax.random.split(self(), number))


class Rngs(Module):
    """Named streams, derived from one seed: `rngs.params()` is the next key of the stream `params`.

    A stream is made when its name is used for the first time, from the seed and a hash of the name, so that the draws
    of one stream do not depend on which others there are. `rngs()` draws from the stream `default`.

    Args:
        seed: a whole number, or a typed JAX key of shape `[]`.

    Raises:
        ModuleError: if the seed is neither.

    Example:
        >>> import jax
        >>> import framework as fw
        >>> rngs = fw.Rngs(0)
        >>> eager = jax.random.normal(rngs.noise())
        >>> draw = fw.jit(lambda rngs: jax.random.normal(rngs.noise()))
        >>> bool(draw(fw.Rngs(0)) == eager), bool(draw(rngs) == eager)
        (True, False)
    """

    key: Annotated[Key[Array, "..."], KeyKind]

    def __init__(self, seed: int | np.integer | Key[Array, ""] = 0) -> None:
        if isinstance(seed, int | np.integer) and not isinstance(seed, bool):
            self.key = jax.random.key(int(seed))
        elif isinstance(seed, jax.Array) and _is_key(seed) and seed.ndim == 0:
            self.key = seed
        else:
            raise ModuleError(
                f"Rngs was given {_shown(seed)}. Give it a whole number, `fw.Rngs(0)`, or one typed key, "
                f"`fw.Rngs(jax.random.key(0))`."
            )
        self.streams: dict[str, Stream] = {}

    def __getattr__(self, name: str) -> Stream:
        if name.startswith("_") or "streams" not in self.__dict__:
            raise AttributeError(f"Rngs has no attribute {name!r}")
        return self.stream(name)

    def __call__(self) -> Key[Array, ""]:
        """Returns the next key of the stream `default`."""
        return self.stream("default")()

    def stream(self, name: str) -> Stream:
        """Returns the stream of a name, the same object each time.

        Args:
            name: any name; `rngs.params` is short for `rngs.stream("params")`.

        Example:
            >>> import framework as fw
            >>> rngs = fw.Rngs(0)
            >>> rngs.stream("params") is rngs.params
            True
        """
        if name not in self.streams:
            check_write(self, name)  # the error is to name the streams, not the dict that holds them
            # Not Python's `hash`, which differs from process to process.
            self.streams[name] = Stream(jax.random.fold_in(self.key, zlib.crc32(name.encode())))
        return self.streams[name]

    def fork(self, number: int) -> "Rngs":
        """Makes the random streams of a stack of layers, each layer with streams of its own.

        Args:
            number: how many layers.

        Returns:
            One object whose keys and counts have an axis of this length in front, with the streams that exist already;
            others are made where they are used first.

        Example:
            >>> import jax
            >>> import framework as fw
            >>> layers = fw.vmap(lambda rngs: fw.nn.Linear(2, 2, rngs=rngs))(fw.Rngs(0).fork(3))
            >>> layers.weight.shape, len(set(layers.weight[:, 0, 0].tolist()))
            ((3, 2, 2), 3)
        """
        existing = list(self.streams)
        forked = Rngs(self.key)
        forked.key = jax.random.split(self.stream("fork")(), number)
        forked.streams = {name: self.streams[name].fork(number) for name in existing if name != "fork"}
        return forked


def _is_key(value: object) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _shown(value: object) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, jax.Array) else repr(value)

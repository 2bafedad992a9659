"""`Optimizer`: an optax transformation with its state, that changes a model in place."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from framework.errors import ModuleError
from framework.module.base import Module
from framework.module.fields import Param, State
from framework.module.paths import select, update


class Optimizer(Module):
    """Trains the selected leaves of a model, in place.

    The optimizer holds the model, so that inside of a compiled function both are the same objects as outside: pass the
    optimizer, the model or both. Its state is kept by leaf name, as in `state["0.mu.encoder.weight"]`.

    Args:
        transformation: an optax factory such as `optax.adamw`, whose keywords follow, or a finished
            `optax.GradientTransformation`. With a factory the learning rate is a leaf: it can be set between steps
            without a new trace, and two optimizers with equal arguments have equal structure.
        model: the module to train.
        wrt: which leaves to train, see `fw.select`.
        learning_rate: a number, or an optax schedule that is called with the number of updates done so far.
        clip_norm: gradients are scaled down to this global norm first, or None.
        keywords: more keywords of the factory; they are hyperparameters.

    Raises:
        ModuleError: if nothing is selected, a selected leaf is not of a floating type, or two leaves hold one array.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> import framework as fw
        >>> class Point(fw.Module):
        ...     x: fw.Param
        ...     def __init__(self):
        ...         self.x = jnp.array(1.0)
        >>> point = Point()
        >>> optimizer = fw.Optimizer(optax.sgd, point, learning_rate=0.25)
        >>> @fw.jit
        ... def step(optimizer):
        ...     optimizer.update(fw.grad(lambda point: point.x**2)(optimizer.model))
        >>> step(optimizer)
        >>> float(point.x)
        0.5
        >>> optimizer.learning_rate = 0.5
        >>> step(optimizer)
        >>> float(point.x), len(step.traces)
        (0.0, 1)
    """

    model: Module
    learning_rate: State | None
    step: State
    state: dict[str, State]

    def __init__(
        self,
        transformation: Callable[..., optax.GradientTransformation] | optax.GradientTransformation,
        model: Module,
        *,
        wrt: Any = Param,
        learning_rate: float | optax.Schedule | None = None,
        clip_norm: float | None = None,
        **keywords: Any,
    ) -> None:
        finished = isinstance(transformation, optax.GradientTransformation)
        if finished and (learning_rate is not None or keywords):
            given = ", ".join((["learning_rate"] if learning_rate is not None else []) + sorted(keywords))
            raise ModuleError(
                f"Optimizer was given a finished optax transformation and also {given}, which it has fixed already. Pass "
                f"the factory instead: `fw.Optimizer(optax.adamw, model, learning_rate=1e-3)`."
            )
        self.model = model
        self.transformation = tuple(transformation) if finished else transformation
        self.wrt = wrt
        self.keywords = keywords
        self.clip_norm = clip_norm
        self.schedule = learning_rate if callable(learning_rate) else None
        self.step = jnp.zeros((), jnp.int32)
        rate = learning_rate(self.step) if callable(learning_rate) else learning_rate
        self.learning_rate = None if rate is None else jnp.asarray(rate, jnp.float32)
        params = self._trained()
        _refuse_aliases(params, type(model).__name__)
        self.trained = tuple(params)
        state = self._transformation().init(params)
        named, self.structure = jax.tree_util.tree_flatten_with_path(state)
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in named]
        # Optax keeps the parameters themselves in some states; a copy of our own can be donated.
        self.state = {name: jnp.array(leaf) for name, (_, leaf) in zip(names, named, strict=True)}

    def update(self, gradients: Mapping[str, Any]) -> None:
        """Changes the model by one step, and the state of the optimizer with it.

        Args:
            gradients: gradient by leaf path, as `fw.grad` returns it; all trained leaves, and no others.

        Raises:
            ModuleError: if the paths are not those of the trained leaves, or the model has other leaves than it had.
        """
        params = self._trained()
        if tuple(params) != self.trained:
            changed = sorted(set(params) ^ set(self.trained))
            raise ModuleError(
                f"the leaves of {type(self.model).__name__} are not those that this Optimizer was made for "
                f"({', '.join(changed) or 'their order changed'}). Make a new one after changing the model: "
                f"`fw.Optimizer(optax.adamw, model, learning_rate=1e-3)`."
            )
        if gradients.keys() != params.keys():
            missing, unexpected = sorted(params.keys() - gradients.keys()), sorted(gradients.keys() - params.keys())
            raise ModuleError(
                f"Optimizer.update was given gradients of other leaves than it trains (missing: {missing or 'none'}; "
                f"unexpected: {unexpected or 'none'}). Differentiate with the same selection: "
                f"`fw.grad(loss, wrt=optimizer.wrt)`."
            )
        if self.schedule is not None:
            self.learning_rate = jnp.asarray(self.schedule(self.step), jnp.float32)
        with jax.named_scope("Optimizer"):
            state = jax.tree.unflatten(self.structure, list(self.state.values()))
            transformation = optax.with_extra_args_support(self._transformation())
            updates, state = transformation.update(dict(gradients), state, params)
            new: Any = optax.apply_updates(params, updates)
            update(self.model, new)
        self.state.update(zip(self.state, jax.tree.leaves(state), strict=True))
        self.step = self.step + 1

    def _trained(self) -> dict[str, Any]:
        params = select(self.model, self.wrt)
        if not params:
            raise ModuleError(
                f"Optimizer has nothing to train: no leaf of {type(self.model).__name__} is selected by wrt={self.wrt!r}. "
                f"Annotate trained leaves as `fw.Param` in the class body, or choose others with `wrt=`."
            )
        for path, leaf in params.items():
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                raise ModuleError(
                    f"Optimizer cannot train {path} of {type(self.model).__name__}, an array of {leaf.dtype}: steps would "
                    f"be cut off to whole numbers. Annotate it as `fw.State`, or convert it to a floating type."
                )
        return params

    def _transformation(self) -> optax.GradientTransformation:
        transformation: Any = self.transformation
        if isinstance(transformation, tuple):
            made = optax.GradientTransformation(*transformation)
        else:
            rate = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
            made = transformation(**rate, **self.keywords)
        return made if self.clip_norm is None else optax.chain(optax.clip_by_global_norm(self.clip_norm), made)


def _refuse_aliases(params: Mapping[str, Any], name: str) -> None:
    """Refuses two trained leaves that hold one array: they would be tied until the first step, and apart from then on."""
    first: dict[int, str] = {}
    for path, leaf in params.items():
        other = first.setdefault(id(leaf), path)
        if other != path:
            raise ModuleError(
                f"{other} and {path} of {name} hold one and the same array, and each would be trained by itself from the "
                f"first step on. To tie them, put the module that holds the array in both places, or use the one leaf in "
                f"both computations; to start equal and train apart, give one a copy: `jnp.copy(array)`."
            )

"""`jacfwd`, `jacrev`, `hessian`, `jvp` and `vjp` with respect to the leaves of objects."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from framework.errors import LiftError
from framework.lift.grad import Differentiable
from framework.module.fields import Param


def jacfwd(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, wrt: Any = Param) -> Callable[..., Any]:
    """Makes a function that returns the Jacobian of `function`, computed forward.

    Args:
        function: a function that returns a pytree of arrays.
        argnums: see `fw.value_and_grad`.
        wrt: see `fw.value_and_grad`.

    Returns:
        A function whose result has the structure of that of `function`, with the derivatives by each selected leaf in
        place of each array.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> layer = fw.nn.Linear(2, 3, rngs=fw.Rngs(0))
        >>> fw.jacfwd(lambda layer, x: layer(x))(layer, jnp.ones(2))["bias"].tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return _derivative(jax.jacfwd, function, argnums, wrt)


def jacrev(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, wrt: Any = Param) -> Callable[..., Any]:
    """Makes a function that returns the Jacobian of `function`, computed backward; see `jacfwd`.

    Args:
        function: see `jacfwd`.
        argnums: see `jacfwd`.
        wrt: see `jacfwd`.

    Returns:
        See `jacfwd`.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.jacrev(lambda x: x**2)(jnp.array([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    return _derivative(jax.jacrev, function, argnums, wrt)


def hessian(function: Callable[..., Any], argnums: int | Sequence[int] = 0, *, wrt: Any = Param) -> Callable[..., Any]:
    """Makes a function that returns the second derivatives of `function`, by each pair of selected leaves.

    Args:
        function: see `jacfwd`.
        argnums: see `jacfwd`.
        wrt: see `jacfwd`.

    Returns:
        As `jacfwd`, with two levels of selected leaves.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> fw.hessian(lambda x: (x**3).sum())(jnp.array([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    return _derivative(jax.hessian, function, argnums, wrt)


def _derivative(transform: Callable[..., Any], function: Callable[..., Any], argnums: Any, wrt: Any) -> Any:
    @functools.wraps(function)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        flat = Differentiable(function, args, kwargs, argnums, wrt)
        result, values = transform(flat, has_aux=True)(flat.selected)
        flat.finish(values)
        return result

    return derivative


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, wrt: Any = Param
) -> tuple[Any, Any]:
    """Returns the value of a function and its derivative in one direction.

    Args:
        function: a function that returns a pytree of arrays.
        primals: its arguments.
        tangents: the direction: for each argument a value of its structure, for an object a dict by leaf path.
        wrt: which leaves of objects have tangents, see `fw.value_and_grad`.

    Returns:
        The result, and its derivative.

    Raises:
        LiftError: if there are not as many tangents as arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> [float(part) for part in fw.jvp(lambda x: x**2, (jnp.array(3.0),), (jnp.array(1.0),))]
        [9.0, 6.0]
    """
    if len(primals) != len(tangents):
        raise LiftError(f"fw.jvp was given {len(primals)} primals and {len(tangents)} tangents; give one for each.")
    flat = Differentiable(function, tuple(primals), {}, range(len(primals)), wrt)
    _, tangent, values = jax.jvp(flat, (flat.selected,), (tuple(tangents),), has_aux=True)
    return flat.finish(values), tangent


def vjp(function: Callable[..., Any], *primals: Any, wrt: Any = Param) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Returns the value of a function and a function that pulls cotangents of it back to the arguments.

    Args:
        function: a function that returns a pytree of arrays.
        primals: its arguments.
        wrt: which leaves of objects get cotangents, see `fw.value_and_grad`.

    Returns:
        The result, and a function from its cotangent to those of the arguments (for an object a dict by leaf path).

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> value, pull_back = fw.vjp(lambda x: x**2, jnp.array(3.0))
        >>> float(pull_back(jnp.array(1.0))[0])
        6.0
    """
    flat = Differentiable(function, primals, {}, range(len(primals)), wrt)
    _, pull_back, values = jax.vjp(flat, flat.selected, has_aux=True)
    return flat.finish(values), lambda cotangent: pull_back(cotangent)[0]

"""What an annotation in a class body says about an attribute: trained leaf, other leaf, or hyperparameter."""

import inspect
import sys
import types
import typing
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

import jax
import numpy as np
from typing_extensions import TypeVar

_A = TypeVar("_A", default=jax.Array)


class Kind:
    """The role of an array leaf; subclasses of `ParamKind` and `StateKind` are roles of your own.

    A kind is never instantiated: the class itself stands for the role, and a filter by kind takes its subclasses too.
    """

    trained = False


class ParamKind(Kind):
    """A leaf that the optimizer trains."""

    trained = True


class StateKind(Kind):
    """A leaf that the program changes, and the optimizer does not.

    Example:
        >>> import framework as fw, jax.numpy as jnp
        >>> class Cache(fw.StateKind): ...
        >>> class Decoder(fw.Module):
        ...     keys: Cache
        ...     def __init__(self):
        ...         self.keys = jnp.zeros((2, 3))
        >>> list(fw.select(Decoder(), Cache))
        ['keys']
    """


class KeyKind(StateKind):
    """A leaf that is the key of a random stream; `fw.vmap` gives each element a key of its own."""


Param = Annotated[_A, ParamKind]
Param.__doc__ = "Annotation of a trained leaf: `weight: fw.Param` or `weight: fw.Param[Float[Array, 'in out']]`."
State = Annotated[_A, StateKind]
State.__doc__ = "Annotation of a leaf that is not trained: `mean: fw.State` or `mean: fw.State[Float[Array, 'n']]`."


def as_kind(annotation: Any) -> type[Kind]:
    """Returns the kind that `fw.Param`, `fw.State` or a kind class stands for.

    Args:
        annotation: an annotation alias or a subclass of `Kind`.

    Returns:
        The kind class.

    Raises:
        TypeError: if the annotation does not declare an array leaf.

    Example:
        >>> as_kind(Param).__name__
        'ParamKind'
    """
    kind = kind_of(annotation)
    if kind is None:
        raise TypeError(f"{annotation!r} is no kind of leaf: use fw.Param, fw.State or a subclass of fw.StateKind.")
    return kind


def kind_of(annotation: Any) -> type[Kind] | None:
    """Returns the kind that an annotation declares, looking inside unions and containers; None for hyperparameters."""
    if inspect.isclass(annotation) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, Kind):
            return annotation
        return StateKind if _is_array_type(annotation) else None
    origin = get_origin(annotation)
    if origin is Annotated:  # pyright: ignore[reportUnnecessaryComparison]
        inner, *metadata = get_args(annotation)
        for item in metadata:
            if inspect.isclass(item) and issubclass(item, Kind):
                return item
        return kind_of(inner)
    if origin in (Union, types.UnionType, *_CONTAINERS):
        kinds = [kind for argument in get_args(annotation) if (kind := kind_of(argument)) is not None]
        return kinds[0] if kinds else None
    return None


_CONTAINERS = (list, dict, tuple, Sequence, Mapping, MutableSequence, MutableMapping)


def _is_array_type(annotation: type) -> bool:
    array_type = getattr(annotation, "array_type", annotation)  # jaxtyping's classes name the array type they wrap
    return inspect.isclass(array_type) and issubclass(array_type, jax.Array | np.ndarray)


def annotations(cls: type) -> dict[str, Any]:
    """Returns the annotations of a class and its bases, resolved where that is possible.

    A name that is only imported for type checkers cannot be resolved; such an annotation counts as a hyperparameter.
    """
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        scope = vars(sys.modules.get(base.__module__, types.ModuleType("")))
        for name, annotation in inspect.get_annotations(base).items():
            found[name] = _resolve(annotation, scope, dict(vars(base)))
    return {name: hint for name, hint in found.items() if get_origin(hint) is not typing.ClassVar}


def _resolve(annotation: Any, scope: dict[str, Any], names: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, scope, names)
    except Exception:  # whatever a foreign annotation does when evaluated, it is not an array kind
        return None

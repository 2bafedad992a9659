"""`Module`: a mutable Python object that is a pytree, with state in its leaves and hyperparameters in its aux data."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp

from framework._compat import current_trace
from framework.errors import ModuleError, user_line
from framework.module.containers import MissingKind, adopt, is_dynamic
from framework.module.fields import Kind, annotations, kind_of
from framework.module.graph import build, copy_leaf, descendants, nodes_in, walk_read
from framework.module.hyper import NotAHyperparameter, identity_keyed, is_array, portable, same
from framework.module.layout import Layout, Node, epoch, layout_of, note_line
from framework.module.lost import ABSENT, Pending, rebuilt_as_argument
from framework.module.mode import ModeScope
from framework.module.ownership import OUTSIDE, check_read, check_reads, check_write, compiling, note_write, scopes


class Module(Node):
    """Base class of models, optimizers, trackers and every other object whose methods change it.

    Attributes annotated with `fw.Param` or `fw.State` are leaves, modules and containers of modules are children, and
    everything else is a hyperparameter. A module is an ordinary pytree for JAX; the `fw` transformations also carry out
    what its methods change.

    Example:
        >>> import jax.numpy as jnp
        >>> import framework as fw
        >>> class Sum(fw.Module):
        ...     total: fw.State
        ...     def __init__(self):
        ...         self.total = jnp.zeros(())
        ...     def update(self, x):
        ...         self.total = self.total + x.sum()
        >>> tracker = Sum()
        >>> fw.jit(tracker.update)(jnp.arange(4.0))
        >>> float(tracker.total)
        6.0
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_held",
        "_layout",
        "_lines",
        "_pending",
        "_plans",
        "_trace",
        "_version",
        "_watched",
    )

    _is_framework_module: ClassVar[bool] = True
    _kinds: ClassVar[dict[str, type[Kind] | None]] = {}
    _cached_properties: ClassVar[frozenset[str]] = frozenset()
    _held: bool

    training: bool = True
    """Whether the module is in training mode; set by `train()` and `eval()`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Makes each subclass a pytree of its own, and keeps comparison by identity where a decorator would replace it."""
        super().__init_subclass__(**kwargs)
        cls.__eq__ = Module.__eq__
        cls.__hash__ = Module.__hash__
        _register(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Makes an object that belongs to the current trace, with the defaults of its class; `__init__` fills it."""
        self = object.__new__(cls)
        self._start_blank()
        for name, default in cls.__dict__["_defaults"].items():
            setattr(self, name, default)
        return self

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __setattr__(self, name: str, value: Any) -> None:
        check_write(self, name)
        cls = type(self)
        descriptor = getattr(cls, name, None)
        if hasattr(type(descriptor), "__set__") and not isinstance(descriptor, _LeafField):
            object.__setattr__(self, name, value)
            return
        content, kind = self.__dict__, cls._kinds.get(name)
        old = content.get(name, _MISSING)
        if kind is not None and isinstance(value, bool | int | float) and is_array(old):
            # `optimizer.learning_rate = 1` stays a float: a number takes the dtype that adding it would have.
            value = jnp.asarray(value, dtype=jnp.result_type(old.dtype, value))
        try:
            stored = adopt(value, kind)
        except MissingKind:
            raise ModuleError(_missing_kind_text(cls, name, value)) from None
        except NotAHyperparameter as error:
            raise ModuleError(f"{cls.__name__}.{name} cannot hold this value ({user_line()}): {error}.") from None
        if is_array(stored) and is_array(old):
            note_write(self, name, stored)
            content[name] = stored  # an array over an array: the structure stays
            if self._watched:
                epoch.writes += 1
            return
        if is_dynamic(stored):
            self._check_cycle(name, stored)
        elif old is not _MISSING and not is_dynamic(old) and same(old, stored):
            return
        elif (function := identity_keyed(stored)) is not None:
            _warn_identity(cls, name, function)
        note_write(self, name, stored)
        content[name] = stored
        if self._watched or compiling.reads is not None:  # a compiled function may be traced anew because of it
            note_line(self, name)
            if old is _MISSING and is_array(stored):
                compiling.created.append((self, name, stored))
        layout = self._layout
        if layout is None or is_dynamic(stored) or name in layout.dynamic or name in cls._cached_properties:
            self._mark_changed()
        else:
            self._mark_changed(layout.with_static(name, stored))

    def __delattr__(self, name: str) -> None:
        check_write(self, name)
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r} to delete")
        note_write(self, name, ABSENT)
        del self.__dict__[name]
        if self._watched or compiling.reads is not None:
            note_line(self, name)
        layout = self._layout
        if layout is None or name in layout.dynamic or name not in layout.names:
            self._mark_changed()
        else:
            self._mark_changed(layout.without_static(name))

    def train(self) -> ModeScope:
        """Puts this module and everything in it into training mode.

        Returns:
            A context manager that restores the former modes when it is left; it may be ignored.

        Example:
            >>> import framework as fw
            >>> layer = fw.nn.Dropout(0.5, rngs=fw.Rngs(0))
            >>> with layer.eval():
            ...     layer.training
            False
            >>> layer.training
            True
        """
        return ModeScope(descendants(self), training=True)

    def eval(self) -> ModeScope:
        """Puts this module and everything in it into evaluation mode; see `train`."""
        return ModeScope(descendants(self), training=False)

    def clone(self) -> Self:
        """Returns a copy that shares no array buffer with this module, and keeps what is shared inside of it shared.

        Example:
            >>> import framework as fw
            >>> layer = fw.nn.Linear(2, 3, rngs=fw.Rngs(0))
            >>> copy = layer.clone()
            >>> copy.weight is layer.weight, fw.tree_equal(copy, layer)
            (False, True)
        """
        graph = walk_read([self])
        copies: dict[int, Any] = {id(leaf): copy_leaf(leaf) for leaf in graph.gather()}
        return build(graph.structure, [copies[id(leaf)] for leaf in graph.gather()])[0]

    def __getstate__(self) -> dict[str, Any]:
        if compiling.reads is not None:
            check_reads(self, layout_of(self).dynamic)
        return {name: portable(value) for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.clear()
        self.__dict__.update(state)
        self._mark_changed()

    def __repr__(self) -> str:
        from framework.module.display import module_repr  # display is built on top of this file

        return module_repr(self)

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        """Shows the module in a notebook as treescope shows objects, with its arrays drawn."""
        from treescope import repr_lib  # only treescope calls this

        return repr_lib.render_object_constructor(
            object_type=type(self), attributes=vars(self), path=path, subtree_renderer=subtree_renderer
        )

    def _check_cycle(self, name: str, value: Any) -> None:
        """Refuses an object inside of itself, which has no tree structure. Only a held object can close a cycle."""
        children = nodes_in(value)
        if self in children or (self._held and any(self is node for child in children for node in descendants(child))):
            raise ModuleError(
                f"{type(self).__name__}.{name} = ... would put this {type(self).__name__} inside of itself "
                f"({user_line()}); a pytree cannot contain itself. Pass the outer object to the method that needs it "
                f"instead of storing it."
            )
        for child in children:
            for module in (child,) if isinstance(child, Module) else descendants(child):
                if isinstance(module, Module):
                    object.__setattr__(module, "_held", True)

    def _start_blank(self) -> None:
        if "_kinds" not in type(self).__dict__:
            _finish_class(type(self))
        fix = object.__setattr__
        fix(self, "_layout", None)
        fix(self, "_version", 0)
        fix(self, "_watched", False)
        fix(self, "_held", False)
        fix(self, "_plans", None)
        fix(self, "_pending", None)
        fix(self, "_lines", None)
        fix(self, "_trace", current_trace())

    def _storage(self) -> dict[str, Any]:
        return self.__dict__

    def _make_layout(self) -> Layout:
        cls, content = type(self), self.__dict__
        skipped = cls.__dict__["_cached_properties"]
        dynamic = tuple(name for name, value in content.items() if name not in skipped and is_dynamic(value))
        found = {*dynamic, *skipped}
        statics = tuple((name, value) for name, value in content.items() if name not in found)
        kinds = tuple(None if isinstance(content[name], Node) else cls._kinds.get(name) for name in dynamic)
        names = tuple(name for name in content if name not in skipped)
        return Layout.of(cls, dynamic, statics, kinds, names)

    def _fill(self, layout: Layout, children: Any) -> None:
        content = self.__dict__
        content.clear()
        content.update(dict.fromkeys(layout.names))  # an attribute that turns into a leaf keeps its place
        content.update(layout.statics)
        content.update(zip(layout.dynamic, children, strict=True))
        object.__setattr__(self, "_layout", layout)
        epoch.writes += 1


_MISSING = object()


class _LeafField:
    """Descriptor of an annotated leaf: reads it from the instance, past the check of captured reads."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default = name, default

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            if self.default is _MISSING:
                raise AttributeError(f"type object {owner.__name__!r} has no attribute {self.name!r}")
            return self.default
        try:
            value = instance.__dict__[self.name]
        except KeyError:
            raise AttributeError(
                f"{type(instance).__name__!r} object has no attribute {self.name!r} yet: it is annotated in the class "
                f"body, and `__init__` has not assigned it"
            ) from None
        if scopes.open and compiling.reads is not None and not isinstance(value, Node):
            check_read(instance, self.name, value)
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        Module.__setattr__(instance, self.name, value)


def _finish_class(cls: type[Any]) -> None:
    """Reads the annotations at the first instance, when all names exist and decorators have run."""
    _check_decorators(cls)
    hints = annotations(cls)
    kinds = {name: kind for name, hint in hints.items() if (kind := kind_of(hint)) is not None}
    fields: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
    defaults: dict[str, Any] = {}
    for name in hints:
        default = _class_default(cls, name)
        is_field = name in fields and fields[name].default_factory is not dataclasses.MISSING
        if default is not _MISSING and name != "training" and not is_field:
            defaults[name] = default
        if name in kinds:
            setattr(cls, name, _LeafField(name, default))
    cached = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_cached_property(value)}
    cls._cached_properties, cls._defaults, cls._kinds = frozenset(cached), defaults, kinds


def _check_decorators(cls: type[Any]) -> None:
    """Refuses classes whose attributes are kept where no transformation finds them, or can never be assigned."""
    slots = [base.__dict__.get("__slots__", ()) for base in cls.__mro__ if not issubclass(Module, base)]
    if any(set((names,) if isinstance(names, str) else names) - {"__dict__", "__weakref__"} for names in slots):
        raise ModuleError(
            f"{cls.__name__} has `__slots__`, and attributes in slots are not in the tree: transformations would lose "
            f"them. Remove `__slots__`, or `slots=True` from `@dataclass`."
        )
    parameters = getattr(cls, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        raise ModuleError(
            f"{cls.__name__} is a frozen dataclass, and modules are changed by assigning to their attributes. Remove "
            f"`frozen=True` from `@dataclass`."
        )


def _class_default(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            value = base.__dict__[name]
            if isinstance(value, _LeafField):
                return value.default
            if isinstance(value, staticmethod):
                return value.__func__
            return _MISSING if hasattr(type(value), "__set__") or _is_cached_property(value) else value
    return _MISSING


def _is_cached_property(value: Any) -> bool:
    return isinstance(value, functools.cached_property)


def _missing_kind_text(cls: type, name: str, value: Any) -> str:
    written = [vars(base).get("__annotations__", {}).get(name) for base in cls.__mro__]
    annotation = next((text for text in written if text is not None), None)
    if isinstance(annotation, str) and annotations(cls).get(name) is None:
        return (
            f"{cls.__name__}.{name} was given an array ({user_line()}), and its annotation {annotation!r} cannot be "
            f"read: a name in it is not defined in the module of {cls.__name__}. Define or import that name at the top "
            f"of the file, outside of functions and of `if TYPE_CHECKING:`."
        )
    form = {list: "list[{}]", dict: "dict[str, {}]", tuple: "tuple[{}, ...]"}.get(type(value), "{}")
    param, state = form.format("fw.Param"), form.format("fw.State")
    return (
        f"{cls.__name__}.{name} was given an array ({user_line()}), and the class does not say what the array is. "
        f"Add one of these two lines to the body of class {cls.__name__}: `{name}: {param}` if the optimizer should "
        f"train it, or `{name}: {state}` if it is state that is kept and not trained."
    )


def _warn_identity(cls: type, name: str, function: Callable[..., Any]) -> None:
    warnings.warn(
        f"{cls.__name__}.{name} is the function {function.__qualname__}, which holds arrays or unhashable values in "
        f"its closure and is only equal to itself: every {cls.__name__} with a function made anew compiles anew. Define "
        f"it once at module level, or store what it holds in attributes.",
        stacklevel=3,
    )


def _register(cls: type[Module]) -> None:
    """Registers a class as a pytree whose leaves have attribute names and whose aux data is the interned layout."""

    def flatten(module: Module) -> tuple[tuple[Any, ...], Layout]:
        layout = module._layout or layout_of(module)
        if scopes.open and compiling.reads is not None:
            check_reads(module, layout.dynamic)
        if module._pending is not None:
            module._pending.returned()
        return layout.getter(module.__dict__), layout

    def flatten_with_keys(module: Module) -> tuple[tuple[Any, ...], Layout]:
        layout = layout_of(module)
        content = module.__dict__
        if scopes.open and compiling.reads is not None:
            check_reads(module, layout.dynamic)
        if module._pending is not None:
            module._pending.returned()
        return tuple((jax.tree_util.GetAttrKey(name), content[name]) for name in layout.dynamic), layout

    def unflatten(layout: Layout, children: Iterable[Any]) -> Module:
        module = object.__new__(cls)
        module._start_blank()
        module._fill(layout, tuple(children))
        if module._trace != OUTSIDE and rebuilt_as_argument():
            object.__setattr__(module, "_pending", Pending())
        return module

    jax.tree_util.register_pytree_with_keys(
        cls, flatten_with_keys, cast("Callable[[Layout, Iterable[Any]], Module]", unflatten), flatten
    )

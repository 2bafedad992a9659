"""The keywords that a class or function takes, read from its source."""

import ast
import dataclasses

from framework.cli.modules import Definition, Opaque, Source, last_name, locate, resolve

# Decorators that keep the signature of what they decorate; any other may change it.
_TRANSPARENT = frozenset(
    {"abstractmethod", "cache", "classmethod", "contextmanager", "deprecated", "final", "jit", "lru_cache"}
    | {"overload", "override", "staticmethod", "wraps", "runtime_checkable", "register_pytree_node_class"}
)
_WITHOUT_INIT = frozenset({"object", "ABC", "Generic", "Protocol"})


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One keyword: its annotation, if any, and its default, if any, as expressions of the source."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None


@dataclasses.dataclass(frozen=True)
class Signature:
    """All keywords of a callable, in order; `open` when it takes others too (`**kwargs`)."""

    parameters: dict[str, Parameter]
    open: bool

    def missing(self, given: set[str], positional: int = 0) -> list[str]:
        """Lists the parameters that have no default and are not given.

        Args:
            given: the keywords that are given.
            positional: how many leading parameters are given by position.

        Returns:
            Their names, in order.

        Example:
            >>> signature("difflib.ndiff").missing({"a"})
            ['b']
        """
        rest = list(self.parameters.values())[positional:]
        return [one.name for one in rest if one.default is None and one.name not in given]


def signature(target: str) -> Signature | None:
    """Reads the signature of what a dotted name stands for, without importing it.

    Args:
        target: for example `optax.adamw` or `my_models.Encoder`.

    Returns:
        The signature, or None when reading the source cannot tell.

    Raises:
        TargetNotFoundError: there is nothing of that name.

    Example:
        >>> list(signature("difflib.SequenceMatcher").parameters)
        ['isjunk', 'a', 'b', 'autojunk']
    """
    found = locate(target)
    return None if isinstance(found, Opaque) else of_definition(found)


def of_definition(found: Definition) -> Signature | None:
    """Reads the signature of a definition.

    Args:
        found: a class or function statement.

    Returns:
        The signature, or None when reading the source cannot tell.

    Example:
        >>> of_definition(locate("difflib.ndiff")).open
        False
    """
    if isinstance(found.node, ast.ClassDef):
        return _of_class(found.node, found.source, depth=0)
    return _of_function(found.node, skip_first=found.bound)


def _of_function(node: ast.FunctionDef | ast.AsyncFunctionDef, skip_first: bool) -> Signature | None:
    if any(last_name(decorator) not in _TRANSPARENT for decorator in node.decorator_list):
        return None
    arguments = node.args
    if len(arguments.posonlyargs) > int(skip_first):
        return None  # cannot be given by keyword
    ordered = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(ordered) - len(arguments.defaults)) + arguments.defaults
    pairs = list(zip(ordered, defaults, strict=True))[int(skip_first) :]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters = {one.arg: Parameter(one.arg, one.annotation, default) for one, default in pairs}
    return Signature(parameters, open=arguments.kwarg is not None)


def _of_class(node: ast.ClassDef, source: Source, depth: int) -> Signature | None:
    constructors = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    for name in ("__init__", "__new__"):
        if name in constructors:
            return _of_function(constructors[name], skip_first=True)
    decorators = {last_name(decorator) for decorator in node.decorator_list}
    bases = [base for base in node.bases if last_name(base) not in _WITHOUT_INIT]
    if "dataclass" in decorators or any(last_name(base) == "NamedTuple" for base in bases):
        return _of_fields(node, source, depth)
    # A base that builds the constructor of its subclasses, or a decorator that rebuilds the class, hides it
    # from us.
    if depth > 20 or node.keywords or "__init_subclass__" in constructors or not decorators <= _TRANSPARENT:
        return None
    for base in bases:
        found = resolve(base.value if isinstance(base, ast.Subscript) else base, source)
        if not isinstance(found, Definition) or not isinstance(found.node, ast.ClassDef):
            return None
        inherited = _of_class(found.node, found.source, depth + 1)
        if inherited is None or inherited.parameters or inherited.open:
            return inherited
    return Signature({}, open=False)


def _of_fields(node: ast.ClassDef, source: Source, depth: int) -> Signature | None:
    """Reads the fields of a dataclass or named tuple, those of its bases first."""
    parameters: dict[str, Parameter] = {}
    for base in reversed(node.bases):
        found = resolve(base, source)
        if not isinstance(found, Definition) or not isinstance(found.node, ast.ClassDef):
            continue
        if depth < 20 and any(last_name(one) == "dataclass" for one in found.node.decorator_list):
            inherited = _of_fields(found.node, found.source, depth + 1)
            parameters |= inherited.parameters if inherited else {}
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, default = statement.target.id, statement.value
        if last_name(statement.annotation) in ("ClassVar", "KW_ONLY"):
            continue
        if isinstance(default, ast.Call) and last_name(default) == "field":
            keywords = {one.arg: one.value for one in default.keywords}
            created = keywords.get("init")
            if isinstance(created, ast.Constant) and created.value is False:
                parameters.pop(name, None)
                continue
            default = keywords.get("default", keywords.get("default_factory"))
        parameters[name] = Parameter(name, statement.annotation, default)
    return Signature(parameters, open=False)

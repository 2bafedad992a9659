"""Finds the definition that a dotted name stands for by reading source files, without importing them.

Importing a model's module would load JAX and may run the user's code; a misspelt key should be told before
that. What cannot be followed by reading (a C extension, a module with its own `__getattr__`, a value made by
a call) is `Opaque` and counts as right.
"""

import ast
import dataclasses
import functools
import importlib
import importlib.machinery
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from framework.cli.suggest import nearest
from framework.errors import ConfigError


class TargetNotFoundError(ConfigError):
    """A dotted name leads nowhere.

    Args:
        found: the part of the name that exists.
        missing: the next part, which does not; empty when the whole name leads to a module.
        candidates: what exists there instead.
    """

    def __init__(self, found: str, missing: str, candidates: tuple[str, ...]) -> None:
        reason = f"{found} has no '{missing}'" if found else f"there is no module '{missing}'"
        super().__init__(reason if missing else f"{found} is a module, not a class or a function")
        self.found, self.missing, self.candidates = found, missing, candidates


@dataclasses.dataclass(frozen=True)
class Opaque:
    """Something that exists, of which reading tells no more."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A module that was found but not imported: its file, if it has one, and its submodules' folders."""

    name: str
    file: Path | None
    folders: tuple[Path, ...] = ()

    @property
    def package(self) -> str:
        """The name that the module's relative imports start from."""
        return self.name if self.folders else self.name.rpartition(".")[0]


@dataclasses.dataclass(frozen=True)
class Definition:
    """A class or function statement, the module it stands in, and whether its first parameter is bound."""

    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    source: Source
    bound: bool = False


Found = Source | Definition | Opaque


def locate(target: str) -> Definition | Opaque:
    """Follows a dotted name, through re-exports, to a class or a function.

    Args:
        target: for example `optax.adamw`.

    Returns:
        The definition, or `Opaque` when it exists but cannot be read.

    Raises:
        TargetNotFoundError: a part of the name does not exist.

    Example:
        >>> locate("difflib.ndif")
        Traceback (most recent call last):
        framework.cli.modules.TargetNotFoundError: difflib has no 'ndif'
    """
    first, *rest = target.split(".")
    found: Found | None = find_module(first)
    if found is None:
        raise TargetNotFoundError("", first, ())
    walked = first
    for part in rest:
        found, before = member(found, part), found
        if found is None:
            raise TargetNotFoundError(walked, part, tuple(sorted(_names(before))))
        walked += "." + part
    if isinstance(found, Source):
        raise TargetNotFoundError(walked, "", tuple(sorted(_names(found))))
    return found


def member(found: Found, name: str) -> Found | None:
    """Looks up what `found.name` is.

    Args:
        found: a module, a class, or something unreadable.
        name: one attribute's name.

    Returns:
        What the attribute is, or None when it does not exist.

    Example:
        >>> member(find_module("difflib"), "SequenceMatcher").node.name
        'SequenceMatcher'
    """
    if isinstance(found, Source):
        return _module_member(found, name, frozenset())
    if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef):
        for statement in found.node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                static = any(last_name(decorator) == "staticmethod" for decorator in statement.decorator_list)
                return Definition(statement, found.source, bound=not static)
    return Opaque()


def resolve(expression: ast.expr, source: Source, seen: frozenset[tuple[str, str]] = frozenset()) -> Found | None:
    """Looks up what a name or a chain of attributes means at the top level of a module.

    Args:
        expression: for example the expression `nn.Module`.
        source: the module that it stands in.
        seen: pairs (module, name) that are being looked up already, so that a circle of imports ends.

    Returns:
        What the expression is, or None when it does not exist.

    Example:
        >>> resolve(ast.parse("Differ.compare", mode="eval").body, find_module("difflib")).node.name
        'compare'
    """
    if isinstance(expression, ast.Name):
        return _module_member(source, expression.id, seen)
    if isinstance(expression, ast.Attribute):
        owner = resolve(expression.value, source, seen)
        return None if owner is None else member(owner, expression.attr)
    return Opaque()


def last_name(expression: ast.expr) -> str:
    """Names the last part of a chain, call or subscript: `dataclass` for `@dataclasses.dataclass()`.

    Args:
        expression: the expression.

    Returns:
        The name, or an empty string for any other expression.

    Example:
        >>> last_name(ast.parse("typing.Optional[int]", mode="eval").body)
        'Optional'
    """
    while isinstance(expression, ast.Call | ast.Subscript):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    if isinstance(expression, ast.Attribute):
        return expression.attr
    return expression.id if isinstance(expression, ast.Name) else ""


def find_module(name: str) -> Source | Opaque | None:
    """Finds a module's file the way the import system would, without running any of it.

    Args:
        name: the absolute dotted name of the module.

    Returns:
        Its source, `Opaque` when it is not written in Python, or None when it does not exist.

    Example:
        >>> find_module("json.decoder").file.name
        'decoder.py'
    """
    first, *rest = name.split(".")
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(first)  # a name without dots: looks at the path, imports nothing
    except (ImportError, ValueError):
        return Opaque()
    if spec is None:
        return None
    found: Source | Opaque | None
    folders = tuple(Path(folder) for folder in spec.submodule_search_locations or ())
    if spec.has_location and spec.origin is not None and spec.origin.endswith(".py"):
        found = Source(first, Path(spec.origin), folders)
    else:
        found = Source(first, None, folders) if folders else Opaque()
    for part in rest:
        if not isinstance(found, Source):
            return found
        found = _submodule(found, part)
    return found


def _submodule(parent: Source, part: str) -> Source | Opaque | None:
    name = f"{parent.name}.{part}"
    for folder in parent.folders:
        if (folder / part / "__init__.py").is_file():
            return Source(name, folder / part / "__init__.py", (folder / part,))
        if (folder / f"{part}.py").is_file():
            return Source(name, folder / f"{part}.py")
        if any((folder / (part + suffix)).is_file() for suffix in importlib.machinery.EXTENSION_SUFFIXES):
            return Opaque()
        if (folder / part).is_dir() and part != "__pycache__":
            return Source(name, None, (folder / part,))
    return None


def _module_member(source: Source, name: str, seen: frozenset[tuple[str, str]]) -> Found | None:
    if (source.name, name) in seen:
        return _submodule(source, name) or Opaque()
    seen = seen | {(source.name, name)}
    bindings, stars = _bindings(source)
    if name in bindings:
        return _follow(bindings[name], source, name, seen)
    submodule = _submodule(source, name)
    if submodule is not None:
        return submodule
    for star in stars:
        module = find_module(_absolute(star, source))
        found = _module_member(module, name, seen) if isinstance(module, Source) else module
        if found is not None:
            return found
    return Opaque() if _made_on_demand(source, name, bindings) else None


def _made_on_demand(source: Source, name: str, bindings: dict[str, ast.stmt]) -> bool:
    """Tells whether a module's own `__getattr__` may know a name that no statement binds.

    Such functions serve deprecated or lazily loaded names, which stand in the file as strings. A name that
    does not, and that looks like a bound one, is a misspelling. A stub lists all names that lazy_loader
    serves.
    """
    if "__getattr__" not in bindings or source.file is None or source.file.with_suffix(".pyi").is_file():
        return False
    tree = _tree(source.file, source.file.stat().st_mtime_ns)
    if any(isinstance(node, ast.Constant) and node.value == name for node in ast.walk(tree)):
        return True
    listed = bindings.get("__all__")
    complete = isinstance(listed, ast.Assign) and isinstance(listed.value, ast.List | ast.Tuple)
    return not complete and nearest(name, bindings) is None


def _follow(statement: ast.stmt, source: Source, name: str, seen: frozenset[tuple[str, str]]) -> Found | None:
    """Follows the statement that binds `name` to what it is bound to."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return Definition(statement, source)
    if isinstance(statement, ast.ImportFrom):
        original = next(alias.name for alias in statement.names if (alias.asname or alias.name) == name)
        module = find_module(_absolute(statement, source))
        return _module_member(module, original, seen) if isinstance(module, Source) else module or Opaque()
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.asname == name:
                return find_module(alias.name) or Opaque()
        return find_module(name) or Opaque()
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name | ast.Attribute):
        return resolve(statement.value, source, seen) or Opaque()
    return Opaque()


def _absolute(statement: ast.ImportFrom, source: Source) -> str:
    if not statement.level:
        return statement.module or ""
    base = source.package.split(".")
    base = base[: len(base) - (statement.level - 1)]
    return ".".join([*base, *([statement.module] if statement.module else [])])


def _names(found: Found | None) -> set[str]:
    if not isinstance(found, Source):
        return set()
    bindings, _ = _bindings(found)
    inside = {path.stem for folder in found.folders for path in folder.glob("[!_]*.py")}
    return {name for name in inside | set(bindings) if not name.startswith("_")}


def _bindings(source: Source) -> tuple[dict[str, ast.stmt], list[ast.ImportFrom]]:
    """Lists which statement binds each top-level name of a module, and its star imports."""
    bindings: dict[str, ast.stmt] = {}
    stars: list[ast.ImportFrom] = []
    if source.file is None:
        return bindings, stars
    stub = source.file.with_suffix(".pyi")  # lazy_loader re-exports what the stub says
    for file in (stub, source.file):
        if not file.is_file():
            continue
        for statement in _statements(_tree(file, file.stat().st_mtime_ns).body):
            if isinstance(statement, ast.ImportFrom) and any(alias.name == "*" for alias in statement.names):
                stars.append(statement)
            for name in _bound(statement):
                bindings[name] = statement
    return bindings, stars


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields top-level statements, also those inside `if`, `try` and `with`, whichever branch would run."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for block in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(statement, block, []):
                    yield from _statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
    elif isinstance(statement, ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in statement.names if alias.name != "*")
    elif isinstance(statement, ast.Import):
        yield from (alias.asname or alias.name.split(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


@functools.lru_cache(maxsize=256)
def _tree(file: Path, modified: int) -> ast.Module:
    """Parses a file once for each time of modification; a file that is not Python has no statements."""
    del modified
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return ast.Module(body=[], type_ignores=[])

"""Finding the prepared call for the objects of a call: at once for the newest, by what changed for others."""

import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from framework.lift.site import Layouts, Site
from framework.module.graph import Graph, is_node
from framework.module.layout import Node
from framework.module.ownership import compiling

_ARRAYS = (jax.Array, np.ndarray)
_MEMBERS = 16
"""How many calls are remembered that differ in hyperparameters only."""


class Family:
    """The calls with the same objects, which differ in hyperparameters such as the mode only.

    Attributes:
        newest: the call that was made last.
    """

    __slots__ = ("_members", "newest")

    def __init__(self) -> None:
        self._members: dict[Layouts, Site] = {}
        self.newest: Site | None = None

    def add(self, site: Site, *, same_objects: bool) -> None:
        """Takes a call in; where objects came or went, the others are of no use any more."""
        if not same_objects or len(self._members) >= _MEMBERS:
            self._members.clear()
        self._members[tuple(layout for layout, _ in site.program.structure.nodes)] = site
        self.newest = site

    def find(self, roots: Sequence[Node]) -> Site | Graph | None:
        """Returns the prepared call for objects as they are now; or their graph; or None if they must be walked."""
        if self.newest is None or _is_ready(self.newest, roots):
            return self.newest
        if compiling.reads is not None:  # the walk checks what may be read
            return None
        found = self.newest.updated(roots, self._members)
        if isinstance(found, Site) and _is_ready(found, roots):
            self.newest = found
            return found
        return found if isinstance(found, Graph) else None


def _is_ready(site: Site, roots: Sequence[Node]) -> bool:
    return site.is_current(roots) and site.program.is_current()


class Recent:
    """The newest call of a compiled function, so that the next one with the same objects is found at once."""

    __slots__ = ("_pattern", "_site")

    def __init__(self, pattern: list[Any], site: Site) -> None:
        self._pattern = pattern
        self._site = weakref.ref(site)  # the objects hold it

    @classmethod
    def of(cls, args: tuple[Any, ...], site: Site) -> "Recent | None":
        """Describes positional arguments: objects by weak reference, arrays, and containers of arrays by structure."""
        pattern: list[Any] = []
        for argument in args:
            if isinstance(argument, Node):
                pattern.append(weakref.ref(argument))
            elif isinstance(argument, jax.Array):
                pattern.append(None)
            else:
                leaves, treedef = jax.tree.flatten(argument, is_leaf=is_node)
                if not all(isinstance(leaf, _ARRAYS) for leaf in leaves):
                    return None
                pattern.append(treedef)
        objects = [reference for reference in pattern if isinstance(reference, weakref.ref)]
        return cls(pattern, site) if objects and len(set(map(id, objects))) == len(objects) else None

    @property
    def site(self) -> Site:
        """The prepared call; only after `same` found the call alike."""
        site = self._site()
        assert site is not None
        return site

    def same(self, args: tuple[Any, ...]) -> list[Any] | None:
        """Returns the arrays of a call if it is like the newest one and nothing has changed since; None otherwise."""
        site = self._site()
        if site is None or len(args) != len(self._pattern) or not site.unchanged():
            return None
        arrays: list[Any] = []
        for argument, known in zip(args, self._pattern, strict=True):
            if type(known) is weakref.ref:
                if known() is not argument:
                    return None
            elif known is None:
                if not isinstance(argument, jax.Array):
                    return None
                arrays.append(argument)
            else:
                leaves, treedef = jax.tree.flatten(argument, is_leaf=is_node)
                if treedef != known:
                    return None
                for leaf in leaves:
                    if not isinstance(leaf, _ARRAYS):
                        return None
                arrays += leaves
        return arrays

"""How one package answers to other names: finders that hand out Loom's modules under them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from operator import itemgetter
from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_REAL = "loom.compat"
_ALIASES = ("workflows", "llama_agents.workflows")
_NAMESPACE = "llama_agents"


def real_name(name: str) -> str | None:
    """Find the module that answers to `name`; None if it is not under an alias."""
    for alias in _ALIASES:
        if name == alias or name.startswith(f"{alias}."):
            return _REAL + name.removeprefix(alias)
    return None


class _AliasLoader(Loader):
    """Puts a module that has a name of its own under a second one."""

    def __init__(self, real: str) -> None:
        self._real = real

    @override
    def exec_module(self, module: ModuleType) -> None:
        # The import system takes what it finds here. The module itself keeps its name, spec and loader.
        sys.modules[module.__name__] = import_module(self._real)


class _AliasFinder(MetaPathFinder):
    """Goes before all other finders, so that an installed package of the same name stays unseen."""

    @override
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        real = real_name(fullname)
        if real is None or find_spec(real) is None:
            return None
        return ModuleSpec(fullname, _AliasLoader(real))


class _NamespaceFinder(MetaPathFinder):
    """Goes after all other finders: an empty parent for the alias, where nothing installed provides one."""

    @override
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, None, is_package=True) if fullname == _NAMESPACE else None


def install_aliases() -> None:
    """Add the finders, once; refuse if a module is in the way."""
    for name, module in sorted(sys.modules.items(), key=itemgetter(0)):
        real = real_name(name)
        if real is not None and module is not sys.modules.get(real):
            place = getattr(module, "__file__", None) or "an unknown place"
            raise ImportError(
                f"Another package is already imported as {name!r} (from {place}). "
                "Call loom.compat.install() before anything imports it.",
                name=name,
            )
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())
        sys.meta_path.append(_NamespaceFinder())

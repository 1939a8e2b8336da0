"""The cases, one module each with a `CASE`; a new module is found by itself."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from bench.spec import Case


def all_cases() -> dict[str, Case]:
    """Return the cases by name, in the order of the report."""
    names = (module.name for module in iter_modules(__path__) if not module.name.startswith("_"))
    found: list[Case] = [import_module(f"{__name__}.{name}").CASE for name in names]
    return {case.name: case for case in sorted(found, key=lambda case: case.order)}

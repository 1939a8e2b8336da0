"""The Python API: every public name on one page, by what it is for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import loom
from loom.steps.events import Event
from loomsite.markdown import code, heading

_BY_HOME = {
    "loom.steps.retry": "retries",
    "loom.steps": "workflows",
    "loom.client": "client",
    "loom.runtime.flow": "flows",
    "loom.runtime.project": "flows",
    "loom.effects": "flows",
    "loom.flows": "flows",
    "loom.expressions": "flows",
    "loom.runtime": "runtime",
    "loom.api": "runtime",
}
"""The page of a name of `loom`, by the module that defines it; the first that fits."""

PACKAGES = {
    "loom.client": "client",
    "loom.server": "server",
    "loom.testing": "testing",
    "loom.core": "core",
    "loom.expressions": "expressions",
}
"""Packages with public names of their own, and the page of each."""

UNNAMED = {"runtime": ("loom.runtime.durable.worker.WorkerRuntime",)}
"""What programs use without importing it, by page."""


def pages_of_names() -> dict[str, list[str]]:
    """Return the public names by page, each as it is imported. Events and errors have pages of their own."""
    found: dict[str, list[str]] = {}
    for name in loom.__all__:
        found.setdefault(_page_of(name), []).append(f"loom.{name}")
    taken = {getattr(loom, name) for name in loom.__all__ if _hashable(getattr(loom, name))}
    for package, page in PACKAGES.items():
        for name in import_module(package).__all__:
            value = getattr(import_module(package), name)
            if not (_hashable(value) and value in taken) and page != _kind_page(value):
                found.setdefault(_kind_page(value) or page, []).append(f"{package}.{name}")
    return found


def _hashable(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _page_of(name: str) -> str:
    value = getattr(loom, name)
    home = loom._HOMES[name]
    return _kind_page(value) or next(page for start, page in _BY_HOME.items() if home.startswith(start))


def _kind_page(value: Any) -> str | None:
    """Events and errors are not described beside the other names."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return "errors"
    return "events" if inspect.isclass(value) and issubclass(value, Event) else None


def names(page: str) -> str:
    """Ask for the docstrings of a page's names."""
    return "\n".join(part for name in [*pages_of_names()[page], *UNNAMED.get(page, ())] for part in _asked(name))


def _asked(name: str) -> Iterator[str]:
    """A function that is the method of an object has no place of its own in the source, so it is described here."""
    package, _, own = name.rpartition(".")
    value = getattr(import_module(package), own)
    if not inspect.ismethod(value):
        yield f"::: {name}\n"
        return
    yield heading(2, code(name), name)
    yield f"```python\n{own}{inspect.signature(value)}\n```\n"
    yield f"{inspect.getdoc(value)}\n"

"""Type names on the wire, and the way back from a name to a class.

A name in stored or received data never causes an import: it resolves to a class that some loaded module has already
defined, or to nothing.
"""

from __future__ import annotations

import gc
import os.path
import sys
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from loom.core.records import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic import BaseModel

_T = TypeVar("_T", bound=type[Any])
_M = TypeVar("_M", bound="type[BaseModel]")

_framework_names: dict[type[Any], str] = {}
_framework_types: dict[str, type[Any]] = {}
# Several classes may answer to one name; the order is the order of definition.
_known: dict[str, list[weakref.ref[type[Any]]]] = {}

_KIND = "__loom_kind__"
STAND_IN = "__loom_stand_in__"
"""Marks a class that was made up for one which this process lacks: no name resolves to it."""


class UnknownTypeError(ValueError):
    """No class known to this process has the name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unknown type {name!r}: no class of that name is known here. Names are never imported.")
        self.name = name


class AmbiguousTypeError(ValueError):
    """More than one class has the name and nothing says which one is meant."""

    def __init__(self, name: str, classes: Iterable[type[Any]]) -> None:
        listed = ", ".join(sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in classes))
        super().__init__(f"Ambiguous type {name!r}: it could be any of {listed}.")
        self.name = name


def framework_name(cls: _T, name: str) -> _T:
    """Give a class of Loom its fixed wire name; it resolves under that name only, whatever else is registered."""
    taken = _framework_types.get(name)
    if taken is not None and taken is not cls:
        msg = f"The framework name {name!r} already belongs to {taken!r}."
        raise ValueError(msg)
    for alias in names_of(cls):
        _drop(alias, cls)
    _framework_names[cls] = name
    _framework_types[name] = cls
    if hasattr(cls, _KIND):
        setattr(cls, _KIND, None)
    return cls


def built_on_first_use(cls: _M) -> _M:
    """Decorate a model of Loom that is declared with `defer_build=True`, for the sake of import time (1 ms each).

    Only the model itself puts off building its validator. Subclasses of it in user code are built when they are
    defined, where a mistake in them belongs.
    """
    cls.model_config.pop("defer_build", None)
    return cls


def module_of(cls: type[Any]) -> str:
    """The module part of a name: `__main__` goes by the stem of its file, so that a record outlives the process."""
    module = cls.__module__
    return main_name() if module == "__main__" else module


def main_name() -> str:
    """Return the name of the main program in records: the stem of its file, if it has one."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.splitext(os.path.basename(path))[0] if path else "__main__"


def wire_name(cls: type[Any]) -> str:
    """Return the name under which a class leaves the process."""
    name = _framework_names.get(cls)
    return name if name is not None else f"{module_of(cls)}.{cls.__name__}"


def names_of(cls: type[Any]) -> frozenset[str]:
    """Return every name a class answers to: its wire name, and the spellings that other writers of records use."""
    fixed = _framework_names.get(cls)
    if fixed is not None:
        return frozenset((fixed,))
    modules = {module_of(cls), cls.__module__}
    return frozenset(f"{module}.{name}" for module in modules for name in (cls.__name__, cls.__qualname__))


def register(cls: _T) -> _T:
    """Make a class known by its names, for as long as it lives; usable as a decorator."""
    names = names_of(cls)
    ref: weakref.ref[type[Any]] = weakref.ref(cls, partial(_forget, names))
    for name in names:
        refs = _known.setdefault(name, [])
        if ref not in refs:
            refs.append(ref)
    return cls


def register_event(cls: type[Any]) -> None:
    """Register an event class and mark it as one, so that kinds list it among the bases of its subclasses."""
    setattr(cls, _KIND, None)
    register(cls)


def is_framework(cls: type[Any]) -> bool:
    """Return whether the class has a fixed framework name."""
    return cls in _framework_names


def framework_type(name: str) -> type[Any] | None:
    """Return the framework's class of that wire name, if there is one."""
    return _framework_types.get(name)


def resolve(name: str, preferred: Iterable[type[Any]] = ()) -> type[Any]:
    """Return the class that a name means: the framework's, else one of the preferred, else any that is known.

    Raises `UnknownTypeError`, or `AmbiguousTypeError` where several different definitions share the name.
    """
    found = _framework_types.get(name)
    if found is None:
        # The cheap test first: a workflow prefers dozens of types, and at most one of them is meant.
        found = choose(name, (cls for cls in preferred if name.endswith(cls.__name__) and name in names_of(cls)))
    if found is None:
        found = _choose_living(name)
    if found is None:
        raise UnknownTypeError(name)
    return found


def resolve_subclass(name: str, root: type[Any]) -> type[Any] | None:
    """Return a class below `root` that exists in this process under the name, registered or not."""
    return choose(name, (cls for cls in _descendants(root) if name in names_of(cls)))


def choose(name: str, classes: Iterable[type[Any]]) -> type[Any] | None:
    """The one class among candidates in order of definition; a later one of the same place replaces an earlier one."""
    newest = {(cls.__module__, cls.__qualname__): cls for cls in classes}
    if len(newest) > 1:
        raise AmbiguousTypeError(name, newest.values())
    return next(iter(newest.values()), None)


def known_kind(cls: type[Any]) -> EventKind | None:
    """The engine's view of a class, if it is an event class that was looked at before. Cheaper than `isinstance`."""
    kind: EventKind | None = cls.__dict__.get(_KIND)
    return kind


def kind_of(event_cls: type[Any]) -> EventKind:
    """Return the engine's view of an event class; computed once per class and kept on it."""
    kind: EventKind | None = event_cls.__dict__.get(_KIND)
    return kind if kind is not None else _make_kind(event_cls)


def _make_kind(cls: type[Any]) -> EventKind:
    if not hasattr(cls, _KIND):
        msg = f"{cls!r} is not an event class."
        raise TypeError(msg)
    name = wire_name(cls)
    kind = EventKind(
        name=name,
        bases=tuple(wire_name(base) for base in cls.__mro__[1:] if hasattr(base, _KIND)),
        label=cls.__name__,
        shown=f"<class '{name}'>" if is_framework(cls) else str(cls),
    )
    setattr(cls, _KIND, kind)
    return kind


def _choose_living(name: str) -> type[Any] | None:
    with suppress(AmbiguousTypeError):
        return choose(name, _live(name))
    # A class that nothing uses any more must not decide this, but classes are cycles: they linger until collected.
    # Not while the error is being handled, whose traceback holds the classes.
    gc.collect()
    return choose(name, _live(name))


def _live(name: str) -> Iterator[type[Any]]:
    # A copy: a collection during the loop may take dead references out of the list.
    for ref in tuple(_known.get(name, ())):
        cls = ref()
        if cls is not None:
            yield cls


def _descendants(root: type[Any]) -> Iterator[type[Any]]:
    seen: set[type[Any]] = set()
    pending = [root]
    while pending:
        for cls in pending.pop().__subclasses__():
            if cls not in seen and not hasattr(cls, STAND_IN):
                seen.add(cls)
                pending.append(cls)
                yield cls


def _forget(names: frozenset[str], ref: weakref.ref[type[Any]]) -> None:
    for name in names:
        refs = _known.get(name)
        # An emptied list stays: a class of the same name may be registering at this very moment.
        if refs is not None and ref in refs:
            refs.remove(ref)


def _drop(name: str, cls: type[Any]) -> None:
    _forget(frozenset((name,)), weakref.ref(cls))

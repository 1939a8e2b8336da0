"""Reading the annotations of step functions: which names they see, what their types are made of.

May import `errors` and `events` of this package.
"""

from __future__ import annotations

import builtins
import collections.abc as cabc
import inspect
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from loom.steps.errors import WorkflowValidationError
from loom.steps.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_SCOPES = 4
"""How many frames outwards from the decorator a string annotation is looked up."""

_UNIONS = (Union, UnionType)
_ASYNC_ITERATORS = (cabc.AsyncIterator, cabc.AsyncIterable, cabc.AsyncGenerator)


def names_in_scope(func: Callable[..., Any], frame: FrameType | None) -> dict[str, Any]:
    """The local names that string annotations of `func` may use, seen from the frame that decorates it.

    The scopes that enclose `func` in the source hide its module's names, as they do in Python. The other frames
    on the stack (helpers that build classes) only lend names that the module lacks.
    """
    module_names = getattr(func, "__globals__", {})
    enclosing: dict[str, Any] = {}
    callers: dict[str, Any] = {}
    for scope in reversed(list(_frames(frame))):
        if scope.f_locals is module_names:
            continue
        (enclosing if _encloses(scope, func) else callers).update(scope.f_locals)
    lent = {name: value for name, value in callers.items() if name not in module_names and not hasattr(builtins, name)}
    return {**lent, **enclosing}


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_SCOPES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _encloses(scope: FrameType, func: Callable[..., Any]) -> bool:
    same_module = scope.f_globals is getattr(func, "__globals__", None)
    return same_module and getattr(func, "__qualname__", "").startswith(f"{scope.f_code.co_qualname}.")


def resolve_hints(func: Callable[..., Any], localns: dict[str, Any] | None) -> dict[str, Any]:
    """The evaluated annotations of `func`, with their `Annotated` metadata."""
    try:
        return get_type_hints(func, localns=localns, include_extras=True)
    except (NameError, AttributeError) as exc:
        missing = f" Missing name: {exc.name}." if exc.name else ""
        raise WorkflowValidationError(
            f"Failed to resolve type annotations for {getattr(func, '__qualname__', type(func).__name__)}.{missing} "
            "If you are using 'from __future__ import annotations' or string annotations, ensure referenced names "
            "are available in module scope or in the scope where the @step decorator is applied."
        ) from exc


def unalias(hint: Any) -> Any:
    """What the name of a `type X = …` alias stands for."""
    while type(hint).__name__ == "TypeAliasType":  # typing's from Python 3.12 on, or typing_extensions'
        hint = hint.__value__
    return hint


def members(hint: Any) -> list[Any]:
    """The alternatives of a union, or the one type, each once, without `None` and without metadata."""
    hint = unalias(hint)
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if hint is NoneType:
        return []
    if get_origin(hint) not in _UNIONS:
        return [hint]
    return _once(member for arg in get_args(hint) for member in members(arg))


def returned_types(hint: Any) -> list[Any]:
    """Every event type that a return annotation names, bare or inside `list[…]`."""
    return _once(
        inner for member in members(hint) for inner in (_list_elements(member) if _is_list(member) else [member])
    )


def bare_types(hint: Any) -> list[Any]:
    """The alternatives of a return annotation outside any `list[…]`."""
    return [member for member in members(hint) if not _is_list(member)]


def opens_stream(hint: Any) -> bool:
    """Whether a return annotation allows a list."""
    return any(_is_list(member) for member in members(hint))


def collected_types(hint: Any) -> list[Any] | None:
    """The event types of a `list[E]` parameter, or None if it is not one."""
    alternatives = members(hint)
    if len(alternatives) != 1 or not _is_list(alternatives[0]):
        return None
    elements = [member for arg in get_args(alternatives[0]) for member in members(arg)]
    return elements if elements and all(is_event(element) for element in elements) else None


def is_event(hint: Any) -> bool:
    """Whether a hint is an event class."""
    return isinstance(hint, type) and issubclass(hint, Event)


def refuse_async_iterator(func: Callable[..., Any], hint: Any) -> None:
    """Fan-out is a finite list: refuse async generators and annotations of them."""
    hints = [] if hint is None else members(hint)
    declared = any(one in _ASYNC_ITERATORS or get_origin(one) in _ASYNC_ITERATORS for one in hints)
    if declared or inspect.isasyncgenfunction(func):
        raise WorkflowValidationError(
            "Async-iterator fan-out (AsyncIterator[E] / AsyncGenerator[E, None] / async generator steps) is not "
            "supported. Return list[E] for a static collection, or emit incrementally with ctx.send_event."
        )


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is list


def _list_elements(hint: Any) -> list[Any]:
    return [element for arg in get_args(hint) for element in returned_types(arg)]


def _once(hints: Iterator[Any]) -> list[Any]:
    found: list[Any] = []
    for hint in hints:
        if hint not in found:
            found.append(hint)
    return found

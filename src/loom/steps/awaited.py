"""Finds the events that a workflow's code waits for, by reading the source of its methods and steps.

A signature says which events a step takes. What `ctx.wait_for_event(Approval)` waits for stands in a body only. People
and programs want to know it before a run waits: for forms, and for documents of an API.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

from loom.steps.events import Event
from loom.steps.graph import is_own
from loom.steps.registry import kind_of
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType, FunctionType

_WAIT = "wait_for_event"
_TYPE = "event_type"
"""The parameter of `wait_for_event` that names the type."""


def awaited_types(functions: Iterable[Any], workflow: type[Any]) -> list[type[Event]]:
    """List the event classes that the steps of a workflow and the other methods of its class wait for by name.

    A type that is worked out at run time is not found, nor is one whose source is missing.
    """
    found: dict[type[Event], None] = {}
    for function in _functions(functions, workflow):
        if _mentions(function.__code__):
            found |= dict.fromkeys(_awaited_in(function))
    return [cls for cls in found if not is_own(kind_of(cls))]


def _functions(steps: Iterable[Any], workflow: type[Any]) -> Iterator[FunctionType]:
    """Yield the functions of an author, each once: the steps, then what else the classes below `Workflow` define."""
    own = [each for cls in workflow.__mro__ if cls not in Workflow.__mro__ for each in vars(cls).values()]
    seen: set[int] = set()
    for given in (*steps, *own):
        function = inspect.unwrap(getattr(given, "__func__", given)) if callable(given) else given
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function) and id(function) not in seen:
            seen.add(id(function))
            yield function


def _mentions(code: CodeType) -> bool:
    """Tell whether a body, or a function inside it, uses the name. Sources are read for those alone."""
    return _WAIT in code.co_names or any(_mentions(each) for each in code.co_consts if inspect.iscode(each))


def _awaited_in(function: FunctionType) -> Iterator[type[Event]]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, ValueError, TypeError):
        return  # typed at a prompt, or its file is gone or another one: a signature still tells the rest
    names = inspect.getclosurevars(function)
    known = {**names.builtins, **function.__globals__, **names.nonlocals}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _WAIT:
            given = node.args[:1] or [each.value for each in node.keywords if each.arg == _TYPE]
            cls = _value(given[0], known) if given else None
            if isinstance(cls, type) and issubclass(cls, Event):
                yield cls


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """Look up a name, or an attribute of a module or class; None for any other expression."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, known)
        return inspect.getattr_static(owner, node.attr, None) if owner is not None else None
    return None

"""What a step's signature says: its events, context, resources and results; and which methods of a class are steps.

Annotations may be text, and may name local classes. So they are evaluated in the scopes that enclose the function, as
Python would, and then taken apart: unions, lists, `Annotated` marks.
"""

from __future__ import annotations

import builtins
import collections.abc as cabc
import inspect
from types import FunctionType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msgspec import Struct

from loom.steps.errors import WorkflowValidationError
from loom.steps.events import Event
from loom.steps.step_config import All, Collect, Take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from loom.steps.resources import ResourceDefinition  # noqa: TC004 (a struct never evaluates its annotations here)
    from loom.steps.step_config import StepFunction


BUSY_WAIT_DELAY = 0.01
"""Part of the import surface of older programs; nothing in Loom waits busily."""


class StepSignatureSpec(Struct):
    """A step's signature, taken apart."""

    accepted_events: dict[str, list[Any]]
    """The event parameters and the types that each of them takes."""
    return_types: list[Any]
    """What may be returned; empty if the annotation is missing, `[NoneType]` for `-> None`."""
    context_parameter: str | None = None
    context_state_type: Any | None = None
    resources: list[ResourceDefinition] = []
    collection_param: tuple[str, tuple[Any, ...]] | None = None
    collection_policy: Collect | None = None
    is_fan_out: bool = False
    bare_return_types: list[Any] = []


def inspect_signature(fn: Callable[..., Any], localns: dict[str, Any] | None = None) -> StepSignatureSpec:
    """Take the signature of `fn` apart; string annotations resolve in its module and in `localns`."""
    if not callable(fn):
        raise TypeError(f"Expected a callable object, got {type(fn).__name__}")
    parameters = inspect.signature(fn).parameters
    hints = resolve_hints(fn, localns)
    returned = hints.get("return")
    refuse_async_iterator(fn, returned)
    spec = StepSignatureSpec(accepted_events={}, return_types=_declared_returns(returned))
    if returned is not None:
        spec.is_fan_out = opens_stream(returned)
        spec.bare_return_types = bare_types(returned)
    for name, parameter in parameters.items():
        if name not in ("self", "cls"):
            _read_parameter(spec, name, hints.get(name, parameter.annotation), localns)
    return spec


def _read_parameter(spec: StepSignatureSpec, name: str, hint: Any, localns: dict[str, Any] | None) -> None:
    """Find out what a parameter is for; one that is for nothing known is left to its default."""
    hint = unalias(hint)
    marker: Collect | None = None
    if get_origin(hint) is Annotated:
        wanted, *metadata = get_args(hint)
        resource = _resource(name, wanted, metadata, localns)
        if resource is not None:
            spec.resources.append(resource)
            return
        marker = next((mark for mark in metadata if isinstance(mark, Collect)), None)
    alternatives = members(hint)
    collected = collected_types(hint)
    if collected is not None:
        _read_collection(spec, name, collected, marker or Collect())
    elif marker is not None:
        raise WorkflowValidationError(
            f"Parameter {name!r} carries a Collect marker but is not annotated as list[E] of an Event subclass. "
            "Collect markers apply only to collection fan-in (list[Event]) parameters."
        )
    elif len(alternatives) == 1 and _is_context(alternatives[0]):
        spec.context_parameter = name
        spec.context_state_type = _state_type(alternatives[0])
    elif alternatives and all(is_event(one) for one in alternatives):
        spec.accepted_events[name] = alternatives


def _resource(name: str, wanted: Any, metadata: list[Any], localns: dict[str, Any] | None) -> ResourceDefinition | None:
    from loom.steps.resources import ResourceDefinition, ResourceDescriptor  # only steps with metadata pay for it

    for mark in metadata:
        if isinstance(mark, ResourceDescriptor):
            mark.set_localns(localns)
            return ResourceDefinition(name=name, resource=mark, type_annotation=wanted)
    return None


def _read_collection(spec: StepSignatureSpec, name: str, elements: list[Any], marker: Collect) -> None:
    if not isinstance(marker.cardinality, All | Take):
        raise WorkflowValidationError(
            f"Collect cardinality on {name!r} must be All() or Take(n). Other cardinalities are not supported."
        )
    if spec.collection_param is not None:
        raise WorkflowValidationError(
            "A step may declare at most one list[E] collection parameter, but found both "
            f"{spec.collection_param[0]!r} and {name!r}. Multi-slot collects are not supported."
        )
    spec.collection_param = (name, tuple(elements))
    spec.collection_policy = marker
    spec.accepted_events[name] = elements


def _is_context(hint: Any) -> bool:
    """A context is known by the name of its class, so that any package's `Context` will do."""
    return getattr(get_origin(hint) or hint, "__name__", None) == "Context"


def _state_type(hint: Any) -> Any | None:
    arguments = get_args(hint)
    return arguments[0] if arguments and not isinstance(arguments[0], TypeVar) else None


def _declared_returns(hint: Any) -> list[Any]:
    if hint is None:
        return []
    return returned_types(hint) or [NoneType]


def validate_step_signature(spec: StepSignatureSpec, step_name: str = "") -> None:
    """Raise `WorkflowValidationError` if a function with this signature cannot be a step; the error names the step."""
    problem = _problem(spec)
    if problem:
        raise WorkflowValidationError(f"{problem}{naming(step_name)}")


def naming(step_name: str) -> str:
    """Return the end of an error about a declaration: the name of the step."""
    return f" (Step '{step_name}')" if step_name else ""


def _problem(spec: StepSignatureSpec) -> str:
    events = spec.accepted_events
    if not events:
        return "Step signature must have at least one parameter annotated as type Event"
    if spec.collection_param is not None and len(events) > 1:
        return (
            "A list[E] collection parameter cannot be combined with other event parameters. Use a single list[E] "
            "parameter, or multiple single-event parameters for a multi-slot join."
        )
    for name, types in events.items() if len(events) > 1 else ():
        if len(types) != 1:
            return (
                "Collect-mode steps (more than one event parameter) require each event parameter to declare a single "
                f"event type, but parameter {name!r} declares {len(types)}. Union-typed collect parameters are not "
                "supported."
            )
    if not spec.return_types:
        return "Return types of workflows step functions must be annotated with their type."
    return ""


def get_steps_from_class(_class: object) -> dict[str, StepFunction[..., Any]]:
    """Return the methods of a class that are steps, by name, in alphabetical order."""
    cls = _class if isinstance(_class, type) else type(_class)
    return {name: cast("StepFunction[..., Any]", getattr(cls, name)) for name in _step_names(cls)}


def get_steps_from_instance(workflow: object) -> dict[str, StepFunction[..., Any]]:
    """Return the bound methods of an instance that are steps, by name, in alphabetical order."""
    return {name: cast("StepFunction[..., Any]", getattr(workflow, name)) for name in _step_names(type(workflow))}


def _step_names(cls: type) -> list[str]:
    """Look into the classes' own dicts: reading every attribute would run properties and pydantic's warnings."""
    visible: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, value in vars(base).items():
            visible.setdefault(name, value)
    return sorted(name for name, value in visible.items() if _is_step(value))


def _is_step(value: Any) -> bool:
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    return isinstance(function, FunctionType) and hasattr(function, "_step_config")


def is_free_function(qualname: str) -> bool:
    """Return whether a qualified name is that of a function outside a class, at module level or nested."""
    if not qualname:
        raise ValueError("The qualified name cannot be empty")
    owner = qualname.split(".")[-2:-1]
    return not owner or owner == ["<locals>"]


def _get_param_types(param: inspect.Parameter, type_hints: dict[str, Any]) -> list[Any]:
    """The types that a parameter takes, without `None`; `[Any]` if it has no annotation."""
    hint = type_hints.get(param.name, param.annotation)
    return [Any] if hint is inspect.Parameter.empty else members(hint)


def _get_return_types(func: Callable[..., Any], localns: dict[str, Any] | None = None) -> list[Any]:
    """The types that a function may return, lists taken apart; `[]` without an annotation."""
    return _declared_returns(resolve_hints(func, localns).get("return"))


_SCOPES = 4
"""How many frames outwards from the decorator a string annotation is looked up."""

_UNIONS = (Union, UnionType)
_ASYNC_ITERATORS = (cabc.AsyncIterator, cabc.AsyncIterable, cabc.AsyncGenerator)


def names_in_scope(func: Callable[..., Any], frame: FrameType | None) -> dict[str, Any]:
    """Return the local names that string annotations of `func` may use, seen from the frame that decorates it.

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
    """Return the evaluated annotations of `func`, with their `Annotated` metadata."""
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
    """Return the type that a `type X = …` alias names."""
    while type(hint).__name__ == "TypeAliasType":  # typing's from Python 3.12 on, or typing_extensions'
        hint = hint.__value__
    return hint


def members(hint: Any) -> list[Any]:
    """Return the alternatives of a union, or the one type, each once, without `None` and without metadata."""
    hint = unalias(hint)
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if hint is NoneType:
        return []
    if get_origin(hint) not in _UNIONS:
        return [hint]
    return _once(member for arg in get_args(hint) for member in members(arg))


def returned_types(hint: Any) -> list[Any]:
    """Return every event type that a return annotation names, bare or inside `list[…]`."""
    return _once(
        inner for member in members(hint) for inner in (_list_elements(member) if _is_list(member) else [member])
    )


def bare_types(hint: Any) -> list[Any]:
    """Return the alternatives of a return annotation outside any `list[…]`."""
    return [member for member in members(hint) if not _is_list(member)]


def opens_stream(hint: Any) -> bool:
    """Return whether a return annotation allows a list."""
    return any(_is_list(member) for member in members(hint))


def collected_types(hint: Any) -> list[Any] | None:
    """Return the event types of a `list[E]` parameter, or None if it is not one."""
    alternatives = members(hint)
    if len(alternatives) != 1 or not _is_list(alternatives[0]):
        return None
    elements = [member for arg in get_args(alternatives[0]) for member in members(arg)]
    return elements if elements and all(is_event(element) for element in elements) else None


def is_event(hint: Any) -> bool:
    """Return whether a hint is an event class."""
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

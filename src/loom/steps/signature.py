"""What a step's signature says: its events, context, resources and results; and which methods of a class are steps.

May import `annotations`, `collect`, `errors` and `events` of this package, and `resources` when a step uses one.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from types import FunctionType, NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_origin

from loom.steps.annotations import (
    bare_types,
    collected_types,
    is_event,
    members,
    opens_stream,
    refuse_async_iterator,
    resolve_hints,
    returned_types,
    unalias,
)
from loom.steps.collect import All, Collect, Take
from loom.steps.errors import WorkflowValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.resources import ResourceDefinition  # noqa: TC004 (a dataclass never evaluates its annotations)
    from loom.steps.step_config import StepFunction

BUSY_WAIT_DELAY = 0.01
"""Part of the import surface of older programs; nothing in Loom waits busily."""


@dataclass
class StepSignatureSpec:
    """A step's signature, taken apart."""

    accepted_events: dict[str, list[Any]]
    """The event parameters and the types that each of them takes."""
    return_types: list[Any]
    """What may be returned; empty if the annotation is missing, `[NoneType]` for `-> None`."""
    context_parameter: str | None = None
    context_state_type: Any | None = None
    resources: list[ResourceDefinition] = field(default_factory=list)
    collection_param: tuple[str, tuple[Any, ...]] | None = None
    collection_policy: Collect | None = None
    is_fan_out: bool = False
    bare_return_types: list[Any] = field(default_factory=list)


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
    """What an error about a declaration ends with, so that one knows which step it is about."""
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
    """The methods of a class that are steps, by name, in alphabetical order."""
    cls = _class if isinstance(_class, type) else type(_class)
    return {name: cast("StepFunction[..., Any]", getattr(cls, name)) for name in _step_names(cls)}


def get_steps_from_instance(workflow: object) -> dict[str, StepFunction[..., Any]]:
    """The bound methods of an instance that are steps, by name, in alphabetical order."""
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
    """Whether a qualified name is that of a function outside a class, at module level or nested."""
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

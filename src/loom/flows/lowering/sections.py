"""The sections of a definition beside its actions: parameters, triggers, outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.expressions.dotnet.recurrence import check_recurrence
from loom.expressions.values import kind_of
from loom.flows.cron import check_cron
from loom.flows.diagnostics import at
from loom.flows.limits import MAX_OUTPUTS, MAX_PARAMETERS
from loom.flows.lowering.context import (
    ActionDraft,
    ActionSource,
    BlockContext,
    Located,
    Lowering,
    is_expression,
    is_foreign,
)
from loom.flows.lowering.data import check_paths, literal
from loom.flows.lowering.external import connection_use
from loom.flows.lowering.fields import condition
from loom.flows.program import Parameter, Trigger, Value
from loom.flows.schema_checks import schema_check
from loom.flows.triggers import METHODS, PARAMETER_TYPES, REQUESTS, TIMED, fits, named_methods

if TYPE_CHECKING:
    from loom.flows.beside import Beside

_KINDS = {name.lower() for name in PARAMETER_TYPES}
_FORMS = {
    "parameters": 'a parameter is an object such as {"type": "string"}',
    "outputs": 'an output is an object such as {"type": "string", "value": "@..."}',
    "triggers": 'a trigger is an object such as {"type": "manual"}',
}


def parameters(low: Lowering) -> dict[str, Parameter]:
    """Lower the parameters of the flow, by name in lower case."""
    found = {}
    for name, part in _objects(low, "parameters", MAX_PARAMETERS):
        kind = part.value.get("type")
        allowed = part.value.get("allowedValues")
        _check_parameter(low, part)
        found[name.lower()] = Parameter(
            name=name,
            type=kind.lower() if isinstance(kind, str) else "object",
            default=part.value.get("defaultValue"),
            has_default="defaultValue" in part.value,
            allowed=tuple(allowed) if isinstance(allowed, list) else None,
        )
    if low.document.beside is not None:
        _add_given(found, low.document.beside)
    return found


def _add_given(found: dict[str, Parameter], beside: Beside) -> None:
    """Add the parameters of the project. One that the definition declares keeps its type, and the stricter secrecy."""
    for name, kind in beside.parameters.items():
        declared = found.get(name.lower())
        given = Parameter(name, kind.lower(), is_given=True)
        if declared is not None:
            secret = "secure" if given.is_secure and not declared.is_secure else ""
            given = replace(declared, type=f"{secret}{declared.type}", is_given=True)
        found[name.lower()] = given


def _check_parameter(low: Lowering, part: Located) -> None:
    """Warn of an unknown type, and of a default that does not fit the type: it is used all the same."""
    kind, default = part.value.get("type"), part.value.get("defaultValue")
    if isinstance(kind, str) and kind.lower() not in _KINDS:
        message = f"'{kind}' is no type of a parameter: {', '.join(PARAMETER_TYPES)}"
        low.problems.warn(at(part.path, "type"), message, low.problems.near(kind, PARAMETER_TYPES))
    elif isinstance(kind, str) and default is not None and not is_foreign(default) and not fits(kind.lower(), default):
        low.problems.warn(at(part.path, "defaultValue"), f"the default is {kind_of(default)}, and the type is {kind}")
    if not isinstance(part.value.get("allowedValues"), list | None):
        low.problems.warn(at(part.path, "allowedValues"), "the allowed values must be an array")


def outputs(low: Lowering, *, loom: bool) -> dict[str, Value]:
    """Lower the outputs of the flow, by name."""
    return {name: low.value(part.child("value"), lenient=loom) for name, part in _objects(low, "outputs", MAX_OUTPUTS)}


_AZURE = "Microsoft.Logic"
"""Part of every `$schema` of Logic Apps."""


def triggers(low: Lowering, *, loom: bool) -> list[Trigger]:
    """Lower the triggers of the flow."""
    found = [_trigger(low, name, part, loom) for name, part in _objects(low, "triggers", None)]
    definition = low.document.definition
    is_azure = "contentVersion" in definition or "triggers" in definition or _AZURE in str(definition.get("$schema"))
    if not found and is_azure:
        message = "there is no trigger, so the flow is started by hand and its top level is read in Loom's dialect"
        low.problems.warn(at(low.document.path, "triggers"), message)
    return found


def _objects(low: Lowering, key: str, most: int | None) -> list[tuple[str, Located]]:
    """List the objects in a section of the definition, by name; report everything else there."""
    part = Located(low.document.definition, low.document.path).child(key)
    if part is None or part.value is None:
        return []
    if not isinstance(part.value, dict):
        low.problems.error(part.path, f"'{key}' must be an object")
        return []
    if most is not None and len(part.value) > most:
        low.problems.warn(part.path, f"there are more than {most} {key}")
    found = []
    for name, data in part.value.items():
        if isinstance(data, dict):
            found.append((name, Located(data, at(part.path, name))))
        else:
            low.problems.error(at(part.path, name), _FORMS[key])
    return found


def _trigger(low: Lowering, name: str, part: Located, loom: bool) -> Trigger:
    data = part.value
    source = ActionSource(name, data, part.path, loom)
    if not isinstance(data.get("type"), str):
        low.problems.error(part.path, "a trigger needs a 'type'")
    _check_recurrence(low, source)
    if (asked := source.setting("concurrency")) is not None:
        low.problems.warn(asked.path, "the concurrency of a trigger is not honored: its runs begin at once")
    _check_methods(low, source)
    split_on = source.top("splitOn")
    return Trigger(
        name=name,
        type=source.type,
        definition=data,
        schema=_schema(low, source),
        # Loom's own trigger means what it says; a request of Logic Apps wants to be asked.
        validates=source.type == "manual" or "enableschemavalidation" in source.options,
        recurrence=_recurrence(source),
        conditions=_conditions(low, source),
        split_on=low.value(split_on, lenient=loom) if split_on is not None and split_on.value is not None else None,
        connection=connection_use(source),
    )


def _check_methods(low: Lowering, source: ActionSource) -> None:
    """Warn of methods that no request comes with: a trigger that names no other cannot be fired."""
    part = source.field("method") if source.type in REQUESTS else None
    unknown = named_methods(part.value).difference(METHODS) if part is not None else ()
    if part is not None and unknown:
        message = f"no request fires a trigger by the method {', '.join(sorted(unknown))}"
        low.problems.warn(part.path, message, f"known are {', '.join(METHODS)}")


def _schema(low: Lowering, source: ActionSource) -> Any:
    part = source.field("schema")
    if part is None or part.value in (None, {}, ""):
        return None
    check_paths(low, part)
    schema = literal(part.value)
    try:
        schema_check(schema)
    except ValueError as error:
        low.problems.warn(part.path, f"this JSON Schema cannot be used: {error}")
    return schema


def _recurrence(source: ActionSource) -> dict[str, Any] | None:
    """Find the recurrence of a trigger. The inputs of Loom's schedule may be the recurrence itself."""
    part = source.field("recurrence")
    if part is None and source.type == "schedule":
        part = source.inputs()
    return part.value if part is not None and isinstance(part.value, dict) else None


_TIMING = ("cron", "frequency", "interval", "startTime", "endTime", "timeZone", "schedule")


def _check_recurrence(low: Lowering, source: ActionSource) -> None:
    """Warn of a schedule that would never start a run. Expressions in it are known only when it is made."""
    if source.type not in TIMED | {"http"}:
        return
    given = _recurrence(source)
    timing = given if given is not None else {key: source.data[key] for key in _TIMING if key in source.data}
    if not _is_literal(timing):
        return
    problems = check_cron(timing["cron"]) if "cron" in timing else check_recurrence(timing)
    for problem in problems:
        low.problems.warn(source.path, f"this starts no runs: {problem}")


def _is_literal(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(_is_literal(item) for item in (value.values() if isinstance(value, dict) else value))
    return not is_expression(value) and not is_foreign(value)


def _conditions(low: Lowering, source: ActionSource) -> tuple[Value, ...]:
    part = source.top("conditions")
    if part is None or not isinstance(part.value, list):
        return ()
    trigger = ActionDraft(low, source, -1, BlockContext(loom=source.around))
    items = [Located(item, at(part.path, index)) for index, item in enumerate(part.value)]
    return tuple(condition(trigger, asked) for item in items if (asked := item.child("expression")) is not None)

"""Make events of what a command line says: the start of a run, and an event of a type, with or without its code."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from loom.cli.options import OF_FLOWS, given_to_flow
from loom.cli.problems import NoStore, Problem, WrongUse
from loom.cli.targets import is_flow_target
from loom.core.records import EventKind
from loom.core.state import CHILD_RUN
from loom.core.ticks import TickStartRun
from loom.effects.actions.child import child_name
from loom.effects.actions.outcomes import ActionFailed
from loom.effects.flow_codec import FlowStartEvent
from loom.effects.flow_events import FlowEvent
from loom.flows.calls import ActionCall
from loom.runtime.durable.healing import replaceable
from loom.runtime.flow import Flow
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import Event
from loom.steps.graph import is_own
from loom.steps.ports import definition_of
from loom.steps.registry import framework_type, kind_of, wire_name
from loom.steps.stand_ins import is_stand_in, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.steps.events import StartEvent


def start_event(flow: Flow, given: Mapping[str, Any]) -> StartEvent:
    """What a run begins with; parameters that do not fit are told."""
    try:
        return definition_of(flow).start_event(None, dict(given))
    except WorkflowRuntimeError as error:
        raise WrongUse(str(error)) from error


def called_by(flow: Flow) -> set[str]:
    """The workflows that a flow calls by names which stand in its document."""
    found: set[str] = set()
    inside: list[Any] = [json.loads(flow.document)["definition"].get("actions")]
    while inside:
        part = inside.pop()
        if isinstance(part, dict) and str(part.get("type")).lower() == "workflow":
            with suppress(ActionFailed):
                found.add(child_name(ActionCall(action="", type="workflow", inputs=part.get("inputs"))))
        inside.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
    return {name for name in found if "@" not in name and not name.endswith("]")}


def named_target(workflow: str, targets: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The name of a workflow that may be the file of a flow, which is then one of the targets."""
    name, given, place = workflow.rpartition("=")
    if not is_flow_target(workflow) or Path(place).is_dir():
        return workflow, targets
    from loom.cli.flow_files import name_of

    return (name if given else name_of(Path(place))), (*targets, workflow)


def begun_by(runtime: WorkerRuntime, name: str, options: Mapping[str, Any]) -> Any:
    """The inputs of a run, or the event that it begins with if it is a flow or may be one."""
    code = runtime.codes.get(name)
    if code is None and runtime.codes:
        # With --target the caller wants the input checked, and it would not be.
        raise WrongUse(f"No --target is named {name!r}, but {', '.join(runtime.codes)}: use --target {name}=TARGET.")
    flow = code.workflow if code is not None and isinstance(code.workflow, Flow) else None
    given = given_to_flow(options, flow)
    if flow is not None:
        return start_event(flow, given)
    body = given.get("body", {})
    if code is None and (not isinstance(body, dict) or any(key in given for key in OF_FLOWS)):
        return FlowStartEvent(**given)  # only a flow can take that; its worker knows
    if any(key in given for key in OF_FLOWS):
        raise WrongUse(f"{name} is a workflow in Python: it has no parameters, variables or headers.")
    if not isinstance(body, dict):
        raise click.BadParameter("This is JSON, but no object such as '{\"name\": 1}'.")
    return body


_OWN_FORM = "The workflow of run {run!r} stores its events in a form of its own: name its code with --target."


async def event_for(runtime: RunClient, run_id: str, name: str, fields: Any) -> Event:
    """The event that a person means: of a class that a target has brought, else of a type that the run asks for.

    To a flow it is one by that name, with any data, unless there is such a class.
    """
    row = await runtime.row(run_id)
    cls = _of_targets(runtime, name) if runtime.codes else None
    if cls is None and row.document is not None and _known(name) is None:
        cls = await _awaited_by_flow(runtime, run_id, name)
        if cls is None:
            return _made(FlowEvent, {"name": name, "data": fields})
    fields = {} if fields is None else fields
    if not isinstance(fields, dict):
        raise WrongUse(f"The fields of {name} must be an object such as '{{\"name\": 1}}'.")
    if cls is None:
        # A run that has ended asks for nothing any more; the store says so, or knows the event by its id.
        ended = row.head.status != "running"
        full_name = name if ended else await _asked_for(runtime, run_id, name)
        cls = _known(full_name) or stand_in(full_name)
        if not ended and row.workflow not in runtime.codes:
            await _check_form(runtime, run_id)
    return _made(cls, fields)


async def better_event(runtime: RunClient, run_id: str, name: str, fields: dict[str, Any]) -> Event:
    """The event that shall take the place of the one that failed a run; `CannotHeal` if no event did."""
    cls = _of_targets(runtime, name) if runtime.codes else None
    if cls is None:
        row = await runtime.row(run_id)
        # A run that has not failed is told so when it is asked to go on.
        known = replaceable(run_id, await runtime.state_at(run_id)) if row.head.status == "failed" else {}
        found = [full for full in known if name in (full, full.rpartition(".")[2])]
        if len(found) > 1:
            raise WrongUse(f"{name} could be any of {_listed(found)}: use its full name.")
        full_name = found[0] if found else name
        cls = _known(full_name) or stand_in(full_name)
    return _made(cls, fields)


def _made(cls: type[Event], fields: dict[str, Any]) -> Event:
    _refuse_own(kind_of(cls))
    try:
        event = cls(**fields)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, part['loc'])) or 'it'}: {part['msg']}" for part in error.errors())
        raise WrongUse(f"This is no {cls.__name__}: {found}.") from error
    if isinstance(event, FlowEvent):
        _refuse_own(EventKind(event.name))
    return event


def _refuse_own(kind: EventKind) -> None:
    """Refuse what only the engine sends: who can write the store may send the rest."""
    if is_own(kind):
        raise Problem(f"{kind.name} is an event of the engine: nobody sends it from outside.")


async def _awaited_by_flow(runtime: RunClient, run_id: str, name: str) -> type[Event] | None:
    """A class of this name that only the engine's process has, and that an action waits for by its full name."""
    waited = [waiter["event_type"] for waiter in (await runtime.get(run_id)).active_waiters]
    full_names = {full for full in waited if full != name and full.rpartition(".")[2] == name}
    if len(full_names) > 1:
        raise WrongUse(f"{name} could be any of {_listed(full_names)}: use its full name.")
    return stand_in(full_names.pop()) if full_names else None


def _of_targets(runtime: RunClient, name: str) -> type[Event] | None:
    """An event class of this process, by its wire name or its short name; those beside the targets come first."""
    found = {wire_name(cls): cls for cls in _event_classes(Event) if name in (cls.__name__, wire_name(cls))}
    if len(found) > 1:
        modules = {type(code.workflow).__module__ for code in runtime.codes.values()}
        found = {full: cls for full, cls in found.items() if cls.__module__ in modules} or found
    if len(found) > 1:
        raise WrongUse(f"{name} could be any of {_listed(found)}: use its full name.")
    return next(iter(found.values()), None)


def _event_classes(root: type[Event]) -> Iterator[type[Event]]:
    for cls in root.__subclasses__():
        if not is_stand_in(cls):
            yield cls
        yield from _event_classes(cls)


def _known(name: str) -> type[Event] | None:
    """A class of Loom's own, by its wire name."""
    found = framework_type(name)
    return found if found is not None and issubclass(found, Event) else None


async def _asked_for(runtime: RunClient, run_id: str, name: str) -> str:
    """The wire name of a type that the run waits for or that one of its steps takes."""
    run = await runtime.get(run_id)
    if not run.ticks:
        if run.error is not None:
            raise NoStore(
                f"What run {run_id!r} waits for is not known. {run.error} Name the code of {name} with --target."
            )
        raise Problem(f"Run {run_id!r} has not begun, so {name} is not known yet: name its code with --target.")
    state = await runtime.state_at(run_id)
    waited = [report.event_type for report in state.waiter_reports() if report.event_type != CHILD_RUN]
    asked = list(dict.fromkeys([*waited, *(accepted for spec in state.config.steps for accepted in spec.accepts)]))
    found = [known for known in asked if name in (known, known.rpartition(".")[2])]
    if len(found) > 1:
        raise WrongUse(f"{name} could be any of {_listed(found)}: use its full name.")
    if found:
        return found[0]
    needs = f"It waits for {_listed(waited)}." if waited else f"Its steps take {_listed(asked)}."
    raise Problem(
        f"Run {run_id!r} neither waits for {name} nor has a step that takes it. {needs} "
        "For another type name its code with --target.",
    )


async def _check_form(runtime: RunClient, run_id: str) -> None:
    """Refuse to make events up for a workflow with a serializer of its own."""
    async for _, _, tick in runtime.history(run_id):
        body = tick.event.body if isinstance(tick, TickStartRun) and tick.event is not None else None
        if isinstance(body, str) and "__is_pydantic" not in body[:_PREFIX]:
            raise Problem(_OWN_FORM.format(run=run_id))
        return


_PREFIX = 40


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"

"""From TYPE and fields on the command line to an event, with or without the code that defines it.

May import loom.core, loom.effects, loom.runtime and loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loom.cli.problems import NoStore, Problem, WrongUse
from loom.core.records import EventKind
from loom.core.state import CHILD_RUN
from loom.core.ticks import TickStartRun
from loom.effects.flow_events import FlowEvent
from loom.runtime.durable.healing import replaceable
from loom.steps.events import Event
from loom.steps.external import is_own
from loom.steps.registry import framework_type, kind_of, wire_name
from loom.steps.stand_ins import is_stand_in, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loom.runtime.durable.calls import StoredRuns

_OWN_FORM = "The workflow of run {run!r} stores its events in a form of its own: name its code with --target."


async def event_for(runtime: StoredRuns, run_id: str, name: str, fields: Any) -> Event:
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


async def better_event(runtime: StoredRuns, run_id: str, name: str, fields: dict[str, Any]) -> Event:
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


async def _awaited_by_flow(runtime: StoredRuns, run_id: str, name: str) -> type[Event] | None:
    """A class of this name that only the engine's process has, and that an action waits for by its full name."""
    waited = [waiter["event_type"] for waiter in (await runtime.get(run_id)).active_waiters]
    full_names = {full for full in waited if full != name and full.rpartition(".")[2] == name}
    if len(full_names) > 1:
        raise WrongUse(f"{name} could be any of {_listed(full_names)}: use its full name.")
    return stand_in(full_names.pop()) if full_names else None


def _of_targets(runtime: StoredRuns, name: str) -> type[Event] | None:
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


async def _asked_for(runtime: StoredRuns, run_id: str, name: str) -> str:
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


async def _check_form(runtime: StoredRuns, run_id: str) -> None:
    """Refuse to make events up for a workflow with a serializer of its own."""
    async for _, _, tick in runtime.history(run_id):
        body = tick.event.body if isinstance(tick, TickStartRun) and tick.event is not None else None
        if isinstance(body, str) and "__is_pydantic" not in body[:_PREFIX]:
            raise Problem(_OWN_FORM.format(run=run_id))
        return


_PREFIX = 40


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"

"""From TYPE and fields on the command line to an event, with or without the code that defines it.

May import loom.core, loom.runtime and loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError, model_serializer
from typing_extensions import override

from loom.cli.problems import FAILED, USAGE, Problem
from loom.core.state import CHILD_RUN
from loom.core.ticks import TickStartRun
from loom.steps.events import Event
from loom.steps.registry import AmbiguousTypeError, UnknownTypeError, resolve, wire_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.runtime.durable.runtime import DurableRuntime

_OWN_FORM = "The workflow of run {run!r} stores its events in a form of its own: name its code with --target."


async def event_for(runtime: DurableRuntime, run_id: str, name: str, fields: dict[str, Any]) -> Event:
    """The event that a person means: of a class that was loaded, else of a type that the run itself asks for."""
    workflow = (await runtime.row(run_id)).workflow
    cls = _loaded(runtime, name)
    if cls is None:
        cls = stand_in(await _asked_for(runtime, run_id, name))
        if workflow not in runtime.codes:
            await _check_form(runtime, run_id)
    try:
        return cls(**fields)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, part['loc'])) or 'it'}: {part['msg']}" for part in error.errors())
        raise Problem(f"This is no {cls.__name__}: {found}.", USAGE) from error


def _loaded(runtime: DurableRuntime, name: str) -> type[Event] | None:
    """A class of the targets, by its wire name or its short name; or one of Loom's own, by its wire name."""
    of_targets = [cls for code in runtime.codes.values() for cls in code.workflow.events]
    short = {cls for cls in of_targets if cls.__name__ == name}
    if len(short) > 1:
        raise Problem(f"{name} could be any of {_listed(map(wire_name, short))}: use its full name.", USAGE)
    if short:
        return short.pop()
    try:
        found = resolve(name, of_targets)
    except UnknownTypeError:
        return None
    except AmbiguousTypeError as error:
        raise Problem(str(error), USAGE) from error
    if not issubclass(found, Event):
        raise Problem(f"{name} is not an event.", USAGE)
    return found


async def _asked_for(runtime: DurableRuntime, run_id: str, name: str) -> str:
    """The wire name of a type that the run waits for or that one of its steps takes."""
    if not (await runtime.get(run_id)).ticks:
        raise Problem(f"Run {run_id!r} has not begun, so {name} is not known yet: name its code with --target.")
    state = await runtime.state_at(run_id)
    waited = [report.event_type for report in state.waiter_reports() if report.event_type != CHILD_RUN]
    asked = list(dict.fromkeys([*waited, *(accepted for spec in state.config.steps for accepted in spec.accepts)]))
    found = [known for known in asked if name in (known, known.rpartition(".")[2])]
    if len(found) > 1:
        raise Problem(f"{name} could be any of {_listed(found)}: use its full name.", USAGE)
    if found:
        return found[0]
    needs = f"It waits for {_listed(waited)}." if waited else f"Its steps take {_listed(asked)}."
    raise Problem(
        f"Run {run_id!r} neither waits for {name} nor has a step that takes it. {needs} "
        "For another type name its code with --target.",
        FAILED,
    )


async def _check_form(runtime: DurableRuntime, run_id: str) -> None:
    """Refuse to make events up for a workflow with a serializer of its own."""
    async for _, _, tick in runtime.history(run_id):
        body = tick.event.body if isinstance(tick, TickStartRun) and tick.event is not None else None
        if isinstance(body, str) and "__is_pydantic" not in body[:_PREFIX]:
            raise Problem(_OWN_FORM.format(run=run_id))
        return


_PREFIX = 40


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def stand_in(name: str) -> type[Event]:
    """An event class for a type whose code is not at hand. Its fields are stored as they are given, unchecked."""

    class StandIn(Event):
        @model_serializer(mode="plain")
        @override
        def custom_model_dump(self) -> dict[str, Any]:  # type: ignore[override]
            """All fields side by side, as the real class stores those that it declares."""
            return dict(self._data)

    module, _, short = name.rpartition(".")
    namespace = {"__module__": module, "__qualname__": short}
    cls: type[Event] = type(StandIn)(short, (StandIn,), namespace)
    return cls

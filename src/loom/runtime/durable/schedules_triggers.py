"""Schedules that flows ask for themselves, by a trigger of type Recurrence or, in Loom's dialect, schedule.

A process that works for a flow sees to them: they are named after the flow, a new version of the flow replaces them,
and one without them ends them. May import loom.expressions and the rest of loom.runtime.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from loom.expressions import ExpressionError, evaluate
from loom.runtime.durable.definitions_stored import DefinitionUnreadable
from loom.runtime.durable.registered import RegisteredFlow
from loom.runtime.durable.schedules import FLOW_TAG
from loom.runtime.durable.schedules_run import ScheduleStart
from loom.runtime.durable.schedules_timing import check_timing
from loom.runtime.flow import Flow
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from loom.flows.program import Program, Trigger
    from loom.runtime.durable.schedules import ScheduledRuns
    from loom.runtime.durable.working import WorkingRuntime

_log = logging.getLogger("loom.durable")

_TYPES = frozenset({"recurrence", "schedule"})
_KEYS = ("cron", "frequency", "interval", "startTime", "endTime", "timeZone", "schedule")


async def keep_triggers(runtime: ScheduledRuns, names: Iterable[str], ended: Container[str] = ()) -> None:
    """Make, replace and end schedules as the triggers of these flows say now; those of ended flows end."""
    for name in names:
        code = runtime.codes.get(name)
        if not isinstance(code, RegisteredFlow) or not isinstance(code.workflow, Flow):
            continue
        asked_for = schedules_of(name, code.workflow.program)
        wanted = asked_for if name not in ended else []
        kept = {schedule.name for schedule in wanted}
        for gone in set(await runtime.schedule_names_of(name)) - kept:
            await runtime.end_schedule(gone)
        # Not every store lists at once what another process has made just now; by its name it is there.
        for unsure in {name, *(schedule.name for schedule in asked_for)} - kept:
            if await runtime.is_schedule_of(name, unsure):
                await runtime.end_schedule(unsure)
        for schedule in wanted:
            try:
                await runtime.keep_schedule(schedule, {FLOW_TAG: name})
            except (ValueError, WorkflowRuntimeError) as error:
                _complain(schedule.trigger, name, error)


async def is_given_up(runtime: WorkingRuntime, schedule: ScheduleStart) -> bool:
    """Say whether the flow that a schedule was made for was deleted, or asks for no schedule of this name any more.

    A process that has another version of the flow than the current one does not know what that asks for.
    """
    try:
        definition = await runtime.definitions.stored.get(schedule.workflow)
    except DefinitionUnreadable:
        return False  # the log tells it where the flow is taken up
    if definition is None or definition.deleted_at is not None:
        return definition is not None
    code = runtime.codes.get(schedule.workflow)
    if not isinstance(code, RegisteredFlow) or not isinstance(code.workflow, Flow):
        return False
    asked_for = schedules_of(schedule.workflow, code.workflow.program, tells=False)
    return code.document[0] == definition.latest.digest and schedule.name not in {each.name for each in asked_for}


def schedules_of(name: str, program: Program, *, tells: bool = True) -> list[ScheduleStart]:
    """The schedules that a flow asks for. What cannot be kept is left out, and the log says why if it `tells`."""
    found: list[ScheduleStart] = []
    for trigger in program.triggers:
        if trigger.type not in _TYPES:
            continue
        try:
            # A flow has one as a rule; others go by their trigger too.
            known_as = f"{name}.{trigger.name}" if found else name
            found.append(_schedule(known_as, name, trigger, program))
        except ValueError as error:
            if tells:
                _complain(trigger.name, name, error)
    return found


def _complain(trigger: str, flow: str, error: Exception) -> None:
    """A flow may be started otherwise: this is no reason not to work for it."""
    _log.warning("The trigger %s of the flow %s starts no runs: %s", trigger, flow, error)


def _schedule(known_as: str, workflow: str, trigger: Trigger, program: Program) -> ScheduleStart:
    defaults = {each.name: each.default for each in program.parameters.values() if each.has_default}
    # In Loom's dialect the recurrence may stand in the trigger itself, whatever other triggers the flow has.
    beside = {key: trigger.definition[key] for key in _KEYS if key in trigger.definition}
    timing = _evaluated(trigger.recurrence or beside, defaults)
    problems = check_timing(timing)
    if problems:
        raise ValueError(f"{'; '.join(problems)}.")
    conditions = [
        each["expression"] if isinstance(each, dict) and isinstance(each.get("expression"), str) else None
        for each in trigger.definition.get("conditions") or ()
    ]
    texts = [text for text in conditions if text is not None]
    if len(texts) < len(conditions):
        raise ValueError("its conditions must be texts: {'expression': '@…'}.")
    return ScheduleStart(
        name=known_as,
        workflow=workflow,
        timing=timing,
        trigger=trigger.name,
        conditions=texts,
        defaults=defaults if texts else {},
    )


def _evaluated(value: Any, parameters: dict[str, Any]) -> Any:
    """A recurrence may name parameters: it has their defaults."""
    if isinstance(value, dict):
        return {key: _evaluated(item, parameters) for key, item in value.items()}
    if isinstance(value, list):
        return [_evaluated(item, parameters) for item in value]
    if not isinstance(value, str) or "@" not in value:
        return value
    try:
        return evaluate(value, {"parameters": parameters})
    except ExpressionError as error:
        raise ValueError(f"{value!r} cannot be evaluated: {error}.") from None

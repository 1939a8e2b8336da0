"""The run that a schedule is: it sleeps until an occurrence is due, starts a run, and begins again.

Each occurrence is a piece of work of its own, so that nothing gathers in the run's state.

A flow may ask for schedules itself, by a trigger of type Recurrence or, in Loom's dialect, schedule. A process that
works for the flow keeps them: they are named after the flow, a new version of the flow replaces them, and one without
them ends them.

The classes of events here are stored by the name of this module, so they cannot move.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from loom.expressions import ExpressionError, evaluate
from loom.expressions.dotnet.recurrence import check_recurrence, next_occurrence
from loom.expressions.dotnet.timestamps import parse_duration
from loom.expressions.dotnet.zones import zone_of
from loom.expressions.errors import FunctionError
from loom.flows.cron import check_cron, next_cron
from loom.flows.triggers import TIMED
from loom.runtime.durable.registration import FlowRegistration
from loom.runtime.durable.run_starter import flow_start
from loom.runtime.durable.stored_definitions import DefinitionUnreadable
from loom.runtime.masking import SCHEDULE_DEFINITION
from loom.steps.context import Context  # noqa: TC001 - steps' annotations are read at run time
from loom.steps.decorators import step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import Event, StartEvent, StopEvent
from loom.steps.registry import built_on_first_use
from loom.steps.retry import retry_if_exception_type, retry_policy, stop_never, wait_exponential
from loom.steps.workflow import Workflow
from loom.store.errors import RunExists, StoreError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from loom.flows.program import Trigger
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.runtime.flow import Flow

SCHEDULE_TAG = "loom.schedules"
"""The tag with a schedule's name, of its own run: another one than that of the many runs that it starts."""
FLOW_TAG = "loom.flow"
"""The tag with the flow's name, of the schedules that a flow's triggers have made."""
STARTED_TAG = "loom.schedule"
"""The tag with a schedule's name, of the runs that it has started."""

_log = logging.getLogger("loom.durable")

_WINDOW = "slidingwindow"
_KEYS = ("cron", "frequency", "interval", "startTime", "endTime", "timeZone", "schedule")

_UNTIL_THE_STORE_IS_BACK = retry_policy(
    retry=retry_if_exception_type(StoreError), wait=wait_exponential(max=60), stop=stop_never()
)


@built_on_first_use
class ScheduleStart(StartEvent, defer_build=True):
    """What a schedule is: what it starts, and when."""

    name: str
    generation: int = 1
    workflow: str
    timing: dict[str, Any]
    input: Any = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    catch_up: bool = False
    trigger: str = ""
    """The trigger of the flow that says so; empty if a caller does."""
    conditions: list[str] = Field(default_factory=list)
    """The trigger's conditions: expressions that must all be true for a run to be started."""
    defaults: dict[str, Any] = Field(default_factory=dict)
    """The flow's parameters, for those conditions."""
    window: bool = False
    """Whether an occurrence is the end of a window that began with the one before."""
    delay: float = 0.0
    """How many seconds after the end of a window its run starts."""

    def fields(self, generation: int) -> dict[str, Any]:
        """Return what is stored of it. Fields that came later are left out of schedules that do not need them."""
        left_out = None if self.window else {"window", "delay"}
        return self.model_copy(update={"generation": generation}).model_dump(mode="json", exclude=left_out)


@built_on_first_use
class Occurrence(Event, defer_build=True):
    """A run is to be started at a time."""

    at: float


def schedule_run_id(name: str, generation: int) -> str:
    """The id of a schedule's run. A schedule that is replaced goes on as the next generation."""
    return f"schedule:{name}" if generation == 1 else f"schedule:{name}:{generation}"


def occurrence_run_id(name: str, at: float) -> str:
    """The id of the run that an occurrence starts: a crash cannot start it twice."""
    return f"{name}:{datetime.fromtimestamp(at, tz=UTC):%Y%m%dT%H%M%SZ}"


class ScheduleWorkflow(Workflow):
    """What the run of a schedule runs. It ends with its last occurrence, or when another generation replaces it."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        super().__init__(timeout=None, max_depth=None)
        self._worker = runtime

    @step(retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def begin(self, ctx: Context, ev: ScheduleStart) -> Occurrence | StopEvent:
        """Find the first occurrence. Without a start of its own, a recurrence is counted from when it was stored."""
        row = await self._worker.row(schedule_run_id(ev.name, ev.generation))
        timing = pinned(ev.timing, row.created_at)
        following = next_due(timing, row.created_at)
        async with ctx.store.edit_state() as state:
            state[SCHEDULE_DEFINITION] = ev.model_dump(mode="json")
            state["timing"] = timing
            state["next_at"] = following
        return _next(following)

    @step(num_workers=1, retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def fire(self, ctx: Context, ev: Occurrence) -> Occurrence | StopEvent:
        """Wait for an occurrence, start its run, and find the next one. Of several that were missed the last counts."""
        schedule = ScheduleStart(**await ctx.store.get(SCHEDULE_DEFINITION))
        await ctx.sleep(max(0.0, ev.at + schedule.delay - self._worker.now()))
        timing = await ctx.store.get("timing")
        schedule = schedule.model_copy(update={"timing": timing})  # counted from when the schedule was made
        if await self._worker.schedule_client.is_replaced(schedule.name, schedule.generation):
            return StopEvent(result="replaced")
        at = ev.at if schedule.catch_up else latest_due(timing, ev.at, self._worker.now())
        if schedule.trigger and await self._ends_with_its_flow(schedule):
            return _next(next_due(timing, at))  # the cancellation is under way
        if schedule.trigger and await is_disabled(self._worker, schedule.workflow):
            # Left out for good: a flow that is enabled again begins with its next occurrence.
            following = next_due(timing, at)
            await ctx.store.set("next_at", following)
            return _next(following)
        run_id, error = await self._started(schedule, at)
        following = next_due(timing, at)
        async with ctx.store.edit_state() as state:
            state["next_at"] = following
            state["last_error"] = error
            if run_id is not None:
                state["last_at"], state["last_run_id"] = at, run_id
        return _next(following)

    async def _ends_with_its_flow(self, schedule: ScheduleStart) -> bool:
        """Cancel this run if the flow that it was made for does not ask for it any more.

        The process that deleted the flow has done so, unless it could not see this run yet. The run is not completed:
        the flow may come back, and its schedule with it.
        """
        if not await is_given_up(self._worker, schedule):
            return False
        _log.info("The schedule %s ends: the flow %s does not ask for it.", schedule.name, schedule.workflow)
        await self._worker.schedule_client.end(schedule.name)
        return True

    async def _started(self, schedule: ScheduleStart, at: float) -> tuple[str | None, str | None]:
        """The id of the run that was started, if one was; what went wrong, if anything did."""
        run_id = occurrence_run_id(schedule.name, at)
        try:
            if not self._shall_start(schedule, at):
                return None, None
            inputs = start_of(self._worker.codes.get(schedule.workflow), schedule, at)
            tags = {**schedule.tags, STARTED_TAG: schedule.name}
            await self._worker.start(schedule.workflow, inputs, run_id=run_id, tags=tags)
        except RunExists as error:
            if (await self._worker.row(run_id)).workflow == schedule.workflow:
                return run_id, None  # started before a crash, where the workflow was known better or less
            problem: Exception = error
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever this start is refused for, the next one may be fine
            problem = error
        else:
            return run_id, None
        _log.error("The schedule %s could not start run %s: %s", schedule.name, run_id, problem)
        return None, f"{type(problem).__name__}: {problem}"

    def _shall_start(self, schedule: ScheduleStart, at: float) -> bool:
        code = self._worker.codes.get(schedule.workflow)
        # Values of a project are read each time: those of its settings are not kept with a schedule.
        given = code.flow.given() if isinstance(code, FlowRegistration) else {}
        context = {
            **given,
            "utcNow": iso_text(self._worker.now()),
            "parameters": {**schedule.defaults, **given.get("parameters", {})},
            "trigger": {"name": schedule.trigger, "outputs": {"body": None, "scheduledTime": iso_text(at)}},
        }
        for condition in schedule.conditions:
            holds = evaluate(condition, context)
            if not isinstance(holds, bool):
                raise TypeError(f"the condition {condition!r} of the trigger gives {holds!r}, not true or false")
            if not holds:
                return False
        return True


def start_of(code: Registration | None, schedule: ScheduleStart, at: float) -> Any:
    """What a run of a schedule begins with. Only a flow can begin with something else than fields."""
    of_flow = (schedule.trigger, schedule.parameters is not None, schedule.variables is not None)
    if not any(of_flow) and (schedule.input is None or isinstance(schedule.input, dict)):
        return schedule.input
    start = flow_start(schedule.workflow, code, schedule.input, schedule.parameters or {}, schedule.variables or {})
    outputs: dict[str, Any] = {"scheduledTime": iso_text(at)} if schedule.trigger else {}
    if schedule.window and "startTime" in schedule.timing:
        outputs |= {"windowStartTime": iso_text(window_start(schedule.timing, at)), "windowEndTime": iso_text(at)}
    return start.model_copy(update={"trigger": schedule.trigger, "outputs": outputs})


def _next(following: float | None) -> Occurrence | StopEvent:
    return StopEvent(result="over") if following is None else Occurrence(at=following)


def iso_text(at: float) -> str:
    """Write a time as triggers say it."""
    return datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# -- schedules that flows ask for --------------------------------------------------------------------------------------


async def keep_triggers(runtime: WorkerRuntime, names: Iterable[str], ended: Container[str] = ()) -> None:
    """Make, replace and end schedules as the triggers of these flows say now; schedules of ended flows end."""
    schedules = runtime.schedule_client
    for name in names:
        code = runtime.codes.get(name)
        if not isinstance(code, FlowRegistration):
            continue
        asked_for = schedules_of(name, code.flow)
        wanted = asked_for if name not in ended else []
        kept = {schedule.name for schedule in wanted}
        for gone in set(await schedules.names_of(name)) - kept:
            await schedules.end(gone)
        # Not every store lists at once what another process has made just now; by its name it is there.
        for unsure in {name, *(schedule.name for schedule in asked_for)} - kept:
            if await schedules.is_of(name, unsure):
                await schedules.end(unsure)
        for schedule in wanted:
            try:
                await schedules.keep(schedule, {FLOW_TAG: name})
            except (ValueError, WorkflowRuntimeError) as error:
                _complain(schedule.trigger, name, error)


async def is_given_up(runtime: WorkerRuntime, schedule: ScheduleStart) -> bool:
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
    if not isinstance(code, FlowRegistration):
        return False
    asked_for = schedules_of(schedule.workflow, code.flow, tells=False)
    return code.document[0] == definition.latest.digest and schedule.name not in {each.name for each in asked_for}


async def is_disabled(runtime: WorkerRuntime, flow: str) -> bool:
    """Tell whether the triggers of a flow do not fire now."""
    try:
        definition = await runtime.definitions.stored.get(flow)
    except DefinitionUnreadable:
        return False  # the log tells it where the flow is taken up
    return definition is not None and definition.is_disabled


def schedules_of(name: str, flow: Flow, *, tells: bool = True) -> list[ScheduleStart]:
    """The schedules that a flow asks for. What cannot be kept is left out, and the log says why if it `tells`."""
    found: list[ScheduleStart] = []
    for trigger in flow.program.triggers:
        if trigger.type not in TIMED:
            continue
        try:
            # A flow has one as a rule; others go by their trigger too.
            known_as = f"{name}.{trigger.name}" if found else name
            found.append(_schedule(known_as, name, trigger, flow))
        except (ValueError, WorkflowRuntimeError) as error:
            if tells:
                _complain(trigger.name, name, error)
    return found


def _complain(trigger: str, flow: str, error: Exception) -> None:
    """A flow may be started otherwise: this is no reason not to work for it."""
    _log.warning("The trigger %s of the flow %s starts no runs: %s", trigger, flow, error)


def timing_of_trigger(trigger: Trigger, flow: Flow, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return when a trigger is due, with its expressions evaluated. A ValueError says what is wrong with it."""
    # In Loom's dialect the recurrence may stand in the trigger itself, whatever other triggers the flow has.
    beside = {key: trigger.definition[key] for key in _KEYS if key in trigger.definition}
    given = flow.given()
    context = {**given, "parameters": {**_defaults(flow), **given.get("parameters", {})}}
    timing = _evaluated(trigger.recurrence or beside or default or {}, context)
    problems = check_timing(timing)
    if problems:
        raise ValueError(f"{'; '.join(problems)}.")
    return dict(timing)


def _defaults(flow: Flow) -> dict[str, Any]:
    return {each.name: each.default for each in flow.program.parameters.values() if each.has_default}


def _schedule(known_as: str, workflow: str, trigger: Trigger, flow: Flow) -> ScheduleStart:
    timing = timing_of_trigger(trigger, flow)
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
        defaults=_defaults(flow) if texts else {},
        # A window that was missed is made up for: together they cover all time.
        catch_up=trigger.type == _WINDOW,
        window=trigger.type == _WINDOW,
        delay=_window_delay(trigger, flow) if trigger.type == _WINDOW else 0.0,
    )


def _window_delay(trigger: Trigger, flow: Flow) -> float:
    """Read how long after its end a window is left open for what comes late."""
    inputs = trigger.definition.get("inputs")
    given = inputs.get("delay") if isinstance(inputs, dict) else None
    if given is None:
        return 0.0
    values = flow.given()
    context = {**values, "parameters": {**_defaults(flow), **values.get("parameters", {})}}
    try:
        return parse_duration(str(_evaluated(given, context)))
    except FunctionError:
        raise ValueError(f"its delay {given!r} is no duration such as PT15M.") from None


def window_start(timing: dict[str, Any], end: float) -> float:
    """Find where the window begins that ends with an occurrence: at the occurrence before."""
    unit = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
    length = unit.get(str(timing.get("frequency")).lower(), 2_764_800) * int(timing.get("interval", 1))
    # Clocks that are set back make a window longer; from far enough before, occurrences lead to its beginning.
    found = after = end - 2 * length - 7_200
    while (following := next_due(timing, after)) is not None and following < end:
        found = after = following
    return found


def _evaluated(value: Any, context: dict[str, Any]) -> Any:
    """A recurrence may name parameters, which have their defaults or the values of the project, and settings."""
    if isinstance(value, dict):
        return {key: _evaluated(item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [_evaluated(item, context) for item in value]
    if not isinstance(value, str) or "@" not in value:
        return value
    try:
        return evaluate(value, context)
    except ExpressionError as error:
        raise ValueError(f"{value!r} cannot be evaluated: {error}.") from None


# When schedules are due: what callers may say about it, in one form, and the occurrences of that form.
# The form is a recurrence of Logic Apps, or `{"cron": …, "timeZone": …}`.


_UNITS = (("Second", 1), ("Minute", 60), ("Hour", 3_600))
_MOST_UNITS = 9_999_999
"""The longest interval that a recurrence may have, in its unit."""


def timing_of(
    recurrence: dict[str, Any] | None, cron: str | None, every: float | None, time_zone: str | None
) -> dict[str, Any]:
    """The one form of what a caller says; a ValueError names all that is wrong with it."""
    if sum(given is not None for given in (recurrence, cron, every)) != 1:
        raise ValueError("A schedule needs one of recurrence={...}, cron='...' and every=seconds.")
    if every is not None:
        if time_zone is not None:
            raise ValueError("every=... counts seconds as they pass: time_zone goes with cron or a recurrence.")
        return _interval(every)
    timing = {"cron": cron} if recurrence is None else _checked(recurrence)
    if time_zone is not None and timing.get("timeZone", time_zone) != time_zone:
        raise ValueError(f"The time zone is {timing['timeZone']!r} in the recurrence and {time_zone!r} beside it.")
    return _checked(timing if time_zone is None else {**timing, "timeZone": time_zone})


def _checked(timing: dict[str, Any]) -> dict[str, Any]:
    if problems := check_timing(timing):
        raise ValueError(f"The schedule cannot be kept: {'; '.join(problems)}.")
    return timing


def check_timing(timing: object) -> list[str]:
    """What is wrong with a timing, in a sentence each."""
    if not isinstance(timing, dict) or "cron" not in timing:
        return check_recurrence(timing)
    problems = check_cron(timing["cron"])
    problems += [f"{name} does not go with cron" for name in timing if name not in ("cron", "timeZone")]
    zone = timing.get("timeZone")
    if zone is not None:
        try:
            zone_of(str(zone))
        except FunctionError as error:
            problems.append(f"timeZone: {error}")
    return problems


def _interval(every: float) -> dict[str, Any]:
    if not every >= 1 or every % 1:
        raise ValueError(f"every must be a whole number of seconds, at least 1, not {every!r}.")
    seconds = int(every)
    for unit, size in _UNITS:
        if not seconds % size and seconds // size <= _MOST_UNITS:
            return {"frequency": unit, "interval": seconds // size}
    raise ValueError(f"every={every!r} is too long: use a recurrence.")


def pinned(timing: dict[str, Any], made_at: float) -> dict[str, Any]:
    """A timing that is counted from when the schedule was made, unless it says from when."""
    if "cron" in timing or timing.get("startTime") is not None:
        return timing
    return {**timing, "startTime": datetime.fromtimestamp(int(made_at), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}


def next_due(timing: dict[str, Any], after: float) -> float | None:
    """The first occurrence later than a time; None if there is none any more."""
    if "cron" in timing:
        return next_cron(timing["cron"], after, timing.get("timeZone"))
    return next_occurrence(timing, after)


def latest_due(timing: dict[str, Any], first: float, now: float) -> float:
    """The last occurrence up to now; `first` is one, and the answer if no later one has passed.

    However many have passed, few are looked at: every round leaves half of the time that the last one may lie in.
    """
    latest, end = first, now
    while (following := next_due(timing, latest)) is not None and following <= now:
        latest = following
        middle = latest + (end - latest) / 2
        jumped = next_due(timing, middle)
        if jumped is not None and jumped <= now:
            latest = jumped
        else:
            end = middle
    return latest

"""The run that a schedule is: it sleeps until an occurrence is due, starts a run, and begins again.

Each occurrence is a piece of work of its own, so that nothing gathers in the run's state. May import loom.effects,
loom.expressions, loom.steps, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from loom.expressions import evaluate
from loom.runtime.durable.schedules_timing import latest_due, next_due, pinned
from loom.runtime.durable.starting import flow_start
from loom.runtime.masking import SCHEDULE_DEFINITION
from loom.steps.context import Context  # noqa: TC001 - steps' annotations are read at run time
from loom.steps.decorators import step
from loom.steps.event_base import Event, StartEvent, StopEvent
from loom.steps.retry import retry_if_exception_type, retry_policy, stop_never, wait_exponential
from loom.steps.workflow import Workflow
from loom.store.errors import RunExists, StoreError

if TYPE_CHECKING:
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.working import WorkingRuntime

STARTED_TAG = "loom.schedule"
"""The tag with a schedule's name, of the runs that it has started."""

_log = logging.getLogger("loom.durable")

_UNTIL_THE_STORE_IS_BACK = retry_policy(
    retry=retry_if_exception_type(StoreError), wait=wait_exponential(max=60), stop=stop_never()
)


class ScheduleStart(StartEvent):
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


class Occurrence(Event):
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

    def __init__(self, runtime: WorkingRuntime) -> None:
        super().__init__(timeout=None)
        self._stored = runtime

    @step(retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def begin(self, ctx: Context, ev: ScheduleStart) -> Occurrence | StopEvent:
        """Find the first occurrence. Without a start of its own, a recurrence is counted from when it was stored."""
        row = await self._stored.row(schedule_run_id(ev.name, ev.generation))
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
        await ctx.sleep(max(0.0, ev.at - self._stored.now()))
        schedule = ScheduleStart(**await ctx.store.get(SCHEDULE_DEFINITION))
        timing = await ctx.store.get("timing")
        if await self._stored.is_replaced(schedule.name, schedule.generation):
            return StopEvent(result="replaced")
        at = ev.at if schedule.catch_up else latest_due(timing, ev.at, self._stored.now())
        if schedule.trigger and await self._ends_with_its_flow(schedule):
            return _next(next_due(timing, at))  # the cancellation is under way
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
        if not await self._stored.is_given_up(schedule):
            return False
        _log.info("The schedule %s ends: the flow %s does not ask for it.", schedule.name, schedule.workflow)
        await self._stored.end_schedule(schedule.name)
        return True

    async def _started(self, schedule: ScheduleStart, at: float) -> tuple[str | None, str | None]:
        """The id of the run that was started, if one was; what went wrong, if anything did."""
        run_id = occurrence_run_id(schedule.name, at)
        try:
            if not self._shall_start(schedule, at):
                return None, None
            inputs = start_of(self._stored.codes.get(schedule.workflow), schedule, at)
            tags = {**schedule.tags, STARTED_TAG: schedule.name}
            await self._stored.start(schedule.workflow, inputs, run_id=run_id, tags=tags)
        except RunExists as error:
            if (await self._stored.row(run_id)).workflow == schedule.workflow:
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
        context = {
            "utcNow": _iso(self._stored.now()),
            "parameters": schedule.defaults,
            "trigger": {"name": schedule.trigger, "outputs": {"body": None, "scheduledTime": _iso(at)}},
        }
        for condition in schedule.conditions:
            holds = evaluate(condition, context)
            if not isinstance(holds, bool):
                raise TypeError(f"the condition {condition!r} of the trigger gives {holds!r}, not true or false")
            if not holds:
                return False
        return True


def start_of(code: Registered | None, schedule: ScheduleStart, at: float) -> Any:
    """What a run of a schedule begins with. Only a flow can begin with something else than fields."""
    of_flow = (schedule.trigger, schedule.parameters is not None, schedule.variables is not None)
    if not any(of_flow) and (schedule.input is None or isinstance(schedule.input, dict)):
        return schedule.input
    start = flow_start(schedule.workflow, code, schedule.input, schedule.parameters or {}, schedule.variables or {})
    outputs = {"scheduledTime": _iso(at)} if schedule.trigger else {}
    return start.model_copy(update={"trigger": schedule.trigger, "outputs": outputs})


def _next(following: float | None) -> Occurrence | StopEvent:
    return StopEvent(result="over") if following is None else Occurrence(at=following)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

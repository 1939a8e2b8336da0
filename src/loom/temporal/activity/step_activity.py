"""The activity that runs the bodies of all Loom workflows: one for all steps, with automatic heartbeats.

A failing body is data for its run, so its activity succeeds. The activity itself fails only where this worker cannot do
the work or the run cannot be reached, and then the cluster tries it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    Callable,  # noqa: TC003 - temporalio reads the activity's annotations
    Sequence,  # noqa: TC003 - temporalio reads the activity's annotations
)
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from loom.core.body_effects import ONCE
from loom.core.persistent import Map
from loom.core.ticks import TickParkRun
from loom.effects.exceptions import traceback_text
from loom.runtime.durable.settings import Settings
from loom.runtime.lru_cache import LruCache
from loom.runtime.tracing import TracedBodies, find_tracing
from loom.steps.errors import WorkflowRuntimeError, described, message_of
from loom.store import codec
from loom.store.errors import CorruptRecord
from loom.temporal.activity.activity_run import ActivityContext, ActivityRun, Attempt
from loom.temporal.activity.heartbeats import Heartbeats, Trials, asks_cluster, is_poison, reason_of
from loom.temporal.activity.remote_store import WriterTurns
from loom.temporal.names import ACTIVITY_CODE, QUERY_EXECUTION, QUERY_ORIGIN, SIGNAL_EFFECTS
from loom.temporal.payloads import (
    ActivityReport,
    CodeRequest,
    CodeView,
    Effects,
    ExecutionQuery,
    ExecutionView,
    StartArgument,
    StepTask,
    payload_of,
    value_of,
)
from loom.temporal.rpc import ClientLink, RunGone, RunLink
from loom.temporal.settings import ActivitySettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from temporalio.client import Client

    from loom.effects.ports import Binding
    from loom.runtime.durable.metrics import RuntimeMetrics
    from loom.runtime.durable.registration import Registration
    from loom.runtime.tracing import Tracing

_BEATING = timedelta(seconds=3)
"""How long a heartbeat may take. After that it is of no use."""
_STEP_ATTEMPTS = 3
"""Attempts by workers that lack a step before the run is parked."""
_WHAT_TO_DO = " Resume the run to try it again, or cancel it."
_VERSIONS = 64
"""Versions of flows that are kept though they are not current any more."""


def make_activity(
    codes: Mapping[str, Registration],
    client: Client,
    settings: Settings | None = None,
    metrics: RuntimeMetrics | None = None,
) -> Callable[[Sequence[RawValue]], Awaitable[RawValue]]:
    """Return the dynamic activity of a worker that knows these workflows; `codes` may grow while it works."""

    def link_to(info: activity.Info) -> RunLink:
        assert info.workflow_id is not None
        return ClientLink(client, info.workflow_id, info.workflow_run_id)

    def beat(token: bytes, *details: Any) -> Awaitable[None]:
        return client.get_async_activity_handle(task_token=token).heartbeat(*details, rpc_timeout=_BEATING)

    tracing = find_tracing() if settings is None or settings.tracing else None
    trials = Trials((settings or Settings()).probation, asks_cluster(client), beat)
    return StepActivity(codes, link_to, tracing=tracing, beat=beat, metrics=metrics, trials=trials).definition()


class StepActivity:
    """Runs bodies for the runs of a cluster."""

    def __init__(
        self,
        codes: Mapping[str, Registration],
        link_to: Callable[[activity.Info], RunLink],
        settings: ActivitySettings | None = None,
        tracing: Tracing | None = None,
        beat: Callable[..., Awaitable[None]] | None = None,
        metrics: RuntimeMetrics | None = None,
        trials: Trials | None = None,
    ) -> None:
        settings = settings if settings is not None else ActivitySettings()
        self._context = ActivityContext(codes, settings, WriterTurns(), metrics)
        self._link_to = link_to
        self._tracing = tracing
        self._heartbeats = Heartbeats(beat)
        self._trials = trials if trials is not None else Trials(Settings().probation, None, None)
        self._versions: LruCache[tuple[str, str], Registration] = LruCache(_VERSIONS)

    def definition(self) -> Callable[[Sequence[RawValue]], Awaitable[RawValue]]:
        """Return the activity, as a worker takes it."""

        @activity.defn(dynamic=True)
        async def loom_step(arguments: Sequence[RawValue]) -> RawValue:
            return await self.perform(arguments)

        return loom_step

    async def perform(self, arguments: Sequence[RawValue]) -> RawValue:
        """Serve one activity task."""
        info = activity.info()
        if info.activity_type == ACTIVITY_CODE:
            return RawValue(payload_of(await self._asked_for_code(value_of(arguments[0].payload, CodeRequest), info)))
        task = value_of(arguments[0].payload, StepTask)
        heart = self._heartbeats.begin()
        try:
            deaths = await self._trials.deaths_of(info)
            if deaths is not None and is_poison(deaths):
                reason = reason_of(f"step '{task.command.step}'", deaths) + _WHAT_TO_DO
                return RawValue(payload_of(ActivityReport((TickParkRun(at=task.command.started_at, reason=reason),))))
            async with self._trials.on_probation(heart, deaths):
                report = await self._step(task, info, self._link_to(info))
        except RunGone as error:
            raise _unwanted(str(error)) from error
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and (details.not_found or details.timed_out):
                raise _unwanted(f"Run {task.run_id} has closed, or has given the step to another worker.") from None
            raise
        finally:
            self._heartbeats.end(heart)
        return RawValue(payload_of(report))

    async def _asked_for_code(self, request: CodeRequest, info: activity.Info) -> CodeView:
        """Return the code that a run begins with. The class of its start event may kill the worker, as a body may."""
        heart = self._heartbeats.begin()
        try:
            deaths = await self._trials.deaths_of(info)
            if deaths is not None and is_poison(deaths):
                raise ApplicationError(reason_of("its start", deaths), type="Poison", non_retryable=True)
            async with self._trials.on_probation(heart, deaths):
                return self._view(request)
        finally:
            self._heartbeats.end(heart)

    async def _step(self, task: StepTask, info: activity.Info, link: RunLink) -> ActivityReport:
        try:
            code = await self._version(task, link)
        except (ValueError, CorruptRecord) as error:
            # No worker with this code can go on with the run, so it says so and waits for other code.
            reason = f"Step '{task.command.step}': {error}"
            return ActivityReport((TickParkRun(at=task.command.started_at, reason=reason),))
        if info.attempt > 1 or _has_waited(info):
            task = await _recovered_task(task, link, info.attempt)
        body = self._body(task, code)
        if body is None:
            return _without_step(task, info.attempt)
        attempt = Attempt(info.attempt, info.started_time.timestamp())
        return await ActivityRun(task, code, body, self._context, link, attempt).perform()

    def _code(self, workflow: str) -> Registration:
        codes = self._context.codes
        code = codes.get(workflow)
        if code is None:
            raise ApplicationError(
                f"This worker does not know the workflow {workflow!r}; it knows {', '.join(sorted(codes))}. "
                "Start a worker for it on this task queue.",
                type="UnknownWorkflow",
            )
        return code

    def _view(self, request: CodeRequest) -> CodeView:
        code = self._code(request.workflow)
        digest, text = code.document if code.document is not None else (None, None)
        start = _whole_start(code, request.start) if request.start else None
        return CodeView(code.config, digest, text.decode() if text is not None else None, start)

    async def _version(self, task: StepTask, link: RunLink) -> Registration:
        """Return the code of a run: a flow goes on with the version that it began with, whose text is with the run."""
        code = self._code(task.workflow)
        current = code.document[0] if code.document is not None else None
        if task.document == current:
            return code
        if task.document is None:
            raise ValueError(f"{task.workflow!r} was a workflow in Python when the run began and is a flow here.")
        key = (task.workflow, task.document or "")
        found = self._versions.get(key)
        if found is None:
            found = code.for_run((await link.query(QUERY_ORIGIN, None, StartArgument)).as_stored())
            self._versions.put(key, found)
        return found

    def _body(self, task: StepTask, code: Registration) -> Binding | None:
        bodies: dict[str, Any] = code.bindings
        if self._tracing is not None:
            trace = self._tracing.of_run(task.run_id, task.workflow, task.created_at, task.parent)
            bodies = TracedBodies(bodies, trace)
        try:
            body: Binding = bodies[task.command.step]
        except KeyError:
            return None
        return body


def _whole_start(code: Registration, start: str) -> str:
    """Return a start with the event that the code makes of its inputs: so the event is a fact, whatever the code is
    later."""
    try:
        spec = codec.decode_start(code.name, start.encode())
        event = code.first_tick("", spec, 0.0).event
    except Exception as error:  # noqa: BLE001 - the author's class may raise anything, and would do so for ever
        why = message_of(error) if isinstance(error, WorkflowRuntimeError) else described(error)
        # The SDK asks every cause for its text. The author's exception may raise then, which would end this worker.
        raise ApplicationError(why, type="BadStart", non_retryable=True) from RuntimeError(traceback_text(error))
    return codec.encode_start(replace(spec, event=event, inputs=None)).decode()


def _without_step(task: StepTask, attempt: int) -> ActivityReport:
    """Report that the code here lacks the step. Another worker may have it; if none does, the run is parked."""
    message = (
        f"The workflow {task.workflow!r} of this worker has no step '{task.command.step}'. "
        "Start a worker with the code that the run was made with."
    )
    if attempt < _STEP_ATTEMPTS:
        raise ApplicationError(message, type="UnknownStep")
    return ActivityReport((TickParkRun(at=task.command.started_at, reason=message),))


def _unwanted(message: str) -> ApplicationError:
    """Return the error of an activity whose result is not wanted any more, which is no news for the log."""
    return ApplicationError(message, type="RunGone", non_retryable=True, category=ApplicationErrorCategory.BENIGN)


def _has_waited(info: activity.Info) -> bool:
    """Say whether a task has waited for longer than a worker may be silent: its run may have been cancelled since.

    The worker that had begun it is dead, or there was none. So the run is asked only about steps that were late anyway,
    and not about every step.
    """
    limit = info.heartbeat_timeout
    return limit is not None and info.started_time - info.current_attempt_scheduled_time > limit


async def _recovered_task(task: StepTask, link: RunLink, attempt: int) -> StepTask:
    """Return the task of an activity that was begun before: with what was done then, and answered since."""
    command = task.command
    view = await link.query(QUERY_EXECUTION, ExecutionQuery(command.step, command.item.id, command.seq), ExecutionView)
    execution = view.execution
    if execution is None:
        raise RunGone(
            f"Step '{command.step}' of run {task.run_id} (number {command.seq}) is not wanted any more: "
            "the run has gone on without it."
        )
    if view.wants_store:
        # The attempt that asked is dead. If it kept its place in line, later writers could hold up this body.
        await link.signal(SIGNAL_EFFECTS, Effects((), command.seq, attempt))
    item = replace(command.item, execution=execution.id, effects=execution.effects, writes=execution.writes)
    records = {key.removeprefix(ONCE): a.value for key, a in view.answers.items() if key.startswith(ONCE)}
    return replace(task, command=replace(command, item=item, records=Map(records)), answers=view.answers)

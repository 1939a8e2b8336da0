"""Activations made by hand, and an execution that takes them: what a worker does, without a server.

The only place that builds the SDK's private argument types, so that a new version of it is met in one place.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import workflow as sdk
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import Priority, TypedSearchAttributes

import loom
from loom.core.ticks import TickAddEvent, TickStepResult, WorkflowTick
from loom.runtime.durable.registration import Registration, prepared
from loom.store import codec
from loom.temporal import names
from loom.temporal.bridge import activations, completions, messages
from loom.temporal.payloads import (
    ActivityReport,
    RunMessage,
    RunMetadata,
    StartArgument,
    StepTask,
    payload_of,
    value_of,
)
from loom.temporal.settings import ActivityOptions
from loom.temporal.workflow.instance import LoomInstance
from loom.temporal.workflow.policy import POLICIES, Policy
from loom.temporal.workflow.queries import AskAgain, Intake, has_recorded

START = 1_800_000_000.0


def info_of(run_id: str, workflow: str, **given: Any) -> sdk.Info:
    """What Temporal knows of an execution, in whatever version of the SDK."""
    moment = datetime.fromtimestamp(START, tz=UTC)
    values: dict[str, Any] = {
        "attempt": 1,
        "namespace": "default",
        "task_queue": "loom",
        "workflow_id": run_id,
        "workflow_type": workflow,
        "run_id": "execution-1",
        "first_execution_run_id": "execution-1",
        "original_execution_run_id": "execution-1",
        "headers": {},
        "raw_memo": {},
        "search_attributes": {},
        "typed_search_attributes": TypedSearchAttributes.empty,
        "start_time": moment,
        "workflow_start_time": moment,
        "task_timeout": timedelta(seconds=10),
        "priority": Priority.default,
        **given,
    }
    known = {field.name for field in dataclasses.fields(sdk.Info)}
    return sdk.Info(**{name: values.get(name) for name in known})


class WorkerStub:
    """What an execution finds in its worker, and what it has told it."""

    def __init__(self, policies: tuple[Policy, ...] = POLICIES) -> None:
        self.options = ActivityOptions()
        self.policies = policies
        self.heard: list[str] = []
        self.other_code: list[str] = []
        self.counts: list[str] = []
        self.children: list[tuple[str, dict[int, str]]] = []
        self.newest: list[HistoryEvent] | Exception | None = None
        """The newest events of the history, the last one first; None: all that was taken in is recorded."""
        self.reads = 0

    def check_recorded(self, info: sdk.Info, taken: Intake, length: int) -> None:
        self.reads += 1
        if isinstance(self.newest, Exception):
            raise AskAgain from self.newest
        if self.newest is not None and not has_recorded(self.newest, taken, length):
            raise AskAgain

    def has_children(self, run_id: str, children: dict[int, str]) -> None:
        self.children.append((run_id, children))

    def counted(self, workflow: str, fact: str) -> None:
        self.counts.append(fact)

    def activated(self, run_id: str, ticks: int) -> None:
        self.heard.append(run_id)

    def has_other_code(self, run_id: str, workflow: str, *, is_parked: bool) -> None:
        self.other_code.append(f"{run_id}, parked" if is_parked else run_id)


def code_of(workflow: loom.Workflow, name: str = "made") -> Registration:
    """A workflow as a worker knows it."""
    return prepared(name, workflow)


def argument_of(code: Registration, inputs: Any = None, *, run_id: str = "run-1", **given: Any) -> StartArgument:
    """What a run of it begins with."""
    digest, text = code.document if code.document is not None else (None, None)
    metadata = RunMetadata(run_id, code.name, START, document=digest, **given.pop("metadata", {}))
    given.setdefault("config", code.config)
    start = codec.encode_start(code.start_spec(inputs)).decode()
    return StartArgument(metadata, start=start, document=text.decode() if text is not None else None, **given)


class HandMade:
    """One execution under test. Each call is an activation; its commands are what it answered."""

    def __init__(
        self,
        code: Registration,
        argument: StartArgument | None = None,
        *,
        around: WorkerStub | None = None,
        replaying: bool = False,
        flags: tuple[int, ...] = (),
        **info: Any,
    ) -> None:
        self.code = code
        self.around = around or WorkerStub()
        self.argument = argument or argument_of(code)
        self.instance = LoomInstance(info_of(self.argument.metadata.run_id, code.name, **info), code, self.around)
        self.now = START
        self.history_length = 3
        self.suggested = False
        self.replaying = replaying
        self.flags = flags
        self.completion = completions.WorkflowActivationCompletion()

    @property
    def host(self) -> Any:
        """The run that it hosts."""
        return self.instance.driver.host

    # -- activations --------------------------------------------------------------------------------------------------

    def activate(self, *jobs: activations.WorkflowActivationJob, same_task: bool = False) -> list[Any]:
        """Let it take jobs; its commands, or an AssertionError with the failure of the task."""
        if not same_task:
            self.history_length += 5
        moment = Timestamp(seconds=int(self.now), nanos=round(self.now % 1 * 1e9))
        act = activations.WorkflowActivation(
            run_id="execution-1",
            timestamp=moment,
            is_replaying=self.replaying,
            history_length=self.history_length,
            jobs=jobs,
            continue_as_new_suggested=self.suggested,
            available_internal_flags=self.flags,
        )
        self.completion = self.instance.activate(act)
        assert self.completion.HasField("successful"), self.completion.failed.failure.message
        return list(self.completion.successful.commands)

    def start(self, *more: activations.WorkflowActivationJob) -> list[Any]:
        """The first activation."""
        return self.activate(initialize(self.argument), *more)

    def finish(self, command: messages.WorkflowCommand, *events: loom.Event, **result: Any) -> list[Any]:
        """The activity of a command returns events."""
        return self.activate(self.returned(command, *events, **result))

    def returned(self, command: messages.WorkflowCommand, *events: loom.Event, **result: Any) -> Any:
        """The job that says so."""
        task = task_of(command)
        records = tuple(self.code.codec.record(event) for event in events)
        return self.reported(command, step_result(task, returned=records, **result))

    def reported(self, command: messages.WorkflowCommand, *ticks: WorkflowTick) -> Any:
        """The job of an activity that ends with these ticks."""
        job = activations.WorkflowActivationJob()
        job.resolve_activity.seq = command.schedule_activity.seq
        job.resolve_activity.result.completed.result.CopyFrom(payload_of(ActivityReport(ticks)))
        return job

    def event(self, event: loom.Event, event_id: str | None = None) -> activations.WorkflowActivationJob:
        """The job of an event from outside."""
        record = self.code.codec.record(event)
        return inbox_signal(TickAddEvent(at=0.0, event=record, event_id=event_id, accepted=True))

    def ask(self, name: str, argument: Any = None, *, query_id: str = "q1") -> messages.QueryResult:
        """Ask a query. A task carries it, unless its id is `legacy_query`."""
        job = activations.WorkflowActivationJob()
        job.query_workflow.query_id = query_id
        job.query_workflow.query_type = name
        if argument is not None:
            job.query_workflow.arguments.append(payload_of(argument))
        (command,) = self.activate(job, same_task=True)
        return command.respond_to_query

    def answer(self, name: str, expected: Any, argument: Any = None) -> Any:
        """The answer to a query."""
        found = self.ask(name, argument)
        assert found.HasField("succeeded"), found.failed.message
        return value_of(found.succeeded.response, expected)


def initialize(argument: StartArgument) -> activations.WorkflowActivationJob:
    """The job that begins an execution."""
    job = activations.WorkflowActivationJob()
    job.initialize_workflow.workflow_id = argument.metadata.run_id
    job.initialize_workflow.workflow_type = argument.metadata.workflow
    job.initialize_workflow.arguments.append(payload_of(argument))
    return job


def inbox_signal(tick: WorkflowTick, **given: Any) -> activations.WorkflowActivationJob:
    """The job of a letter."""
    return signal(names.SIGNAL_MAIL, RunMessage(tick, **given))


def signal(name: str, argument: Any) -> activations.WorkflowActivationJob:
    """The job of a signal with one of our structs."""
    job = activations.WorkflowActivationJob()
    job.signal_workflow.signal_name = name
    job.signal_workflow.input.append(payload_of(argument))
    return job


def foreign_signal(name: str, *values: Any) -> activations.WorkflowActivationJob:
    """The job of a signal that somebody else has sent."""
    job = activations.WorkflowActivationJob()
    job.signal_workflow.signal_name = name
    for value in values:
        data = json.dumps(value).encode()
        job.signal_workflow.input.append(Payload(metadata={"encoding": b"json/plain"}, data=data))
    return job


def timer_fired(command: messages.WorkflowCommand) -> activations.WorkflowActivationJob:
    """The job of a timer that a command has started."""
    job = activations.WorkflowActivationJob()
    job.fire_timer.seq = command.start_timer.seq
    return job


def task_of(command: messages.WorkflowCommand) -> StepTask:
    """What an activity is asked to do."""
    return value_of(command.schedule_activity.arguments[0], StepTask)


def step_result(task: StepTask, **given: Any) -> TickStepResult:
    """The tick with which a body ends."""
    command = task.command
    return TickStepResult(at=0.0, step=command.step, item=command.item.id, seq=command.seq, **given)


def kinds(commands: list[Any]) -> list[str]:
    """What commands there are, by the names of their kinds."""
    return [command.WhichOneof("variant") for command in commands]

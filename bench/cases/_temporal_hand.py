"""Workflow instances of Temporal driven by hand, without a server: activations go in, commands come out.

The same hand drives the stock instance and Loom's; what went in is kept, as activations that can be given to another
instance, and as the history that a server would have written.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_commands import ScheduleActivity, WorkflowCommand
from temporalio.client import WorkflowHistory
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info, _Definition

RUN = "run"
QUEUE = "bench"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)

Answer = Callable[[ScheduleActivity], Payload]
"""What an activity returns, by the command that asked for it."""


def instance_of(runner: WorkflowRunner, host: type, kind: str) -> WorkflowInstance:
    """A new instance, as a worker would have it made."""
    definition = _Definition.must_from_class(host)
    runner.prepare_workflow(definition)
    details = WorkflowInstanceDetails(
        payload_converter_factory=lambda: PayloadConverter.default,
        failure_converter_class=DefaultFailureConverter,
        interceptor_classes=[],
        defn=definition,
        info=_info(kind),
        randomness_seed=1,
        extern_functions={},
        disable_eager_activity_execution=False,
        worker_level_failure_exception_types=[],
        patch_activation_callback=None,
        last_completion_result=Payloads(),
        last_failure=None,
    )

    async def make() -> WorkflowInstance:
        return runner.create_instance(details)

    # A worker makes instances in its event loop, and gives them activations in threads that have none.
    return asyncio.run(make())


def _info(kind: str) -> Info:
    return Info(
        attempt=1,
        continued_run_id=None,
        cron_schedule=None,
        execution_timeout=None,
        first_execution_run_id=RUN,
        headers={},
        namespace="default",
        original_execution_run_id=RUN,
        parent=None,
        root=None,
        priority=Priority.default,
        raw_memo={},
        retry_policy=None,
        run_id=RUN,
        run_timeout=None,
        search_attributes={},
        start_time=BEGAN,
        task_queue=QUEUE,
        task_timeout=timedelta(seconds=10),
        typed_search_attributes=TypedSearchAttributes.empty,
        workflow_id=RUN,
        workflow_start_time=BEGAN,
        workflow_type=kind,
    )


class Hand:
    """Drives one instance, and keeps what it was given."""

    def __init__(self, instance: WorkflowInstance, kind: str, arguments: list[Payload]) -> None:
        self._instance = instance
        self._kind, self._arguments = kind, arguments
        self.given: list[WorkflowActivation] = []
        self._events = History()
        self._scheduled: dict[str, int] = {}
        """The events that scheduled activities which are under way."""
        self._event(
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
        ).workflow_execution_started_event_attributes.MergeFrom(_started(kind, arguments))

    def begin(self) -> list[WorkflowCommand]:
        """The first activation."""
        job = WorkflowActivationJob()
        job.initialize_workflow.workflow_type = self._kind
        job.initialize_workflow.workflow_id = job.initialize_workflow.first_execution_run_id = RUN
        job.initialize_workflow.randomness_seed = 1
        job.initialize_workflow.arguments.extend(self._arguments)
        return self._give(job)

    def signal(self, name: str, payload: Payload) -> list[WorkflowCommand]:
        """A signal arrives."""
        job = WorkflowActivationJob()
        job.signal_workflow.signal_name = name
        job.signal_workflow.input.append(payload)
        signalled = self._event(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
        job.signal_workflow.originating_event_id = signalled.event_id
        signalled.workflow_execution_signaled_event_attributes.signal_name = name
        signalled.workflow_execution_signaled_event_attributes.input.payloads.append(payload)
        return self._give(job)

    def resolve(self, command: ScheduleActivity, answer: Answer) -> list[WorkflowCommand]:
        """An activity is over."""
        job = WorkflowActivationJob()
        result = answer(command)
        job.resolve_activity.seq = command.seq
        job.resolve_activity.result.completed.result.CopyFrom(result)
        scheduled = self._scheduled.pop(command.activity_id)
        started = self._event(EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
        started.activity_task_started_event_attributes.scheduled_event_id = scheduled
        completed = self._event(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        completed.activity_task_completed_event_attributes.scheduled_event_id = scheduled
        completed.activity_task_completed_event_attributes.started_event_id = started.event_id
        completed.activity_task_completed_event_attributes.result.payloads.append(result)
        return self._give(job)

    def history(self) -> WorkflowHistory:
        """What a server would have written so far."""
        return WorkflowHistory(RUN, list(self._events.events))

    def _give(self, job: WorkflowActivationJob) -> list[WorkflowCommand]:
        scheduled = self._event(EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED)
        scheduled.workflow_task_scheduled_event_attributes.task_queue.name = QUEUE
        started = self._event(EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED)
        started.workflow_task_started_event_attributes.scheduled_event_id = scheduled.event_id
        activation = WorkflowActivation(run_id=RUN, history_length=started.event_id, jobs=[job])
        activation.timestamp.CopyFrom(started.event_time)
        self.given.append(activation)
        completion = self._instance.activate(activation)
        assert completion.HasField("successful"), completion.failed.failure
        completed = self._event(EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
        attributes = completed.workflow_task_completed_event_attributes
        attributes.scheduled_event_id, attributes.started_event_id = scheduled.event_id, started.event_id
        attributes.sdk_metadata.lang_used_flags.extend(completion.successful.used_internal_flags)
        commands = list(completion.successful.commands)
        for command in commands:
            self._carry_out(command, completed.event_id)
        return commands

    def _carry_out(self, command: WorkflowCommand, task: int) -> None:
        if command.HasField("schedule_activity"):
            asked = command.schedule_activity
            scheduled = self._event(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
            attributes = scheduled.activity_task_scheduled_event_attributes
            attributes.activity_id, attributes.activity_type.name = asked.activity_id, asked.activity_type
            attributes.task_queue.name = asked.task_queue
            attributes.input.payloads.extend(asked.arguments)
            attributes.workflow_task_completed_event_id = task
            self._scheduled[asked.activity_id] = scheduled.event_id
        elif command.HasField("complete_workflow_execution"):
            ended = self._event(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED)
            attributes = ended.workflow_execution_completed_event_attributes
            attributes.result.payloads.append(command.complete_workflow_execution.result)
            attributes.workflow_task_completed_event_id = task
        else:
            raise AssertionError(f"The hand does not know {command.WhichOneof('variant')}.")

    def _event(self, kind: Any) -> HistoryEvent:
        number = len(self._events.events) + 1
        event = self._events.events.add(event_id=number, event_type=kind)
        event.event_time.FromDatetime(BEGAN + timedelta(milliseconds=number))
        return event


def _started(kind: str, arguments: list[Payload]) -> Any:
    from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes

    started = WorkflowExecutionStartedEventAttributes(workflow_id=RUN, attempt=1)
    started.workflow_type.name = kind
    started.task_queue.name = QUEUE
    started.input.payloads.extend(arguments)
    started.original_execution_run_id = started.first_execution_run_id = RUN
    started.workflow_task_timeout.FromTimedelta(timedelta(seconds=10))
    return started


def microseconds(instance: WorkflowInstance, activations: list[WorkflowActivation]) -> list[float]:
    """What an instance needs for each of them."""
    needed = []
    for activation in activations:
        started = time.perf_counter()
        instance.activate(activation)
        needed.append((time.perf_counter() - started) * 1e6)
    return needed

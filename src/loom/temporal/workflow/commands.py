"""Loom's commands as Temporal's: built once, measured, and numbered as Temporal counts them.

Every kind of Temporal command has its own numbers, from 1 in every execution. Loom's numbers live in the run's state
and go through all its executions. Search attributes of the run are a command too.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from temporalio.api.common.v1 import Payload, RetryPolicy

from loom.core.body_effects import ONCE
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
)
from loom.core.persistent import EMPTY_MAP
from loom.temporal.bridge import ABANDON_CHILDREN, messages, upserted_attributes
from loom.temporal.names import (
    ATTRIBUTE_IDLE_SINCE,
    ATTRIBUTE_WAITING_FOR,
    MEMO_RUN,
    PARKED,
    SIGNAL_MAIL,
    STUCK,
    keywords,
)
from loom.temporal.payloads import RunMessage, RunMetadata, StartArgument, StepTask, payload_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.commands import WorkflowCommand
    from loom.core.state import RunFields
    from loom.core.ticks import WorkflowTick
    from loom.temporal.settings import ActivityOptions
    from loom.temporal.workflow.hosted_run import HostedRun

_OVERHEAD = 64
"""Bytes of an event in the history beside its command."""
_OPTIONS = 128
"""Bytes that the options of an activity count, whatever they are: configuration must not move a border."""

_GROWN = len(",null" * 3)
"""Bytes by which a work item has grown since the first histories were recorded: fields that are null in their runs.

They do not count, so that a flush of such a run is split where it was."""

_YEAR_S = 365 * 24 * 3600


class ExecutionPlace(NamedTuple):
    """Where an execution is: commands to other executions name it."""

    namespace: str
    task_queue: str


class SentActivity(NamedTuple):
    """A body that is at work, by the command that asked for it."""

    seq: int
    step: str
    item: int


class OutgoingCommands:
    """Makes Temporal's commands, and knows which of them are under way."""

    def __init__(self, place: ExecutionPlace, options: ActivityOptions, headers: Mapping[str, Any]) -> None:
        self.place = place
        self.headers = headers
        """The headers that the run was started with: its bodies and children get them too."""
        self._scheduled = self._schedule(options, headers)
        self._options_size = self._scheduled.schedule_activity.ByteSize() - _without_options(self._scheduled)
        self._numbers = {"activity": 0, "timer": 0, "child": 0, "external": 0}
        self.activities: dict[int, SentActivity] = {}
        self.stopped: set[int] = set()
        """The ones among them that were asked to stop."""
        self.timers: dict[int, CommandStartTimer] = {}
        """By Temporal's number."""
        self._timer_numbers: dict[int, int] = {}
        """Temporal's numbers by Loom's."""
        self.children: dict[int, CommandStartChild] = {}
        self.starting: set[int] = set()
        """Children that are not known to have started."""
        self.externals: dict[int, str] = {}
        """Signals and requests to other runs that are not known to have arrived, and to whom."""
        self.unwanted: set[str] = set()
        """Children that were asked to end before they were known to have begun. They may not have got the request."""
        self.asked_again = 0
        """How many of these were asked again since the last flush."""

    @property
    def cancelling(self) -> int:
        """Count the requests to children to end that are under way, or that may have to be made again."""
        return len(self.externals) + len(self.unwanted.difference(self.externals.values()))

    @property
    def in_flight(self) -> int:
        """Count what the window counts: bodies at work, and child runs."""
        return len(self.activities) + len(self.children)

    @property
    def is_heard(self) -> bool:
        """Say whether all requested children have begun, and all messages to other runs have arrived.

        The server drops pending messages of an execution when it closes.
        """
        return not (self.starting or self.externals)

    def _next(self, kind: str) -> int:
        self._numbers[kind] = number = self._numbers[kind] + 1
        return number

    def weight(self, built: messages.WorkflowCommand) -> int:
        """Return the bytes of a command in the history before any codec: always the same, whatever is configured."""
        if built.HasField("schedule_activity"):
            scheduled = built.schedule_activity
            return scheduled.ByteSize() - _growth(scheduled) - self._options_size + _OPTIONS + _OVERHEAD
        return built.ByteSize() + _OVERHEAD

    # -- building: nothing is numbered yet, so that a command may be measured and wait --------------------------------

    def build(self, command: WorkflowCommand, host: HostedRun, now: float) -> messages.WorkflowCommand | None:
        """Return a command as a message without its number; None if Temporal has no command for it."""
        match command:
            case CommandRunWorker():
                return self._activity(command, host)
            case CommandStartTimer():
                return _timer(command.due - now)
            case CommandCancelTimer():
                return messages.WorkflowCommand(cancel_timer=messages.CancelTimer())
            case CommandStartChild():
                return self._child(command, host.metadata, now)
            case CommandCancelChild():
                return self._cancel_external(command.run_id)
            case _:
                return None

    def _activity(self, command: CommandRunWorker, host: HostedRun) -> messages.WorkflowCommand:
        metadata = host.metadata
        task = StepTask(
            command,
            metadata.run_id,
            metadata.workflow,
            _answers(host.core.fields, command.item.id),
            metadata.document,
            metadata.parent,
            metadata.created_at,
        )
        return self.activity_message(command.step, str(command.seq), task)

    def activity_message(self, kind: str, activity_id: str, argument: Any) -> messages.WorkflowCommand:
        """Return the command that schedules an activity."""
        built = messages.WorkflowCommand()
        built.CopyFrom(self._scheduled)
        built.schedule_activity.activity_id = activity_id
        built.schedule_activity.activity_type = kind
        built.schedule_activity.arguments.append(payload_of(argument))
        return built

    def _schedule(self, options: ActivityOptions, headers: Mapping[str, Any]) -> messages.WorkflowCommand:
        """Return what all activities of the run have in common."""
        built = messages.WorkflowCommand()
        scheduled = built.schedule_activity
        scheduled.task_queue = self.place.task_queue
        scheduled.start_to_close_timeout.seconds = _YEAR_S
        _set_duration(scheduled.heartbeat_timeout, options.heartbeat_timeout)
        scheduled.retry_policy.CopyFrom(_retries(options))
        # It has no bearing on histories, nor on what an activity weighs: only `stop_activities` makes a request.
        scheduled.cancellation_type = messages.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
        for name, header in headers.items():
            scheduled.headers[name].CopyFrom(header)
        return built

    def _child(self, command: CommandStartChild, parent: RunMetadata, now: float) -> messages.WorkflowCommand:
        metadata = RunMetadata(
            command.run_id,
            command.workflow,
            now,
            parent=parent.run_id,
            parent_ref=command.seq,
            attributes=parent.attributes,
        )
        built = messages.WorkflowCommand()
        child = built.start_child_workflow_execution
        child.namespace = self.place.namespace
        child.workflow_id = command.run_id
        child.workflow_type = command.workflow
        child.task_queue = self.place.task_queue
        child.input.append(payload_of(StartArgument(metadata, start=command.start)))
        child.memo[MEMO_RUN].CopyFrom(payload_of(metadata))
        # Its end is told by itself: with the default policy a parent that goes on in a new execution would end it.
        child.parent_close_policy = ABANDON_CHILDREN
        for name, header in self.headers.items():
            child.headers[name].CopyFrom(header)
        return built

    def _cancel_external(self, run_id: str) -> messages.WorkflowCommand:
        built = messages.WorkflowCommand()
        built.request_cancel_external_workflow_execution.workflow_execution.namespace = self.place.namespace
        built.request_cancel_external_workflow_execution.workflow_execution.workflow_id = run_id
        return built

    def inbox_signal(self, run_id: str, tick: WorkflowTick) -> messages.WorkflowCommand:
        """Return the command that sends a message to another run, numbered."""
        built = messages.WorkflowCommand()
        signal = built.signal_external_workflow_execution
        signal.seq = self._next("external")
        self.externals[signal.seq] = run_id
        signal.workflow_execution.namespace = self.place.namespace
        signal.workflow_execution.workflow_id = run_id
        signal.signal_name = SIGNAL_MAIL
        signal.args.append(payload_of(RunMessage(tick)))
        return built

    # -- sending: numbers are given, and what is under way is noted ---------------------------------------------------

    def send(self, command: WorkflowCommand, built: messages.WorkflowCommand) -> list[messages.WorkflowCommand]:
        """Number a built command, note it, and return what really leaves for it."""
        match command:
            case CommandRunWorker():
                number = built.schedule_activity.seq = self._next("activity")
                self.activities[number] = SentActivity(command.seq, command.step, command.item.id)
            case CommandStartTimer():
                return self._start_timer(command, built)
            case CommandCancelTimer():
                return self._cancel_timer(command.seq)
            case CommandStartChild():
                number = built.start_child_workflow_execution.seq = self._next("child")
                self.children[number] = command
                self.starting.add(number)
            case CommandCancelChild():
                if any(self.children[number].run_id == command.run_id for number in self.starting):
                    self.unwanted.add(command.run_id)
                number = built.request_cancel_external_workflow_execution.seq = self._next("external")
                self.externals[number] = command.run_id
            case _:
                raise TypeError(f"{type(command).__name__} is no command for Temporal.")
        return [built]

    def stop_activities(self) -> list[messages.WorkflowCommand]:
        """Return the requests to stop all bodies at work. Their ends are of no interest any more."""
        stopped = []
        for number in sorted(self.activities.keys() - self.stopped):
            self.stopped.add(number)
            built = messages.WorkflowCommand()
            built.request_cancel_activity.seq = number
            stopped.append(built)
        return stopped

    def cancel_again(self, run_id: str) -> list[messages.WorkflowCommand]:
        """Ask a child to end that had not begun when it was asked first. If its start is still open, do so later."""
        is_starting = any(self.children[number].run_id == run_id for number in self.starting)
        if run_id not in self.unwanted or is_starting or run_id in self.externals.values():
            return []
        self.unwanted.discard(run_id)
        self.asked_again += 1
        built = self._cancel_external(run_id)
        number = built.request_cancel_external_workflow_execution.seq = self._next("external")
        self.externals[number] = run_id
        return [built]

    def activity_number(self, built: messages.WorkflowCommand) -> int:
        """Number an activity of Loom's own."""
        built.schedule_activity.seq = number = self._next("activity")
        return number

    def fence(self) -> tuple[int, messages.WorkflowCommand]:
        """Return a timer that ends at once, and its number: queued commands leave with the task that it begins."""
        built, number = _timer(0.0), self._next("timer")
        built.start_timer.seq = number
        return number, built

    def _start_timer(
        self, command: CommandStartTimer, built: messages.WorkflowCommand
    ) -> list[messages.WorkflowCommand]:
        """Arm a timer. A resumed run asks again for armed timers: only one with another due time is new."""
        number = self._timer_numbers.get(command.seq)
        if number is not None and self.timers[number].due == command.due:
            return []
        gone = self._cancel_timer(command.seq)
        built.start_timer.seq = number = self._next("timer")
        self._timer_numbers[command.seq] = number
        self.timers[number] = command
        return [*gone, built]

    def _cancel_timer(self, seq: int) -> list[messages.WorkflowCommand]:
        number = self._timer_numbers.pop(seq, None)
        if number is None:
            return []
        del self.timers[number]
        return [messages.WorkflowCommand(cancel_timer=messages.CancelTimer(seq=number))]

    def fired(self, number: int) -> CommandStartTimer | None:
        """Drop a timer that has fired, and return the command that started it; None if it is unknown."""
        command = self.timers.pop(number, None)
        if command is not None:
            del self._timer_numbers[command.seq]
        return command


def _answers(now: RunFields, item: int) -> dict[str, Any]:
    """Return the answers to waits of a work item; its recorded results are in the command itself."""
    answers = now.waiting.answers.get(item, EMPTY_MAP)
    return {key: answers[key] for key in sorted(answers) if not key.startswith(ONCE)} if answers else {}


def _timer(delay: float) -> messages.WorkflowCommand:
    """Return a timer that never fires early: rounded up, and never at once, which old servers refuse."""
    built = messages.WorkflowCommand()
    milliseconds = max(1, math.ceil(delay * 1000))
    built.start_timer.start_to_fire_timeout.seconds = milliseconds // 1000
    built.start_timer.start_to_fire_timeout.nanos = milliseconds % 1000 * 1_000_000
    return built


def _set_duration(duration: Any, seconds: float) -> None:
    duration.seconds = int(seconds)
    duration.nanos = round(seconds % 1 * 1_000_000_000)


def _without_options(scheduled: messages.WorkflowCommand) -> int:
    """Return the bytes of a scheduled activity without its options."""
    bare = messages.ScheduleActivity()
    bare.CopyFrom(scheduled.schedule_activity)
    bare.ClearField("heartbeat_timeout")
    bare.ClearField("retry_policy")
    return bare.ByteSize()


def _growth(scheduled: messages.ScheduleActivity) -> int:
    """Return the bytes of a scheduled body that do not count, with the lengths around them."""
    [argument] = scheduled.arguments
    whole, grown = argument.ByteSize(), growth_of(argument)
    return grown + _length_bytes(whole) - _length_bytes(whole - grown)


def growth_of(argument: Payload) -> int:
    """Return the bytes of a body's argument that do not count."""
    data = len(argument.data)
    return _GROWN + _length_bytes(data) - _length_bytes(data - _GROWN)


def _length_bytes(length: int) -> int:
    """Return how many bytes a length has in a message: seven bits in each."""
    return max(1, -(-length.bit_length() // 7))


def _retries(options: ActivityOptions) -> RetryPolicy:
    """Return the server's retry policy for lost workers. A failing body is a result, which the reducer judges."""
    policy = RetryPolicy(backoff_coefficient=1.5, non_retryable_error_types=["PayloadsTooLarge"])
    _set_duration(policy.initial_interval, options.retry_interval)
    _set_duration(policy.maximum_interval, max(10.0, options.retry_interval))
    return policy


# -- search attributes ------------------------------------------------------------------------------------------------


class SearchAttributes:
    """A run's search attributes: since when it is idle and what it waits for.

    No codec encrypts them, so they have no value of a run: only times and names of event types.
    """

    def __init__(self, *, is_new: bool) -> None:
        self._told: tuple[float | None, tuple[str, ...]] | None = (None, ()) if is_new else None
        """The last upsert. None in a continued execution: it begins with unknown values of the execution before."""

    def changed(self, host: HostedRun) -> list[messages.WorkflowCommand]:
        """Return the command that brings them up to date; nothing if they have not changed."""
        if host.core.is_over and not host.is_parked:
            return []
        idle_since = host.core.fields.idle_since
        waiting_for: tuple[str, ...] = ()
        if host.is_parked:
            waiting_for = (PARKED,)
        elif idle_since is not None:
            # Not whether it is paused: the word must change with `idle_since` alone, as recorded histories have it.
            waiting_for = host.head().waiting_for or (STUCK,)
        if self._told == (idle_since, waiting_for):
            return []
        self._told = (idle_since, waiting_for)
        built = messages.WorkflowCommand()
        moment = datetime.fromtimestamp(idle_since, tz=UTC).isoformat() if idle_since is not None else None
        fields = upserted_attributes(built)
        fields[ATTRIBUTE_IDLE_SINCE].CopyFrom(attribute(moment, "Datetime"))
        fields[ATTRIBUTE_WAITING_FOR].CopyFrom(attribute(keywords(waiting_for), "KeywordList"))
        return [built]


def attribute(value: Any, kind: str) -> Payload:
    """Return the value of a search attribute as the server takes it; None removes the attribute."""
    return Payload(metadata={"encoding": b"json/plain", "type": kind.encode()}, data=json.dumps(value).encode())

"""Drives a run by Temporal's activations: every job is a tick, then the run is drained, then what may leave, leaves.

The order of ticks is that of Temporal's core. The time is the activation's. On a replay nothing but the history counts:
no clock, no configuration, and no code but what the run was told. May import loom.core, loom.runtime, temporalio's
messages and the modules beside it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace
from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

from loom.core.records import Failure
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.temporal import names, queries
from loom.temporal.attributes import Attributes
from loom.temporal.closing import carried_over, failing
from loom.temporal.flushing import Flushing
from loom.temporal.foreign import foreign_tick
from loom.temporal.hosted import HostedRun, code_for
from loom.temporal.outgoing import Outgoing, Place
from loom.temporal.payloads import (
    CodeRequest,
    CodeView,
    Effects,
    Letter,
    LockRequest,
    NewCode,
    Opening,
    StepReport,
    payload_of,
    value_of,
)
from loom.temporal.policy import flag_of, recorded_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.api.common.v1 import Payload
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions
    from temporalio.workflow import Info

    from loom.core.config import BrokerConfig
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.registered import Registered
    from loom.temporal.outgoing import ActivityOptions
    from loom.temporal.policy import Policy

_log = logging.getLogger("loom.temporal")


class Surroundings(Protocol):
    """What an execution finds in its worker."""

    options: ActivityOptions
    policies: Sequence[Policy]
    """The table: a new run takes the last row, and every run keeps the row that it began with."""

    def activated(self, run_id: str, ticks: int) -> None:
        """A run has more to show, and has had so many ticks. Called in any thread."""
        ...

    def has_other_code(self, run_id: str, workflow: str) -> None:
        """A run was begun with other code than is at hand. Called in any thread."""
        ...


class Driving:
    """One execution of a run."""

    def __init__(self, info: Info, code: Registered, around: Surroundings) -> None:
        self._info = info
        self._code = code
        self._around = around
        self.out = Outgoing(Place(info.namespace, info.task_queue), around.options, info.headers)
        self._flushing = Flushing(self.out)
        self._attributes = Attributes(is_new=info.continued_run_id is None)
        self.opening: Opening
        self.host: HostedRun | None = None
        """None until the code is known that the run begins with."""
        self._early: list[WorkflowTick] = []
        """What came before that."""
        self._asked_for_code = 0
        self._now = 0.0
        self._row: int | None = None
        self._updates: list[str] = []
        self._takes_up = False
        self._config: BrokerConfig | None = None
        """Other code that was sent, until no body is at work."""
        self._compared = False
        self._jobs: dict[str, Callable[[Any, completions.Success], None]] = {
            "initialize_workflow": self._initialize,
            "signal_workflow": self._signal,
            "do_update": self._update,
            "resolve_activity": self._activity_resolved,
            "fire_timer": self._timer_fired,
            "cancel_workflow": self._cancel,
            "resolve_child_workflow_execution_start": self._child_started,
            "resolve_child_workflow_execution": self._child_resolved,
            "resolve_signal_external_workflow": self._external_resolved,
            "resolve_request_cancel_external_workflow": self._external_resolved,
        }

    # -- one activation -----------------------------------------------------------------------------------------------

    def take(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """Take an activation. Evictions and queries come alone, and change nothing."""
        first = act.jobs[0].WhichOneof("variant") if act.jobs else None
        if first == "remove_from_cache":
            return
        if first == "query_workflow":
            for job in act.jobs:
                self._answer(job.query_workflow, success)
            return
        self._now = act.timestamp.seconds + act.timestamp.nanos / 1_000_000_000
        if self._row is None:
            self._choose_policy(act, success)
        for job in act.jobs:
            variant = job.WhichOneof("variant")
            take = self._jobs.get(variant or "")
            if take is not None:
                take(getattr(job, variant or ""), success)
        if self.host is None:
            self._ask_for_code(success)
        else:
            self._settle(self.host, act, success)
        if not act.is_replaying:
            self._tell(self.host)

    def _choose_policy(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """A new run takes the newest row and records it; any other has the row of its history."""
        policies = self._around.policies
        row = recorded_row(act.available_internal_flags, len(policies))
        if row is None:
            row = 0 if act.is_replaying else len(policies) - 1
        if not act.is_replaying:
            success.used_internal_flags.append(flag_of(row))
        self._row, self._flushing.policy = row, policies[row]

    def _settle(self, host: HostedRun, act: activations.WorkflowActivation, success: completions.Success) -> None:
        host.core.drain()
        if self._takes_up and not self.out.activities:
            self._takes_up = False
            host.resume(self._now, self._config)
            self._config = None
            host.core.drain()
            host.core.drain()  # what a parked run was told before stood in front of the tick that takes it up
        sent = self._flushing.flush(host, act, self._now, self._next_opening)
        if host.card.attributes:
            sent = [*self._attributes.changed(host), *sent]
        if self._updates and (host.is_at_rest or _closes(sent)):
            row = payload_of(host.row())
            answers = [_answered(update, row) for update in self._updates]
            self._updates = []
            sent = [*answers, *sent]
        success.commands.extend(sent)

    def _next_opening(self, host: HostedRun) -> Payload:
        """What another execution would begin with: the state, and the code at hand if it has changed."""
        return carried_over(host, self.opening, self._code.changed_since(host.core.look.config))

    def _tell(self, host: HostedRun | None) -> None:
        """A live activation is heard of: readers of the stream, the log, and whoever looks after the code."""
        if host is None:
            return
        for message in host.warnings:
            _log.warning("Run %s: %s", host.card.run_id, message)
        host.warnings.clear()
        if self._flushing.has_grown:
            self._around.activated(host.card.run_id, self._flushing.ticks)
        if not self._compared:
            self._compared = True
            if self._code.changed_since(host.core.look.config) is not None:
                self._around.has_other_code(host.card.run_id, host.card.workflow)

    def _feed(self, ticks: Sequence[WorkflowTick]) -> None:
        """Let the run have ticks, as of now."""
        now = self._now
        timed = [replace(tick, at=now) for tick in ticks]
        if self.host is None:
            self._early += timed
        else:
            self.host.core.feed(*timed)

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _initialize(self, job: activations.InitializeWorkflow, success: completions.Success) -> None:
        del success
        if len(job.arguments) != 1:
            raise ValueError(
                f"A Loom workflow takes one argument, which loom.connect() makes; {self._info.workflow_type!r} was "
                f"started with {len(job.arguments)}."
            )
        self.opening = value_of(job.arguments[0], Opening)
        if self.opening.config is not None or self.opening.start is None:
            self._begin(self.opening)

    def _begin(self, opening: Opening) -> None:
        code = code_for(opening, self._code)
        self._code = code
        self.host = HostedRun(opening, code, self._now, self._flushing.measure)
        if self._early:
            self.host.core.feed(*self._early)
            self._early = []

    def _ask_for_code(self, success: completions.Success) -> None:
        """Whoever started the run had no code at hand: the code that it begins with is a fact of its history."""
        if self._asked_for_code:
            return
        request = CodeRequest(self.opening.card.workflow, self.opening.start or "")
        built = self.out.activity_message(names.ACTIVITY_CODE, names.ACTIVITY_CODE, request)
        self._asked_for_code = self.out.activity_number(built)
        success.commands.append(built)

    def _code_told(self, result: Any, success: completions.Success) -> None:
        if result.WhichOneof("status") != "completed":
            failed = result.failed.failure
            why = Failure("loom.NoCode", f"It could not begin: {failed.cause.message or failed.message}")
            if self.opening.card.parent is not None:
                child = self.opening.card.parent_ref
                ended = TickChildEnded(at=self._now, child=child, status="failed", failure=why)
                success.commands.append(self.out.letter(self.opening.card.parent, ended))
            success.commands.append(failing(why.message, why.type))
            return
        view = value_of(result.completed.result, CodeView)
        card = replace(self.opening.card, document=view.digest)
        start = view.start or self.opening.start
        self.opening = replace(self.opening, card=card, config=view.config, document=view.text, start=start)
        self._begin(self.opening)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _signal(self, job: activations.SignalWorkflow, success: completions.Success) -> None:
        del success
        name, arguments = job.signal_name, job.input
        if name == names.SIGNAL_MAIL:
            self._post(value_of(arguments[0], Letter))
        elif name == names.SIGNAL_EFFECTS:
            effects = value_of(arguments[0], Effects)
            self._feed(effects.ticks)
            if effects.unlocks and self.host is not None:
                self.host.lock.give_back(effects.unlocks)
        elif name == names.SIGNAL_LOCK:
            seq = value_of(arguments[0], LockRequest).seq
            if self.host is not None and any(sent.seq == seq for sent in self.out.activities.values()):
                self.host.lock.ask(seq)
        elif name == names.SIGNAL_CODE:
            self._learn(value_of(arguments[0], NewCode))
        else:
            self._feed([foreign_tick(name, arguments, self._code, self._now)])

    def _learn(self, code: NewCode) -> None:
        """Other code comes in when no body is at work."""
        if self.host is not None and code.since >= self.host.code_since:
            self.host.code_since = code.since
            self._takes_up, self._config = True, code.config

    def _post(self, letter: Letter) -> None:
        """Something from outside. What continues a paused run takes up one that is parked."""
        if isinstance(letter.tick, TickContinueRun) and self.host is not None and self.host.is_parked:
            self._takes_up, self._config = True, letter.config
        elif not self._is_repeated(letter.tick):
            self._feed([letter.tick])

    def _is_repeated(self, tick: WorkflowTick) -> bool:
        """Whether it is an event that came before the run was here. What comes again now, the reducer knows."""
        host = self.host
        return isinstance(tick, TickAddEvent) and host is not None and tick.event_id in host.event_ids

    def _update(self, job: activations.DoUpdate, success: completions.Success) -> None:
        update = job.protocol_instance_id
        try:
            if job.name != names.UPDATE_TELL:
                raise LookupError(f"A Loom run has no update {job.name!r}; it knows {names.UPDATE_TELL}.")
            letter = value_of(job.input[0], Letter)
        except (LookupError, ValueError) as error:
            success.commands.append(_rejected(update, str(error)))
            return
        accepted = messages.WorkflowCommand()
        accepted.update_response.protocol_instance_id = update
        accepted.update_response.accepted.SetInParent()
        success.commands.append(accepted)
        self._updates.append(update)
        self._post(letter)

    def _activity_resolved(self, job: activations.ResolveActivity, success: completions.Success) -> None:
        if job.seq == self._asked_for_code:
            self._code_told(job.result, success)
            return
        sent = self.out.activities.pop(job.seq)
        if self.host is not None:
            self.host.lock.give_back(sent.seq)
        result = job.result
        if result.WhichOneof("status") == "completed":
            self._feed(value_of(result.completed.result, StepReport).ticks)
            return
        failed = result.failed.failure if result.HasField("failed") else result.cancelled.failure
        kind = failed.application_failure_info.type or "ActivityFailed"
        failure = Failure(f"temporal.{kind}", failed.cause.message or failed.message)
        self._feed([TickStepResult(at=0.0, step=sent.step, item=sent.item, seq=sent.seq, failure=failure)])

    def _timer_fired(self, job: activations.FireTimer, success: completions.Success) -> None:
        del success
        if self._flushing.is_fence(job.seq):
            return
        timer = self.out.fired(job.seq)
        if timer is not None:
            fired = TickTimeout if timer.purpose == "timeout" else TickTimerFired
            self._feed([fired(at=self._now, timer=timer.seq)])

    def _cancel(self, job: activations.CancelWorkflow, success: completions.Success) -> None:
        del success
        self._feed([TickCancelRun(at=self._now, reason=job.reason)])

    def _child_started(self, job: activations.ResolveChildWorkflowExecutionStart, success: completions.Success) -> None:
        del success
        self.out.starting.discard(job.seq)
        if job.WhichOneof("status") == "succeeded":
            return
        child = self.out.children.pop(job.seq)
        message = f"The child run {child.run_id!r} could not be started: there is a run of this id already."
        failure = Failure("loom.RunExists", message)
        self._feed([TickChildEnded(at=self._now, child=child.seq, status="failed", failure=failure)])

    def _child_resolved(self, job: activations.ResolveChildWorkflowExecution, success: completions.Success) -> None:
        """A child is over. It says so itself, unless somebody has ended it without asking it."""
        del success
        child = self.out.children.pop(job.seq)
        if job.result.WhichOneof("status") != "failed":
            return
        cause = job.result.failed.failure.cause
        if cause.HasField("terminated_failure_info") or cause.HasField("timeout_failure_info"):
            failure = Failure("loom.RunTerminated", f"The child run {child.run_id!r} was ended from outside.")
            self._feed([TickChildEnded(at=self._now, child=child.seq, status="failed", failure=failure)])

    def _external_resolved(self, job: Any, success: completions.Success) -> None:
        del success
        self.out.externals.discard(job.seq)

    def _answer(self, job: activations.QueryWorkflow, success: completions.Success) -> None:
        command = success.commands.add()
        command.respond_to_query.query_id = job.query_id
        previous = self._info.continued_run_id or self.opening.previous
        try:
            found = queries.answer(job.query_type, job.arguments, self.host, self.opening, previous)
            command.respond_to_query.succeeded.response.CopyFrom(found)
        except Exception as error:  # noqa: BLE001 - whoever asks is told, and the run is unharmed
            command.respond_to_query.failed.message = str(error)
            command.respond_to_query.failed.application_failure_info.type = type(error).__name__


def _closes(commands: Sequence[messages.WorkflowCommand]) -> bool:
    return bool(commands) and commands[-1].HasField("continue_as_new_workflow_execution")


def _answered(update: str, row: Payload) -> messages.WorkflowCommand:
    built = messages.WorkflowCommand()
    built.update_response.protocol_instance_id = update
    built.update_response.completed.CopyFrom(row)
    return built


def _rejected(update: str, message: str) -> messages.WorkflowCommand:
    built = messages.WorkflowCommand()
    built.update_response.protocol_instance_id = update
    built.update_response.rejected.message = message
    built.update_response.rejected.application_failure_info.type = "loom.Refused"
    return built

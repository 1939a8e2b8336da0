"""Drives a run by Temporal's activations: every job is a tick, then the run is drained, then what may leave, leaves.

The order of ticks is that of Temporal's core. The time is the activation's. How a run begins is in
`loom.temporal.beginning`. May import loom.core, loom.runtime, temporalio's messages and the modules beside it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.records import Failure
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEditStore,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.runtime import lifecycle_log
from loom.runtime.planners import program_in
from loom.temporal import names, queries
from loom.temporal.attributes import Attributes
from loom.temporal.beginning import UNREADABLE, Beginning, cause_of
from loom.temporal.closing import carried_over, ended_from_outside
from loom.temporal.foreign import asked_for
from loom.temporal.payloads import Effects, Letter, LockRequest, NewCode, StepReport, value_of
from loom.temporal.updates import Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.api.common.v1 import Payload
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions
    from temporalio.workflow import Info

    from loom.core.commands import CommandStartChild
    from loom.core.config import BrokerConfig
    from loom.core.state import Outcome
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.figures import RunFact
    from loom.runtime.durable.registered import Registered
    from loom.temporal.beginning import Surroundings
    from loom.temporal.hosted import HostedRun

_log = logging.getLogger("loom.temporal")

_CANCEL = TickCancelRun.__name__.encode()
"""Stands in every letter with a cancel, so that the others need not be read twice."""


class Driving(Beginning):
    """One execution of a run."""

    def __init__(self, info: Info, code: Registered, around: Surroundings) -> None:
        super().__init__(info, code, around)
        self._attributes = Attributes(is_new=info.continued_run_id is None)
        self._updates = Updates()
        self._takes_up = False
        self._config: BrokerConfig | None = None
        """Other code that was sent, until no body is at work."""
        self._keeps_timeout = False
        """That code asks for no timeout: the run keeps its own."""
        self._status: str | None = None
        """How the run stood after the last activation, for those who count runs."""
        self._compared = self._has_named_children = False
        self._told: Outcome | None = None
        """The end, or the parking, that the log was told of."""
        self._stuck: str | None = None
        """The reason, if the run was stuck after the last activation: that is logged once."""
        self._signals: dict[str, tuple[type[Any], Callable[[Any], None]]] = {
            names.SIGNAL_MAIL: (Letter, self._post),
            names.SIGNAL_EFFECTS: (Effects, self._take_effects),
            names.SIGNAL_LOCK: (LockRequest, self._ask_for_lock),
            names.SIGNAL_CODE: (NewCode, self._learn),
        }
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
            "resolve_request_cancel_external_workflow": self._cancel_resolved,
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
            self._compare(was_parked=True)
            self._name_children()
            return
        self._now = act.timestamp.seconds + act.timestamp.nanos / 1_000_000_000
        if self._row is None:
            self._choose_policy(act, success)
        was_parked = self._is_parked
        for job in self._in_order(act.jobs):
            variant = job.WhichOneof("variant")
            take = self._jobs.get(variant or "")
            if take is not None:
                take(getattr(job, variant or ""), success)
        if self.host is not None:
            self._settle(self.host, act, success)
        elif self._no_code is not None:
            self._give_up(self._no_code, success)
        else:
            self._ask_for_code(success)
        if not act.is_replaying:
            self._compare(was_parked=was_parked)
            self._name_children()
        self._tell(self.host, is_replaying=act.is_replaying)

    def _in_order(
        self, jobs: Sequence[activations.WorkflowActivationJob]
    ) -> Sequence[activations.WorkflowActivationJob]:
        """Let a cancel overtake what came before it, which may be an expression that no worker survives."""
        if not self._cancels_first:
            return jobs
        cancels = [job for job in jobs if _asks_to_cancel(job)]
        if not cancels:
            return jobs
        self._is_cancelled = self.host is None
        first = [job for job in jobs if job.HasField("initialize_workflow")]
        return [*first, *cancels, *(job for job in jobs if job not in first and job not in cancels)]

    def _settle(self, host: HostedRun, act: activations.WorkflowActivation, success: completions.Success) -> None:
        host.core.drain()
        if self._takes_up and not self.out.activities:
            self._takes_up = False
            host.resume(self._now, self._config, keeps_timeout=self._keeps_timeout)
            self._config = None
            host.core.drain()
            host.core.drain()  # what a parked run was told before stood in front of the tick that takes it up
        sent = self._flushing.flush(host, act, self._now, self._next_opening)
        if host.card.attributes:
            sent = [*self._attributes.changed(host), *sent]
        success.commands.extend(self._updates.answers(host, sent))
        success.commands.extend(sent)

    def _next_opening(self, host: HostedRun, children: Sequence[CommandStartChild] = ()) -> Payload:
        """What another execution would begin with, with the code that was sent and has not come in."""
        return carried_over(host, self.opening, self._config, keeps_timeout=self._keeps_timeout, children=children)

    def _tell(self, host: HostedRun | None, *, is_replaying: bool) -> None:
        """A live activation is heard of, by readers of the stream and in the log."""
        notes, self._notes = self._notes, []
        if host is not None:
            notes += host.warnings
            host.warnings.clear()
            # A replay learns what the log was told before. No head is made of a run that is at work.
            before, self._stuck = self._stuck, host.head().stuck if host.core.is_idle else None
            if self._stuck is not None and before is None and not is_replaying:
                lifecycle_log.stuck(host.card.run_id, host.card.workflow, self._stuck)
        facts = self._facts(host)
        if is_replaying:
            return
        for fact in facts:
            self._around.counted(self.opening.card.workflow, fact)
        for message in notes:
            _log.warning("Run %s: %s", self.opening.card.run_id, message)
        if host is None:
            return
        if self._flushing.has_grown:
            self._log_life(host)
            self._around.activated(host.card.run_id, self._flushing.ticks)

    def _facts(self, host: HostedRun | None) -> list[RunFact]:
        """Say what has become of the run in this activation. A replay has said it before."""
        if host is None:
            return []
        outcome = host.core.look.outcome
        before, self._status = self._status, outcome.status if outcome is not None else "running"
        facts: list[RunFact] = ["started"] if before is None and self.opening.start is not None else []
        if outcome is not None and before != outcome.status:
            facts.append("failed" if outcome.status == "timed_out" else outcome.status)
        return facts

    def _log_life(self, host: HostedRun) -> None:
        """Tell the life of the run to the log, once: a replay tells nothing."""
        log = lifecycle_log.LifecycleLog(host.card.run_id, host.card.workflow, program_in(host.code.planner))
        for ticks, published in self._flushing.committed:
            if lifecycle_log.has_news(ticks):
                log.committed(ticks, published, host.core.look)
        self._flushing.committed.clear()
        outcome = host.core.look.outcome
        if outcome is not None and outcome is not self._told:
            self._told = outcome
            log.parked(outcome.message) if outcome.status == "parked" else log.ended(outcome)

    @property
    def _is_parked(self) -> bool:
        return self.host is not None and self.host.is_parked

    def _compare(self, *, was_parked: bool) -> None:
        """Say once if the code at hand is other than the run's, or would let a run go on that was found parked.

        A run that is parked here and now is not tried again with the code that it was parked by.
        """
        host = self.host
        if host is None or self._compared:
            return
        if was_parked and (not host.is_parked or host.is_poison):
            return  # it goes on, and is compared the next time
        self._compared = True
        config = host.core.look.config
        if host.could_go_on(self._now, self._code.config) if was_parked else self._code.changed_since(config):
            self._around.has_other_code(host.card.run_id, host.card.workflow, is_parked=was_parked)

    def _name_children(self) -> None:
        """Name once the children that began in an earlier execution: if one is terminated, nobody tells this one."""
        host = self.host
        if self._has_named_children or host is None or self.opening.start is not None or host.core.is_over:
            return
        self._has_named_children = True
        begun_here = {child.seq for child in (*self.out.children.values(), *host.core.queued_children)}
        children = host.core.look.children.items()
        earlier = {number: child.run_id for number, child in children if number not in begun_here}
        if earlier:
            self._around.has_children(host.card.run_id, earlier)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _signal(self, job: activations.SignalWorkflow, success: completions.Success) -> None:
        del success
        self._flushing.signals += 1
        name, arguments = job.signal_name, job.input
        if name not in self._signals:
            self._take_foreign(name, list(arguments))
            return
        expected, take = self._signals[name]
        try:
            value = value_of(arguments[0], expected)
        except UNREADABLE as error:
            self._leave_out(name, error)
        else:
            take(value)

    def _ask_for_lock(self, request: LockRequest) -> None:
        host, seq = self.host, request.seq
        if host is None or not any(sent.seq == seq for sent in self.out.activities.values()):
            return
        if not host.lock.is_outrun(seq, request.attempt):
            host.lock.ask(seq, self._now)

    def _take_effects(self, effects: Effects) -> None:
        """What a body did. An edit by one who has lost its turn does not count: others have written since."""
        ticks, writer = effects.ticks, effects.unlocks
        if writer and self.host is not None:
            lock = self.host.lock
            is_outrun = lock.is_outrun(writer, effects.attempt)
            if is_outrun or lock.holder != writer:
                ticks = tuple(tick for tick in ticks if not isinstance(tick, TickEditStore))
            if not is_outrun:
                lock.give_back(writer, self._now)
        self._feed(ticks)

    def _learn(self, code: NewCode) -> None:
        """Other code comes in when no body is at work."""
        if self.host is not None and code.since >= self.host.code_since:
            # A worker whose clock is ahead shall not keep all that begin later from telling theirs.
            self.host.code_since = min(code.since, self._now)
            self._takes_up, self._config, self._keeps_timeout = True, code.config, code.keeps_timeout

    def _post(self, letter: Letter) -> None:
        """Something from outside. What continues a paused run takes up one that is parked."""
        card = self.opening.card
        if letter.began is not None and letter.began != (card.workflow, card.start):
            return  # it came with the start of another run, which was refused
        if isinstance(letter.tick, TickContinueRun) and self.host is not None and self.host.is_parked:
            self._takes_up = True
            if letter.config is not None:
                self._config, self._keeps_timeout = letter.config, letter.keeps_timeout
        elif not self._is_repeated(letter.tick):
            tick = letter.tick
            if isinstance(tick, TickAddEvent) and self._keeps_letters:
                tick = replace(tick, accepted=True)
            self._feed([tick])

    def _is_repeated(self, tick: WorkflowTick) -> bool:
        """Whether it is an event that came before the run was here. What comes again now, the reducer knows."""
        host = self.host
        return isinstance(tick, TickAddEvent) and host is not None and tick.event_id in host.event_ids

    def _update(self, job: activations.DoUpdate, success: completions.Success) -> None:
        letter = self._updates.take(job, success, self._why_refused)
        if letter is not None:
            self._post(letter)

    def _why_refused(self, letter: Letter) -> str | None:
        """Say why an update is refused: the run keeps many events, and nothing would take this one. None: it is not."""
        host, tick = self.host, letter.tick
        if host is None or not isinstance(tick, TickAddEvent):
            return None
        now, kind = host.core.look, tick.event.kind
        waiting = sum(isinstance(each, TickAddEvent) for each in host.core.pending)
        kept, most = now.waiting.kept_count + waiting, now.config.keep_unclaimed
        if kept < most or any(name == kind.label or kind.is_a(name) for name in asked_for(now, now.config)):
            return None
        return f"The run keeps {kept} events that nothing has asked for yet, and takes {most} at most: {kind.label!r}."

    def _activity_resolved(self, job: activations.ResolveActivity, success: completions.Success) -> None:
        if job.seq == self._asked_for_code:
            self._code_told(job.result, success)
            return
        sent = self.out.activities.pop(job.seq)
        if self.host is not None:
            self.host.lock.forget(sent.seq, self._now)
        result = job.result
        if result.WhichOneof("status") == "completed":
            self._feed(value_of(result.completed.result, StepReport).ticks)
            return
        cause = cause_of(result)
        failure = Failure(f"temporal.{cause.application_failure_info.type or 'ActivityFailed'}", cause.message)
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
        self.out.starting.discard(job.seq)
        if job.WhichOneof("status") == "succeeded":
            success.commands.extend(self.out.cancel_again(self.out.children[job.seq].run_id))
            return
        child = self.out.children.pop(job.seq)
        self.out.unwanted.discard(child.run_id)
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
        if cause.application_failure_info.details.payloads:
            return  # its own words
        failure = ended_from_outside(child.run_id, cause.message)
        self._feed([TickChildEnded(at=self._now, child=child.seq, status="failed", failure=failure)])

    def _external_resolved(self, job: Any, success: completions.Success) -> None:
        del success
        self.out.externals.pop(job.seq, None)

    def _cancel_resolved(
        self, job: activations.ResolveRequestCancelExternalWorkflow, success: completions.Success
    ) -> None:
        """A child was asked to end. If it had not begun by then, it is asked again when it has."""
        run_id = self.out.externals.pop(job.seq, "")
        if not job.HasField("failure"):
            self.out.unwanted.discard(run_id)
        success.commands.extend(self.out.cancel_again(run_id))

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


def _asks_to_cancel(job: activations.WorkflowActivationJob) -> bool:
    """Say whether a job asks the run to stop: Temporal's own cancel, or a letter."""
    variant = job.WhichOneof("variant")
    if variant == "cancel_workflow":
        return True
    if variant == "signal_workflow" and job.signal_workflow.signal_name == names.SIGNAL_MAIL:
        inputs = job.signal_workflow.input
    elif variant == "do_update" and job.do_update.name == names.UPDATE_TELL:
        inputs = job.do_update.input
    else:
        return False
    if not inputs or _CANCEL not in inputs[0].data:
        return False
    try:
        letter = value_of(inputs[0], Letter)
    except UNREADABLE:
        return False
    return isinstance(letter.tick, TickCancelRun) and letter.began is None

"""Drives a run by Temporal's activations: each job becomes a tick, the run is drained, and commands leave.

Ticks come in the order of Temporal's core, and all have the time of the activation. On a replay nothing but the history
counts: no configuration, and no code but what the run was told. So a run that was started without code asks for it with
an activity, whose result is a fact of its history; what comes before that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.records import Failure
from loom.core.state import raised
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
from loom.temporal import names
from loom.temporal.payloads import (
    ActivityReport,
    CodeRequest,
    CodeView,
    Effects,
    LockRequest,
    NewCode,
    RunMessage,
    StartArgument,
    value_of,
)
from loom.temporal.workflow import queries
from loom.temporal.workflow.commands import ExecutionPlace, OutgoingCommands, SearchAttributes
from loom.temporal.workflow.flush import Flusher, carried_over, ended_from_outside, failing
from loom.temporal.workflow.hosted_run import HostedRun
from loom.temporal.workflow.inbox import UNREADABLE, Updates, asks_to_cancel, expected_types, external_tick
from loom.temporal.workflow.policy import RecordedRules, choose_rules
from loom.temporal.workflow.reports import RunReporter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.api.common.v1 import Payload
    from temporalio.workflow import Info

    from loom.core.commands import CommandStartChild
    from loom.core.state import BrokerConfig
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.registration import Registration
    from loom.temporal.bridge import activations, completions
    from loom.temporal.workflow.reports import WorkerContext


class ExecutionDriver:
    """Drives one execution of a run."""

    def __init__(self, info: Info, code: Registration, worker: WorkerContext) -> None:
        self._info = info
        self._code = code
        self._policies = worker.policies
        self._rules: RecordedRules | None = None
        """None until the first activation, which chooses them for good."""
        self.out = OutgoingCommands(ExecutionPlace(info.namespace, info.task_queue), worker.options, info.headers)
        self._flusher = Flusher(self.out)
        self._reporter = RunReporter(worker)
        self._attributes = SearchAttributes(is_new=info.continued_run_id is None)
        self._updates = Updates()
        self.argument: StartArgument
        self.host: HostedRun | None = None
        """None until the code is known that the run begins with."""
        self._now = 0.0
        self._early: list[WorkflowTick] = []
        """Ticks that came before the run began."""
        self._early_signals: list[tuple[str, list[Payload]]] = []
        """Signals of other clients that came before the run began, by name."""
        self._is_cancelled = False
        """Whether the run was cancelled before it began: it begins only to end."""
        self._code_activity = 0
        """The number of the activity that was asked for the code; 0 if none was."""
        self._no_code: Failure | None = None
        """Why the run cannot begin."""
        self._is_to_resume = False
        """Whether the run is to resume as soon as no body is at work."""
        self._config: BrokerConfig | None = None
        """New code for that moment; None if the run keeps its own."""
        self._keeps_timeout = False
        """Whether the new code asks for no timeout: the run keeps its own."""
        self._signals: dict[str, tuple[type[Any], Callable[[Any], None]]] = {
            names.SIGNAL_MAIL: (RunMessage, self._post),
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
        """Take an activation, and put commands into `success`. Evictions and queries come alone, and change nothing."""
        first = act.jobs[0].WhichOneof("variant") if act.jobs else None
        if first == "remove_from_cache":
            return
        if first == "query_workflow":
            for job in act.jobs:
                self._answer(job.query_workflow, success)
            self._compare(was_parked=True)
            return
        self._now = act.timestamp.seconds + act.timestamp.nanos / 1_000_000_000
        if self._rules is None:
            self._rules = choose_rules(act, success, self._policies)
            self._flusher.policy = self._rules.policy
        was_parked = self.host is not None and self.host.is_parked
        for job in self._in_order(act.jobs, self._rules):
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
        self._reporter.report(self.argument, self.host, self._flusher, is_replaying=act.is_replaying)

    def _compare(self, *, was_parked: bool) -> None:
        """Tell the worker what only it can act upon."""
        self._reporter.compare_code(self.host, self._code, self._now, was_parked=was_parked)
        self._reporter.name_children(self.argument, self.host, self.out)

    def _in_order(
        self, jobs: Sequence[activations.WorkflowActivationJob], rules: RecordedRules
    ) -> Sequence[activations.WorkflowActivationJob]:
        """Let a cancel overtake what came before it, which may be an expression that no worker survives."""
        if not rules.cancels_first:
            return jobs
        cancels = [job for job in jobs if asks_to_cancel(job)]
        if not cancels:
            return jobs
        self._is_cancelled = self.host is None
        first = [job for job in jobs if job.HasField("initialize_workflow")]
        return [*first, *cancels, *(job for job in jobs if job not in first and job not in cancels)]

    def _settle(self, host: HostedRun, act: activations.WorkflowActivation, success: completions.Success) -> None:
        host.core.drain()
        if self._is_to_resume and not self.out.activities:
            self._is_to_resume = False
            host.resume(self._now, self._config, keeps_timeout=self._keeps_timeout)
            self._config = None
            host.core.drain()
            host.core.drain()  # ticks that a parked run had got before stood in front of the resume
        sent = self._flusher.flush(host, act, self._now, self._next_argument)
        if host.metadata.attributes:
            sent = [*self._attributes.changed(host), *sent]
        success.commands.extend(self._updates.answers(host, sent))
        success.commands.extend(sent)

    def _next_argument(self, host: HostedRun, children: Sequence[CommandStartChild] = ()) -> Payload:
        """Make the argument of the next execution, with new code that has not come in yet."""
        return carried_over(host, self.argument, self._config, keeps_timeout=self._keeps_timeout, children=children)

    # -- beginning ----------------------------------------------------------------------------------------------------

    def _initialize(self, job: activations.InitializeWorkflow, success: completions.Success) -> None:
        del success
        if len(job.arguments) != 1:
            raise ValueError(
                f"A Loom workflow takes one argument, which loom.connect() makes; {self._info.workflow_type!r} was "
                f"started with {len(job.arguments)}."
            )
        self.argument = value_of(job.arguments[0], StartArgument)
        if self.argument.config is not None or self.argument.start is None:
            self._begin(self.argument)

    def _begin(self, argument: StartArgument) -> None:
        # A flow goes on with the version that it began with.
        self._code = code = self._code.for_run(argument.as_stored())
        self.host = HostedRun(argument, code, self._now, self._flusher.measure, is_cancelled=self._is_cancelled)
        early, self._early = self._early, []
        if self._is_cancelled:
            early = [tick for tick in early if isinstance(tick, TickCancelRun)]
        self._feed(early)
        for name, arguments in self._early_signals:
            self._take_external(name, arguments)
        self._early_signals.clear()

    def _ask_for_code(self, success: completions.Success) -> None:
        """Schedule the activity that gives the code, unless it is under way.

        The start goes along, for the author's class to make an event of it. A run that is only to end needs no event.
        """
        if self._code_activity:
            return
        start = "" if self._is_cancelled else self.argument.start or ""
        request = CodeRequest(self.argument.metadata.workflow, start)
        built = self.out.activity_message(names.ACTIVITY_CODE, names.ACTIVITY_CODE, request)
        self._code_activity = self.out.activity_number(built)
        success.commands.append(built)

    def _code_resolved(self, result: Any, success: completions.Success) -> None:
        metadata = self.argument.metadata
        if result.WhichOneof("status") != "completed":
            self._no_code = Failure("loom.NoCode", f"It could not begin: {_cause_of(result).message}")
            if metadata.parent is not None:
                child = metadata.parent_ref
                ended = TickChildEnded(at=self._now, child=child, status="failed", failure=self._no_code)
                success.commands.append(self.out.inbox_signal(metadata.parent, ended))
            return
        view = value_of(result.completed.result, CodeView)
        metadata = replace(metadata, document=view.digest)
        start = view.start or self.argument.start
        self.argument = replace(self.argument, metadata=metadata, config=view.config, document=view.text, start=start)
        self._begin(self.argument)

    def _give_up(self, why: Failure, success: completions.Success) -> None:
        """Fail a run that cannot begin, once its parent has heard of it."""
        if self.out.is_heard:
            success.commands.append(failing(why.message, why.type))

    def _feed(self, ticks: Sequence[WorkflowTick]) -> None:
        """Give ticks to the run as of now, or keep them until it begins."""
        now = self._now
        timed = [replace(tick, at=now) for tick in ticks]
        if self.host is None:
            self._early += timed
        else:
            self.host.core.feed(*timed)

    # -- signals and updates ------------------------------------------------------------------------------------------

    def _signal(self, job: activations.SignalWorkflow, success: completions.Success) -> None:
        del success
        self._flusher.signals += 1
        name, arguments = job.signal_name, job.input
        if name not in self._signals:
            self._take_external(name, list(arguments))
            return
        expected, take = self._signals[name]
        try:
            value = value_of(arguments[0], expected)
        except UNREADABLE as error:
            self._leave_out(name, error)
        else:
            take(value)

    def _take_external(self, name: str, arguments: list[Payload]) -> None:
        """Take a signal of another client. Its meaning depends on the code, so it waits until the run has begun."""
        if self.host is None:
            self._early_signals.append((name, arguments))
            return
        now = self.host.core.fields
        # What the run begins with may be fed and not reduced yet.
        config = now.config if now.run_id else self.argument.config or now.config
        try:
            tick = external_tick(name, arguments, now, config, self._now)
            if self._rules is not None and self._rules.doubts_signals:
                tick = replace(tick, event=tick.event.as_unchecked())
            self._feed([tick])
        except UNREADABLE as error:
            self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        """Drop a signal with a warning: any client can send any name, and a failed task would hold up the run."""
        self._reporter.notes.append(f"a signal {name!r} cannot be read and is left out: {error}")

    def _ask_for_lock(self, request: LockRequest) -> None:
        host, seq = self.host, request.seq
        if host is None or not any(sent.seq == seq for sent in self.out.activities.values()):
            return
        if not host.lock.is_outrun(seq, request.attempt):
            host.lock.ask(seq, self._now)

    def _take_effects(self, effects: Effects) -> None:
        """Take what a body did. Edits of a body that has lost its turn do not count: others have written since."""
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
        """Keep new code until no body is at work."""
        if self.host is not None and code.since >= self.host.code_since:
            # A worker whose clock is ahead shall not keep all that begin later from telling theirs.
            self.host.code_since = min(code.since, self._now)
            self._is_to_resume, self._config, self._keeps_timeout = True, code.config, code.keeps_timeout

    def _post(self, message: RunMessage) -> None:
        """Take a message. A tick that continues a paused run resumes a parked one."""
        metadata = self.argument.metadata
        if message.began is not None and message.began != (metadata.workflow, metadata.start):
            return  # it came with the start of another run, which was refused
        if isinstance(message.tick, TickContinueRun) and self.host is not None and self.host.is_parked:
            self._is_to_resume = True
            if message.config is not None:
                self._config, self._keeps_timeout = message.config, message.keeps_timeout
            if message.tick.max_depth is not None:
                current = self._config or self.host.core.fields.config
                self._config = raised(current, message.tick.max_depth)
        elif not self._is_repeated(message.tick):
            tick = message.tick
            if isinstance(tick, TickAddEvent) and self._rules is not None and self._rules.keeps_messages:
                tick = replace(tick, accepted=True)
            self._feed([tick])

    def _is_repeated(self, tick: WorkflowTick) -> bool:
        """Say whether an event came before the run was on this cluster. Later repetitions the reducer knows."""
        host = self.host
        return isinstance(tick, TickAddEvent) and host is not None and tick.event_id in host.event_ids

    def _update(self, job: activations.DoUpdate, success: completions.Success) -> None:
        message = self._updates.take(job, success, self._why_refused)
        if message is not None:
            self._post(message)

    def _why_refused(self, message: RunMessage) -> str | None:
        """Say why an update is refused: the run is full of early events, and nothing takes this one. None: accepted."""
        host, tick = self.host, message.tick
        if host is None or not isinstance(tick, TickAddEvent):
            return None
        now, kind = host.core.fields, tick.event.kind
        waiting = sum(isinstance(each, TickAddEvent) for each in host.core.pending)
        kept, most = now.waiting.kept_count + waiting, now.config.keep_unclaimed
        if kept < most or any(name == kind.label or kind.is_a(name) for name in expected_types(now, now.config)):
            return None
        return f"The run keeps {kept} events that nothing has asked for yet, and takes {most} at most: {kind.label!r}."

    def _cancel(self, job: activations.CancelWorkflow, success: completions.Success) -> None:
        del success
        self._feed([TickCancelRun(at=self._now, reason=job.reason)])

    # -- what the run had asked for -----------------------------------------------------------------------------------

    def _activity_resolved(self, job: activations.ResolveActivity, success: completions.Success) -> None:
        if job.seq == self._code_activity:
            self._code_resolved(job.result, success)
            return
        sent = self.out.activities.pop(job.seq)
        if self.host is not None:
            self.host.lock.forget(sent.seq, self._now)
        if job.seq in self.out.stopped:
            self.out.stopped.discard(job.seq)
            return
        result = job.result
        if result.WhichOneof("status") == "completed":
            self._feed(value_of(result.completed.result, ActivityReport).ticks)
            return
        cause = _cause_of(result)
        failure = Failure(f"temporal.{cause.application_failure_info.type or 'ActivityFailed'}", cause.message)
        self._feed([TickStepResult(at=0.0, step=sent.step, item=sent.item, seq=sent.seq, failure=failure)])

    def _timer_fired(self, job: activations.FireTimer, success: completions.Success) -> None:
        del success
        if self._flusher.is_fence(job.seq):
            return
        timer = self.out.fired(job.seq)
        if timer is not None:
            fired = TickTimeout if timer.purpose == "timeout" else TickTimerFired
            self._feed([fired(at=self._now, timer=timer.seq)])

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
        """Forget a closed child. It has told its end itself, unless it was ended from outside."""
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
        """Note that a child was asked to end. A child that had not begun by then is asked again when it has."""
        run_id = self.out.externals.pop(job.seq, "")
        if not job.HasField("failure"):
            self.out.unwanted.discard(run_id)
        success.commands.extend(self.out.cancel_again(run_id))

    def _answer(self, job: activations.QueryWorkflow, success: completions.Success) -> None:
        command = success.commands.add()
        command.respond_to_query.query_id = job.query_id
        previous = self._info.continued_run_id or self.argument.previous
        try:
            found = queries.answer(job.query_type, job.arguments, self.host, self.argument, previous)
            command.respond_to_query.succeeded.response.CopyFrom(found)
        except Exception as error:  # noqa: BLE001 - the caller is told, and the run is unharmed
            command.respond_to_query.failed.message = str(error)
            command.respond_to_query.failed.application_failure_info.type = type(error).__name__


def _cause_of(result: Any) -> Any:
    """Return why an activity has failed or was cancelled: Temporal wraps what its worker has said."""
    failure = result.failed.failure if result.HasField("failed") else result.cancelled.failure
    return failure.cause if failure.HasField("cause") else failure

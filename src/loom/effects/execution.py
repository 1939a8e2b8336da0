"""One execution of a step: its body, the effects that the body has on the run, and its result.

Everything the body does reaches the run as a tick, in order and before the result.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec.structs import replace

from loom.core.body_effects import CHILD, SLEEP, WAIT, child_key, sleep_key, wait_key
from loom.core.commands import CommandResumeWorker
from loom.core.persistent import EMPTY_MAP
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickEndWait,
    TickParkRun,
    TickPublishEvent,
    TickRefuseEvent,
    TickSleep,
    TickStartChild,
    TickStepResult,
    WorkflowTick,
)
from loom.effects import spans
from loom.effects.context_calls import (
    Collector,
    EventName,
    Recorder,
    asks,
    check_nesting,
    event_class,
    event_object,
    result_of_child,
    seconds,
)
from loom.effects.event_codec import LIVE_CODEC, MissingTypeError, UnfitEventError, exception_of, failure_of
from loom.effects.exceptions import MAX_BYTES, is_from_outside, traceback_text
from loom.steps.events import Event
from loom.steps.ports import WAIT_TIMEOUT, BodyMark, current_body
from loom.steps.registry import wire_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from loom.core.commands import CommandRunWorker
    from loom.core.persistent import Map
    from loom.core.records import EventRecord
    from loom.core.state import Answer
    from loom.effects.body_task import BodyTask
    from loom.effects.ports import Binding, Host
    from loom.steps.events import StartEvent
    from loom.steps.ports import RunPort
    from loom.steps.retry import RetryInfo
    from loom.steps.workflow import Workflow

_numbering = threading.RLock()
"""Bodies may have effects from several threads at once; each effect has a number of its own, and stream writes reach
the run in the order of theirs."""

_log = logging.getLogger("loom.durable")
_told_of_default: set[tuple[str, str]] = set()
"""Workflow and step whose wait by default was logged in this process."""
_KINDS: dict[type[Any], str] = {TickAwaitEvent: WAIT, TickSleep: SLEEP, TickStartChild: CHILD}
"""How the keys of waits begin, by the tick that begins the wait."""


class StepExecution:
    """A body that runs, and its way to the run."""

    # Most bodies need little of this: what is not needed is not made.
    task: asyncio.Task[None] | None = None
    body_task: BodyTask | None = None
    """Runs the body in `task`; None if that is a task of another kind."""
    is_over = False
    at_work_since = 0.0
    """When the body began, moved by the time in which it waited."""
    abandoned = False
    """The run is over or has left memory: what the body still does is nobody's business."""
    later_traceback_bytes = MAX_BYTES
    """What the traceback of an attempt after the first may have."""
    _effects = 0
    answers: Map[str, Answer] = EMPTY_MAP
    """Committed answers to waits of its work item, by the keys of the waits, where its body runs again."""
    _answered: frozenset[str] = frozenset()
    """Waits that went on with a committed answer, and whose answer by the run is still to come."""
    writes = 0
    """How many stream writes the body has made; they are numbered apart from its other effects. -1 if they are not,
    since an earlier version began the execution."""
    _collector: Collector | None = None
    _recorder: Recorder | None = None
    _occurrences: dict[str, int] | None = None
    _waits: dict[str, asyncio.Future[CommandResumeWorker]] | None = None

    def __init__(self, host: Host, binding: Binding, command: CommandRunWorker) -> None:
        self.host = host
        self.binding = binding
        self.command = command
        if command.item.effects and command.item.has_writes_among_effects:
            self.writes = -1

    @property
    def run(self) -> RunPort:
        """The run, as contexts see it."""
        host: Any = self.host
        return host  # type: ignore[no-any-return]

    @property
    def is_waiting(self) -> bool:
        """Say whether the body waits for an answer of its run."""
        return bool(self._waits)

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt at the same work."""
        return f"{self.host.run_id}:{self.command.step}:{self.command.item.id}"

    async def work(self) -> None:
        """Run the body to its end and tell the run about it."""
        binding, command, host = self.binding, self.command, self.host
        current_body.set(BodyMark(self, host.run_id, host.workflow_name, command.step))
        self.at_work_since = host.now()
        if self.task is None:
            self.task = asyncio.current_task()  # it was started eagerly, before its maker could say so
        try:
            arguments = binding.arguments(command.item)
            if binding.context_name is not None:
                arguments[binding.context_name] = host.make_context(self)
            if spans.PACKAGE in sys.modules and spans.are_wanted():
                result = await spans.around_step(host.definition.instance, binding, arguments)
            else:
                result = await binding.call(arguments)
            returned, fanned_out = binding.classify(result)
            self._make_room(*returned)
            tick = TickStepResult(
                at=host.now(),
                step=command.step,
                item=command.item.id,
                seq=command.seq,
                returned=returned,
                fanned_out=fanned_out,
                collects=self._collector.calls() if self._collector is not None else (),
                writes=self.fewer_writes if command.item.writes is not None else -1,
                asks=asks(*returned),
            )
        except (MissingTypeError, UnfitEventError) as error:
            self.is_over = True
            if isinstance(error, UnfitEventError) and self._may_refuse(error):
                host.executed(self, self._refusal(error))
            else:
                # This process cannot do the work, another one may: it is no failure of the step, and has no result.
                host.report(self._parking(error))
            return
        except BaseException as error:  # noqa: BLE001 - raised again if it is none of the body's
            tick = self._ended_by(error)
        self.is_over = True
        try:
            host.executed(self, tick)
        except Exception:
            _log.exception("Run %s: the end of step '%s' could not be told.", host.run_id, command.step)
            raise
        # The task holds its context, which holds this. Without the way back no ended body waits for the collector.
        self.task = self.body_task = None

    def _ended_by(self, error: BaseException) -> TickStepResult:
        """Tell what an exception of the body makes of its execution, or raise it if it is none of the body's.

        Any failure of a body is data for the reducer: a cancellation from within too, and the wish to exit. An
        exception may run code of its author's whenever it is looked at; what that raises is a failure as well, or else
        the run would wait for ever for an execution that is gone.
        """
        try:
            if self.is_interrupted_by(error):
                raise error
            return self._failed(error)
        except BaseException as broken:
            if broken is error or is_from_outside(broken, self.task):
                raise
            return self._failed(RuntimeError("The step raised an exception that cannot be looked at."), asks=False)

    def is_interrupted_by(self, error: BaseException) -> bool:
        """Say whether an exception that passed through the body is none of its own: the run or the process ends."""
        kind = type(error)
        if issubclass(kind, asyncio.CancelledError):
            return self.abandoned or self.host.loop_ends
        return not issubclass(kind, Exception) and is_from_outside(error, self.task)

    def _may_refuse(self, error: UnfitEventError) -> bool:
        """Say whether the event that does not fit is what the step was to work on, and nobody had checked it."""
        item = self.command.item
        inputs = (item.event, *(record for _, record in getattr(item.extra, "bound", ())))
        return error.record.checked is False and any(record is error.record for record in inputs)

    def _refusal(self, error: UnfitEventError, key: str = "", suspends: bool = True) -> TickRefuseEvent:
        command = self.command
        return TickRefuseEvent(
            at=self.host.now(),
            step=command.step,
            item=command.item.id,
            seq=command.seq,
            event_type=error.event_type,
            reason=error.reason,
            key=key,
            fingerprint=error.record.fingerprint(),
            parameters=error.parameters,
            suspends=suspends,
            writes=self.fewer_writes if suspends else -1,
        )

    def _parking(self, error: MissingTypeError | UnfitEventError) -> TickParkRun:
        return TickParkRun(at=self.host.now(), reason=f"Step '{self.command.step}': {error}")

    def _failed(self, error: BaseException, *, asks: bool = True) -> TickStepResult:
        """The failure as a tick, with the policy's verdict in it, unless the policy is not asked."""
        from loom.steps.retry import ask_policy, attempt_limit, policy_seed  # first runs seldom fail

        command, now = self.command, self.host.now()
        delay: float | None = None
        policy = self.binding.retry_policy
        if policy is not None and asks:
            item = command.item
            first = item.first_at if item.first_at is not None else command.started_at
            failures = item.attempts + 1
            asked = error if isinstance(error, Exception) else exception_of(failure_of(error))
            seed = policy_seed(self.host.run_id, command.step, failures)
            try:
                delay = ask_policy(policy, elapsed_time=now - first, attempts=failures, error=asked, seed=seed)
            except BaseException as verdict_error:
                # A broken policy ends the retries with its own error.
                if is_from_outside(verdict_error, self.task):
                    raise
                verdict_error.__cause__ = error
                error = verdict_error
        return TickStepResult(
            at=now,
            step=command.step,
            item=command.item.id,
            seq=command.seq,
            failure=replace(self.host.codec.failure(error), traceback=self.traceback_of(error, command.item.attempts)),
            retry_delay_s=delay,
            collects=self._collector.calls() if self._collector is not None else (),
            max_attempts=attempt_limit(policy),
            attempt=command.item.attempts + 1,
            writes=self.fewer_writes,
        )

    def traceback_of(self, error: BaseException, earlier: int, *, hide_messages: bool = False) -> str:
        """Write where an attempt failed; `earlier` is the number of failed attempts before it."""
        limit = self.later_traceback_bytes if earlier else MAX_BYTES
        return traceback_text(error, limit, hide_messages=hide_messages)

    def next_source(self) -> Source | None:
        """The mark of the body's next effect; None if the execution is over and effects have no owner any more."""
        if self.is_over:
            return None
        command = self.command
        with _numbering:
            ordinal = self._effects
            self._effects = ordinal + 1
        return Source(command.step, command.item.id, command.seq, ordinal)

    @property
    def fewer_writes(self) -> int:
        """Count the stream writes of the body, if an interrupted run of its execution had made more; else -1."""
        earlier = self.command.item.writes
        return self.writes if earlier is not None and self.writes < earlier.count else -1

    def is_repeated(self, source: Source | None) -> bool:
        """Say whether an interrupted run of the same execution has had this effect already."""
        return source is not None and source.ordinal in self.command.item.effects

    @property
    def repeats(self) -> bool:
        """Whether an interrupted run of the same execution had come further than this one has by now."""
        return self._effects in self.command.item.effects

    def send(self, event: Event, step: str | None, waiter_id: str | None) -> None:
        """Send an event into the run."""
        self.host.check_target(event, step)
        record = self.host.codec.record(event)
        self._make_room(record)
        self.host.report(
            TickAddEvent(
                at=self.host.now(),
                event=record,
                step=step,
                waiter_id=self.host.codec.text(waiter_id) if waiter_id is not None else None,
                source=self.next_source(),
                writes=self.writes,
            )
        )

    def publish(self, event: Event) -> None:
        """Put an event on the stream."""
        event_object("write_event_to_stream", event)
        record = self.host.codec.record(event)
        self._make_room(record)
        with _numbering:
            number = self.writes
            source = self._next_write() if number >= 0 else self.next_source()
            self.host.report(
                TickPublishEvent(at=self.host.now(), event=record, source=source, asks=asks(record), writes=number)
            )

    def _make_room(self, *records: EventRecord) -> None:
        """Wait or fail before the effect has a number, so that an effect with a number always reaches the run."""
        for record in records:
            if type(record.body) is str:
                self.host.make_room(len(record.body))

    def _next_write(self) -> Source | None:
        """The mark of a stream write with a number apart."""
        if self.is_over:
            return None
        self.writes += 1
        command = self.command
        return Source(command.step, command.item.id, command.seq, self._effects)

    def collect(self, event: Event, expected: Sequence[type[Event]], buffer_id: str) -> list[Event] | None:
        """Put an event aside until all expected ones are there."""
        if self._collector is None:
            self._collector = Collector(self.command, self.host.codec)
        return self._collector.collect(event, expected, buffer_id, self._effects, self.writes)

    def wait(
        self,
        event_type: type[Event] | EventName,
        waiter_event: Event | None,
        waiter_id: str | None,
        requirements: dict[str, Any],
        timeout_s: float | None,
        *,
        again: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        """Wait for an event, of a class or by its name. The body is suspended; while this process holds it, it is not
        run again. `again`: the waiter event is on the stream since an earlier wait.
        """

        def begin() -> tuple[TickAwaitEvent, str]:
            by_name = isinstance(event_type, EventName)
            cls = Event if by_name else event_class("wait_for_event", event_type)
            name = str(event_type) if by_name else wire_name(cls)
            limit = seconds("wait_for_event(timeout=...)", timeout_s) if timeout_s is not None else None
            codec = self.host.codec
            awaited = codec.text(waiter_id or self._default_waiter_id(name, requirements))
            wanted = [
                (codec.text(str(field)), codec.requirement(cls, field, value)) for field, value in requirements.items()
            ]
            asked = codec.record(waiter_event) if waiter_event is not None else None
            occurrence = self._occurrence(awaited)
            source = self._live_source("wait_for_event")
            if timeout_s is WAIT_TIMEOUT:
                self._tell_of_default(name)
            tick = TickAwaitEvent(
                at=self.host.now(),
                source=source,
                waiter_id=awaited,
                occurrence=occurrence,
                event_type=name,
                requirements=tuple(wanted),
                timeout_s=limit,
                waiter_event=asked,
                asks="" if asked is None else "again" if again else "anew",
                suspends=self._owns_current_task(),
                writes=self.writes,
            )
            return tick, self._recorded_key(source, wait_key(awaited, occurrence))

        return self._suspended(begin)

    def _tell_of_default(self, event_type: str) -> None:
        """Log once per step that a stored run waits with a timeout that nobody asked for."""
        step, workflow = self.command.step, self.host.workflow_name
        if self.host.codec is LIVE_CODEC or (workflow, step) in _told_of_default:
            return
        _told_of_default.add((workflow, step))
        _log.warning(
            "Step %r of %s waits for %s with the default timeout of %s s, after which it gets a TimeoutError. "
            "Pass timeout=None to wait for as long as it takes, or the seconds that you want.",
            step,
            workflow,
            event_type.rpartition(".")[2],
            f"{WAIT_TIMEOUT:,.0f}",
            extra={"run_id": self.host.run_id, "workflow": workflow, "step": step},
        )

    def sleep(self, duration: float) -> Coroutine[Any, Any, Any]:
        """Wait for time to pass, as a timer of the run."""

        def begin() -> tuple[TickSleep, str]:
            delay = seconds("sleep()", duration)
            occurrence = self._occurrence("sleep")
            source = self._live_source("sleep")
            tick = TickSleep(
                at=self.host.now(),
                source=source,
                occurrence=occurrence,
                delay_s=delay,
                suspends=self._owns_current_task(),
                writes=self.writes,
            )
            return tick, self._recorded_key(source, sleep_key(occurrence))

        return self._suspended(begin)

    async def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Work a result out and record it with the work item, or take the one that is recorded."""
        source = self._live_source("once")
        if self._recorder is None:
            self._recorder = Recorder(self)
        return await self._recorder.result(source, self.host.codec.text(name), make)

    async def child(self, workflow: Workflow | str, inputs: dict[str, Any], start_event: StartEvent | None) -> Any:
        """Run another workflow as a child of the run and wait for its result."""
        check_nesting(self.host.run_id)
        name, start = self.host.start_of(workflow, inputs, start_event)
        occurrence = self._occurrence(CHILD)
        source = self._live_source("run_child")
        # A child that an interrupted run of this execution had begun is there already.
        if source.ordinal not in self.command.item.effects and (admission := self.host.admission()) is not None:
            await admission
        tick = TickStartChild(
            at=self.host.now(),
            source=source,
            occurrence=occurrence,
            workflow=name,
            start=start,
            suspends=self._owns_current_task(),
            writes=self.writes,
        )
        answer = await self.answer_to(tick, self._recorded_key(source, child_key(occurrence)))
        try:
            return result_of_child(answer, self.host.codec)
        except (MissingTypeError, UnfitEventError) as error:
            return await self._leave_to_others(error)

    def _default_waiter_id(self, event_type: str, requirements: dict[str, Any]) -> str:
        wanted = json.dumps(requirements, sort_keys=True, separators=(",", ":"), default=repr)
        return f"waiter_{event_type}_{wanted}_work_item_{self.command.item.id}"

    def _occurrence(self, waiter_id: str) -> int:
        """Number the waits with this id in this execution, from 0."""
        if self._occurrences is None:
            self._occurrences = {}
        number = self._occurrences.get(waiter_id, 0)
        self._occurrences[waiter_id] = number + 1
        return number

    def _live_source(self, what: str) -> Source:
        source = self.next_source()
        if source is None:
            raise RuntimeError(f"{what}() was called after the step '{self.command.step}' had ended.")
        return source

    def _recorded_key(self, source: Source, key: str) -> str:
        """The key under which an interrupted run of this execution had waited here, else the given one."""
        earlier: str | None = self.command.item.effects.get(source.ordinal)
        return earlier if earlier is not None else key

    def _owns_current_task(self) -> bool:
        return asyncio.current_task() is self.task

    async def _suspended(self, begin: Callable[[], tuple[TickAwaitEvent | TickSleep, str]]) -> Any:
        """Tell the run about a wait and wait for its answer: the event, or nothing after a sleep.

        The wait begins here and not where it was asked for: only now is it known which task waits. A waiting run is one
        that many of are kept, so it holds on to as little as possible.
        """
        tick, key = begin()
        del begin
        awaited = tick.event_type.rpartition(".")[2] if isinstance(tick, TickAwaitEvent) else "sleep"
        suspends = tick.suspends
        waiting = self.answer_to(tick, key)
        del tick
        while True:
            answer = await waiting
            if answer.timed_out:
                raise TimeoutError(f"Timed out waiting for {awaited}")
            if answer.event is None:
                return None
            try:
                return self.host.codec.event(answer.event)
            except UnfitEventError as error:
                if error.record.checked is not False:
                    waiting = self._leave_to_others(error)
                else:
                    waiting = self.answer_to(self._refusal(error, key, suspends), key)
            except MissingTypeError as error:
                waiting = self._leave_to_others(error)

    async def _leave_to_others(self, error: MissingTypeError | UnfitEventError) -> NoReturn:
        """Park the run and let the body end here. It must not learn of it: what concerns only the code of this process
        is no failure that a body could handle.
        """
        self.host.report(self._parking(error))
        await asyncio.get_running_loop().create_future()
        raise AssertionError("Nobody answers a parked body.")

    async def answer_to(self, tick: WorkflowTick, key: str) -> CommandResumeWorker:
        """Tell the run what the body waits for, and wait until it is there and committed."""
        if self.answers and (known := self._known_answer(tick, key)) is not None:
            # The journal has it as before. The body goes on while that is written, and needs no second answer.
            self._answered |= {key}
            self.host.report(tick)
            await asyncio.sleep(0)
            return known
        if self._waits is None:
            self._waits = {}
        future: asyncio.Future[CommandResumeWorker] = asyncio.get_running_loop().create_future()
        self._waits[key] = future
        self.host.report(tick)
        waits_since = tick.at if getattr(tick, "suspends", False) else None
        del tick
        try:
            return await future
        except asyncio.CancelledError:
            if not self.abandoned and not self.is_over:
                command = self.command
                self.host.report(
                    TickEndWait(at=self.host.now(), step=command.step, item=command.item.id, seq=command.seq, key=key)
                )
            raise
        finally:
            if waits_since is not None:
                self.at_work_since += self.host.now() - waits_since
            if self._waits.get(key) is future:
                del self._waits[key]

    def _known_answer(self, tick: WorkflowTick, key: str) -> CommandResumeWorker | None:
        """Return the answer that an interrupted run of this execution was given to the same wait; None if it had none.

        It is committed, and the run would only say it again. The run is asked where the body has taken another way: it
        waits for something else now, or has written less to the stream.
        """
        kind, command = _KINDS.get(type(tick)), self.command
        if kind is None or self.fewer_writes >= 0:
            return None
        assert isinstance(tick, TickAwaitEvent | TickSleep | TickStartChild)
        answer = self.answers.get(key)
        if answer is None or command.item.effects.get(tick.source.ordinal) != key or not key.startswith(kind):
            return None
        return CommandResumeWorker(
            command.seq, command.step, key, answer.event, answer.timed_out, None, answer.value, answer.child
        )

    def answer(self, command: CommandResumeWorker) -> None:
        """Let a wait go on."""
        if command.key in self._answered:
            self._answered -= {command.key}
            return
        future = self._waits.get(command.key) if self._waits is not None else None
        if future is not None and not future.done():
            future.set_result(command)

    def retry_info(self) -> RetryInfo:
        """Describe the earlier attempts, for retry policies."""
        from loom.steps.retry import RetryInfo

        item = self.command.item
        first = item.first_at if item.first_at is not None else self.command.started_at
        failed_at = item.last_failed_at
        return RetryInfo(
            retry_number=item.attempts,
            elapsed_seconds=max(0.0, self.host.now() - first) if item.attempts else 0.0,
            last_exception=exception_of(item.last_failure) if item.last_failure is not None else None,
            last_failed_at=datetime.fromtimestamp(failed_at, tz=UTC) if failed_at is not None else None,
        )

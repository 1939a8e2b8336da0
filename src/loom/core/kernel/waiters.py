"""Waits for events, for time and for child runs: which are open, how they are answered, which early events are kept.

A wait belongs to its work item, not to a process: its key is the waiter id with the number of the call. So a body that
runs again finds its waiter, or the answer that came in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.body_effects import (
    ANY,
    CHILD,
    ONCE,
    SLEEP,
    WAIT,
    addressed,
    child_key,
    once_key,
    sleep_key,
    wait_key,
)
from loom.core.kernel import depth, executions, lifecycle, workers
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo
from loom.core.records import INPUT_REQUIRED_EVENT, STOP_EVENT, Refusal, RefusedReport
from loom.core.state import QUESTION, Answer, StepWorkerWaiter, Timer, specs_of
from loom.core.waiter_index import WORTHWHILE, carry_on, index_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.persistent import Map
    from loom.core.records import EventRecord
    from loom.core.reducer import Draft
    from loom.core.state import Execution
    from loom.core.ticks import (
        TickAwaitEvent,
        TickLeaveStep,
        TickRecordResult,
        TickRefuseEvent,
        TickSleep,
        TickStartChild,
    )


def begin_wait(d: Draft, tick: TickAwaitEvent) -> None:
    """Begin a wait for an event: answer it from the record or from the early events, else register a waiter."""
    begun = executions.begin(d, tick, WAIT, wait_key(tick.waiter_id, tick.occurrence))
    if begun is None:
        return
    execution, key = begun
    item = execution.item
    if not workers.is_open(d, item.id, key):
        waiter = _waiter(d, tick, item.step, item.id, key)
        early = _take_kept(d, waiter)
        if early is not None:
            _answer_early(d, execution, waiter, early)
            return
        number = _register(d, waiter)
        if tick.waiter_event is not None:
            if tick.asks:
                d.waiting = replace(d.waiting, asked=d.waiting.asked.set(number, tick.waiter_event))
            if tick.asks != "again":
                d.publish(tick.waiter_event)
    if tick.suspends and not execution.waits_on:
        workers.suspend(d, execution, key)


def begin_sleep(d: Draft, tick: TickSleep) -> None:
    """Begin a sleep of a body: a timer of the run ends it."""
    begun = executions.begin(d, tick, SLEEP, sleep_key(tick.occurrence))
    if begun is None:
        return
    execution, key = begun
    item = execution.item
    if not workers.is_open(d, item.id, key):
        due = d.at + max(tick.delay_s, 0.0)
        number = d.arm(Timer(due, "sleep", item.step, item.id, key))
        workers.open_wait(d, item.id, key, number)
    if tick.suspends and not execution.waits_on:
        workers.suspend(d, execution, key)


def begin_child(d: Draft, tick: TickStartChild) -> None:
    """Begin a wait for a child run. A body that runs again finds the child that it had started."""
    begun = executions.begin(d, tick, CHILD, child_key(tick.occurrence))
    if begun is None:
        return
    execution, key = begun
    if not workers.is_open(d, execution.item.id, key):
        lifecycle.start_child(d, tick, execution.item, key)
    if tick.suspends and not execution.waits_on:
        workers.suspend(d, execution, key)


def record_result(d: Draft, tick: TickRecordResult) -> None:
    """Record a result with its work item and give it to the body. The first result under a name counts."""
    key = once_key(tick.name)
    begun = executions.begin(d, tick, "", key)
    if begun is None:
        return
    answer = Answer(value=tick.value)
    workers.set_answer(d, tick.source.item, key, answer)
    workers.reply(d, begun[0], key, answer)


def _waiter(d: Draft, tick: TickAwaitEvent, step: str, item: int, key: str) -> StepWorkerWaiter:
    """Make a waiter that begins now; its number is still 0."""
    deadline = d.at + max(tick.timeout_s, 0.0) if tick.timeout_s is not None else None
    return StepWorkerWaiter(
        0, step, item, key, tick.waiter_id, tick.event_type, tick.requirements, since=d.at, deadline=deadline
    )


def _register(d: Draft, waiter: StepWorkerWaiter) -> int:
    """List a waiter under a number of its own, which is returned, and set its timer."""
    number, step = d.next_seq(), waiter.step
    timer = None
    if waiter.deadline is not None:
        timer = d.arm(Timer(waiter.deadline, "waiter", step, number))
    waiter = replace(waiter, number=number, timer=timer)
    worker = d.worker(step)
    d.workers = d.workers.set(step, replace(worker, collected_waiters=worker.collected_waiters.set(number, waiter)))
    index = d.waiting.index
    before = index.get(waiter.event_type, EMPTY_MAP)
    of_type = before.set(number, step)
    carry_on(before, of_type, waiter)
    d.waiting = replace(d.waiting, index=index.set(waiter.event_type, of_type))
    workers.open_wait(d, waiter.item, waiter.key, number)
    return number


def _answer_early(d: Draft, execution: Execution, waiter: StepWorkerWaiter, early: EventRecord) -> None:
    """Answer a wait with an event that came before it."""
    depth.answered(d, waiter.step, waiter.item, early)
    _doubt(d, waiter, early)
    workers.set_answer(d, waiter.item, waiter.key, Answer(early))
    workers.reply(d, execution, waiter.key, Answer(early))


def _doubt(d: Draft, waiter: StepWorkerWaiter, event: EventRecord) -> None:
    """Remember a waiter whose answer was not checked, in case the answer does not fit its class."""
    if event.checked is not False:
        return
    doubted = d.waiting.doubted
    of_item = doubted.get(waiter.item, EMPTY_MAP).set(waiter.key, replace(waiter, timer=None))
    d.waiting = replace(d.waiting, doubted=doubted.set(waiter.item, of_item))


def refuse(d: Draft, execution: Execution, tick: TickRefuseEvent) -> None:
    """Take back an answer that a body cannot read: it waits on, with its old deadline, as if nothing had come."""
    item, key = execution.item, tick.key
    answer = workers.answer_of(d, item.id, key)
    event = answer.event if answer is not None else None
    if event is None or event.fingerprint() != tick.fingerprint:
        d.dropped += 1
        return
    waiter = d.waiting.doubted.get(item.id, EMPTY_MAP).get(key)
    if waiter is None:
        # No record says what to wait for. The run is parked until code comes that can read the event.
        lifecycle.park(d, f"Step '{item.step}': {tick.event_type} does not fit its class: {tick.reason}.")
        return
    workers.forget_answer(d, item.id, key)
    refused = refusal(d, tick, waiter.waiter_id)
    early = _take_kept(d, waiter)
    if early is not None:
        _answer_early(d, execution, waiter, early)
        return
    question = d.waiting.asked.get(waiter.number) if waiter.number else None
    number = _register(d, replace(waiter, refused=refused))
    if question is not None:
        _forget_asked(d, waiter.number)
        d.waiting = replace(d.waiting, asked=d.waiting.asked.set(number, question))
    if tick.suspends and not execution.waits_on:
        workers.suspend(d, executions.written(d, execution, tick.writes), key)


def refusal(d: Draft, tick: TickRefuseEvent, waiter_id: str | None = None) -> Refusal:
    """Tell the stream and the log of a refused event. Returns what the state keeps of it."""
    d.publish(RefusedReport(tick.event_type, tick.step, tick.reason, waiter_id))
    d.warn(f"Step '{tick.step}' was sent {tick.event_type}, which does not fit its class: {tick.reason}.")
    return Refusal(tick.event_type, tick.reason, d.at)


def ask(d: Draft, *events: EventRecord) -> None:
    """Keep the last of these events that asks for input, for people who look at what the run waits for."""
    for event in reversed(events):
        if event.kind.is_a(INPUT_REQUIRED_EVENT):
            d.waiting = replace(d.waiting, asked=d.waiting.asked.set(QUESTION, event))
            return


def forget_question(d: Draft) -> None:
    """Drop the question of a step: a step has taken an event from outside."""
    _forget_asked(d, QUESTION)


def _forget_asked(d: Draft, number: int) -> None:
    """Drop the event that asked for the answer to a wait."""
    waiting = d.waiting
    if number in waiting.asked:
        d.waiting = replace(waiting, asked=waiting.asked.delete(number))


def resolve(d: Draft, event: EventRecord, waiter_id: str | None) -> frozenset[str]:
    """Answer every pending waiter that matches an event, oldest first. Returns the steps they belong to."""
    woken = [w for w in _candidates(d, event, waiter_id) if _matches(d, w, event, waiter_id)]
    answer = Answer(event.for_many() if len(woken) > 1 else event)
    for waiter in woken:
        _close(d, waiter)
        if event.checked is False:
            _doubt(d, waiter, event)  # its question stays: the waiter may be back
        else:
            _forget_asked(d, waiter.number)
        workers.set_answer(d, waiter.item, waiter.key, answer)
        workers.wake(d, waiter.step, waiter.item, waiter.key, answer)
    return frozenset(waiter.step for waiter in woken)


def _candidates(d: Draft, event: EventRecord, waiter_id: str | None) -> list[StepWorkerWaiter]:
    """List the pending waiters that may match, oldest first: by the type's wire name, short name, and bases.

    Bases count only where the step of the waiter takes subclasses.
    """
    index, kind = d.waiting.index, event.kind
    found: dict[int, str] = {}
    for name in (kind.name, kind.label):
        if name in index:
            found.update(_narrowed(d, index[name], event, waiter_id))
    specs = specs_of(d.config)
    for base in kind.bases:
        if base in index:
            for number, step in _narrowed(d, index[base], event, waiter_id):
                if step in specs and specs[step].accept_subclasses:
                    found[number] = step
    return [d.workers[found[number]].collected_waiters[number] for number in sorted(found)]


def _narrowed(d: Draft, of_type: Map[int, str], event: EventRecord, waiter_id: str | None) -> Iterable[tuple[int, str]]:
    """List the waiters of a type that may match an event: all of a few, of many only what the index finds."""
    if len(of_type) < WORTHWHILE:
        return of_type.items()
    known = index_of(of_type, lambda number, step: d.workers[step].collected_waiters[number])
    return known.candidates(waiter_id, lambda name: d.read_field(event, name))


def _matches(d: Draft, waiter: StepWorkerWaiter, event: EventRecord, waiter_id: str | None) -> bool:
    if waiter_id is not None and waiter.waiter_id != waiter_id:
        return False
    return _meets(d, event, waiter.requirements)


def _meets(d: Draft, event: EventRecord, requirements: tuple[tuple[str, Any], ...]) -> bool:
    return all(d.read_field(event, name) == value for name, value in requirements)


def _close(d: Draft, waiter: StepWorkerWaiter) -> None:
    """Remove a waiter from everywhere it is listed, with its timer."""
    d.disarm(waiter.timer)
    worker = d.workers[waiter.step]
    d.workers = d.workers.set(
        waiter.step, replace(worker, collected_waiters=worker.collected_waiters.delete(waiter.number))
    )
    waiting = d.waiting
    index = waiting.index
    before = index[waiter.event_type]
    of_type = before.delete(waiter.number)
    carry_on(before, of_type, waiter)
    d.waiting = replace(
        waiting,
        index=index.set(waiter.event_type, of_type) if of_type else index.delete(waiter.event_type),
        open=workers.without(waiting.open, waiter.item, waiter.key),
    )


def time_out(d: Draft, step: str, number: int) -> None:
    """Answer a waiter whose time is over."""
    waiter = d.worker(step).collected_waiters.get(number)
    if waiter is None:
        return
    _close(d, waiter)
    _forget_asked(d, number)
    answer = Answer(timed_out=True)
    workers.set_answer(d, waiter.item, waiter.key, answer)
    workers.wake(d, step, waiter.item, waiter.key, answer)


def abandon(d: Draft, execution: Execution, key: str) -> None:
    """End a wait that a body gave up by itself. If that wait had suspended it, it holds a worker again."""
    item = execution.item
    _drop(d, item.step, d.waiting.open.get(item.id, EMPTY_MAP).get(key, 0))
    workers.close_wait(d, item.id, key)
    if key and execution.waits_on == key:
        workers.reclaim(d, execution)


def _drop(d: Draft, step: str, number: int) -> None:
    """Let go of what would have ended a wait: the waiter, the child run or the timer of this number."""
    waiter = d.worker(step).collected_waiters.get(number)
    if waiter is not None:
        _close(d, waiter)
        _forget_asked(d, number)
    elif number in d.children:
        lifecycle.cancel_child(d, number)
    else:
        d.disarm(number)


def leave(d: Draft, tick: TickLeaveStep) -> None:
    """Note that a body has left its process because it waits. The first answer to one of its waits begins it again.

    It begins again at once if an answer is there, or if nothing will answer its waits any more: the body has to find
    that out by itself.
    """
    execution = workers.find(d, tick.step, tick.item, tick.seq)
    if execution is None:
        return
    execution = executions.written(d, execution, tick.writes)
    opened = {key for key in tick.pending if workers.is_open(d, tick.item, key)}
    if not opened or any(workers.answer_of(d, tick.item, key) is not None for key in tick.pending):
        workers.begin_again(d, execution)
    else:
        workers.leave(d, execution, opened.pop() if len(opened) == 1 else ANY)


def end_sleep(d: Draft, timer: Timer) -> None:
    """End a sleep whose timer has fired."""
    workers.close_wait(d, timer.ref, timer.key)
    workers.set_answer(d, timer.ref, timer.key, Answer())
    workers.wake(d, timer.step, timer.ref, timer.key, Answer())


def forget_item(d: Draft, step: str, item: int) -> None:
    """Drop the waits of a settled work item: no body will ask for them again."""
    for number in sorted(d.waiting.open.get(item, EMPTY_MAP).values()):
        _drop(d, step, number)
    for waiter in d.waiting.doubted.get(item, EMPTY_MAP).values():
        if waiter.number:
            _forget_asked(d, waiter.number)
    waiting = d.waiting
    if item in waiting.answers or item in waiting.open:
        answers, opened, doubted = waiting.answers, waiting.open, waiting.doubted
        d.waiting = replace(
            waiting,
            answers=answers.delete(item) if item in answers else answers,
            open=opened.delete(item) if item in opened else opened,
            doubted=doubted.delete(item) if item in doubted else doubted,
        )


def forget_settled(d: Draft, step: str, item: int) -> None:
    """Drop what was kept for a work item that is done or refused: its waits, their answers, where it had failed.

    A refusal of its step is dropped too: a better event has come, or the next refusal replaces it.
    """
    if item in d.waiting.answers or item in d.waiting.open:
        forget_item(d, step, item)
    if d.last_traceback is not None and d.last_traceback.item == item:
        d.last_traceback = None
    if step in d.refused:
        d.refused = d.refused.delete(step)


def begin_anew(d: Draft, item: int) -> None:
    """Prepare the waits of an item for a new attempt.

    Events that came and recorded results stay. Waits that timed out, failed child runs and sleeps begin anew.
    """
    for key, number in sorted(d.waiting.open.get(item, EMPTY_MAP).items()):
        if number in d.timers and d.timers[number].purpose == "sleep":
            d.disarm(number)
            workers.close_wait(d, item, key)
    waiting = d.waiting
    answers = waiting.answers.get(item, EMPTY_MAP)
    for key in [k for k, answer in answers.items() if answer.event is None and not k.startswith(ONCE)]:
        answers = answers.delete(key)
    if item in waiting.answers:
        d.waiting = replace(waiting, answers=waiting.answers.set(item, answers))


def keep(d: Draft, event: EventRecord, waiter_id: str | None, accepted: bool) -> bool:
    """Keep an early event for the next waiter of its type, or of the id it is meant for.

    False if it is not of a kind that is kept, or too many are and it was not accepted before.
    """
    kind, waiting = event.kind, d.waiting
    if kind.is_a(STOP_EVENT) or kind.is_a(INPUT_REQUIRED_EVENT):
        return False
    if waiting.kept_count >= d.config.keep_unclaimed and not accepted:
        return False
    name = kind.name if waiter_id is None else addressed(waiter_id)
    kept = waiting.kept.set(name, waiting.kept.get(name, EMPTY_FIFO).push_back(event))
    d.waiting = replace(waiting, kept=kept, kept_count=waiting.kept_count + 1)
    return True


def _take_kept(d: Draft, waiter: StepWorkerWaiter) -> EventRecord | None:
    """Take the oldest early event that a new waiter may have; None if there is none."""
    waiting = d.waiting
    if not waiting.kept_count:
        return None
    spec = specs_of(d.config).get(waiter.step)
    subclasses = spec is not None and spec.accept_subclasses
    wanted = waiter.event_type
    names = [addressed(waiter.waiter_id), wanted]
    if subclasses:
        names += sorted(name for name in waiting.kept if not name.startswith("@") and name != wanted)
    elif "." not in wanted:
        # A flow asks by the short name, in whichever module the type is defined.
        names += sorted(name for name in waiting.kept if name.rpartition(".")[2] == wanted != name)
    for name in names:
        kept: Fifo[EventRecord] = waiting.kept.get(name, EMPTY_FIFO)
        for event in kept:
            asked = (event.kind.name, event.kind.label)
            fits = event.kind.is_a(wanted) if subclasses else wanted in asked
            if fits and _meets(d, event, waiter.requirements):
                rest = Fifo.of(e for e in kept if e is not event)
                by_name = waiting.kept.set(name, rest) if rest else waiting.kept.delete(name)
                d.waiting = replace(waiting, kept=by_name, kept_count=waiting.kept_count - 1)
                return event
    return None

"""Queues, worker slots and executions: which work runs, and what a suspended one waits for.

A step has at most `num_workers` executions that hold a worker. Everything else of it is queued, delayed until a timer,
suspended in a wait, or ready to go on. `active` counts what can move by itself, so that idleness costs O(1). While the
run is paused nothing begins and nothing that was suspended goes on; see `fill`.

A wait belongs to a work item and has a key there. Under the key stands the number of what will end it, which is a
waiter, a timer or a child run, and later the answer. A result that a body has recorded is an answer too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.body_effects import ANY, ONCE
from loom.core.commands import CommandPublishEvent, CommandResumeWorker, CommandRunWorker
from loom.core.kernel import depth
from loom.core.persistent import EMPTY_MAP, Fifo, Map
from loom.core.records import MARKS, StepReport
from loom.core.state import Answer, Execution, InternalStepWorkerState, WorkItem, num_workers

if TYPE_CHECKING:
    from loom.core.records import EventKind, EventRecord
    from loom.core.reducer import Draft


def enqueue(d: Draft, step: str, event: EventRecord, extra: Any = None) -> None:
    """Give a step new work: run it at once if a worker is free, else queue it."""
    d.active += 1
    worker = d.workers.get(step) or d.worker(step)
    d.workers = d.workers.set(step, with_work(d, worker, step, event, extra))


def with_work(
    d: Draft, worker: InternalStepWorkerState, step: str, event: EventRecord, extra: Any
) -> InternalStepWorkerState:
    """Return the state of a step with new work. The caller puts it into the draft."""
    d.items = number = d.items + 1
    limit = worker.num_workers
    is_free = not worker.queue.size and not worker.ready.size and (not limit or len(worker.in_progress) < limit)
    if event.shared > MARKS and depth.is_too_deep(d.config, event):  # most events have no depth
        d.too_deep, is_free = True, False
    if is_free and not d.paused:
        return dispatch(d, worker, WorkItem(number, step, event, extra, 0, d.at))
    d.publish(StepReport(step, "preparing", None, event.kind))
    return replace(worker, queue=worker.queue.push_back(WorkItem(number, step, event, extra)))


def fill(d: Draft, step: str) -> None:
    """Use the free workers of a step: first for bodies that may go on, then for the queue."""
    worker = d.workers.get(step)
    if worker is not None and (worker.queue.size or worker.ready.size) and not d.paused:
        d.workers = d.workers.set(step, filled(d, worker))


def filled(d: Draft, worker: InternalStepWorkerState) -> InternalStepWorkerState:
    """Return the state of a step after `fill`. The caller puts it into the draft; the run is not paused."""
    limit = worker.num_workers
    while not limit or len(worker.in_progress) < limit:
        if worker.ready.size:
            worker = _continue(d, worker)
        elif worker.queue.size:
            item, rest = worker.queue.pop_front()
            worker = dispatch(d, worker, item, rest)
        else:
            break
    return worker


def dispatch(
    d: Draft, worker: InternalStepWorkerState, item: WorkItem, queue: Fifo[WorkItem] | None = None
) -> InternalStepWorkerState:
    """Dispatch an item on the smallest free worker. `queue` is what remains after it; None leaves the queue."""
    d.sequence = seq = d.sequence + 1
    worker_id = _free_slot(worker.busy) if worker.busy else 0
    if item.first_at is None:
        item = replace(item, first_at=d.at)
    if item.max_attempts is not None and item.execution is None:
        item = replace(item, began_at=d.at)  # only an item that failed under a version that records it gets here
    execution = Execution(
        seq, seq if item.execution is None else item.execution, item, worker_id, item.effects, writes=item.writes
    )
    _command(d, worker, execution)
    report = StepReport(item.step, "running", worker_id, item.event.kind)
    d.commands.append(CommandPublishEvent(d.published, report))
    d.published += 1
    in_progress = worker.in_progress.set(item.id, execution)
    busy = worker.busy | (1 << worker_id)
    if queue is None:
        return replace(worker, in_progress=in_progress, busy=busy)
    return replace(worker, queue=queue, in_progress=in_progress, busy=busy)


def _free_slot(busy: int) -> int:
    """Return the position of the lowest zero bit."""
    return (~busy & (busy + 1)).bit_length() - 1


def finish(d: Draft, execution: Execution, output: EventKind | None = None, returned: bool = False) -> None:
    """Free the worker of an execution that is over. The caller decides what becomes of the item."""
    item = execution.item
    d.active -= 1
    d.publish(StepReport(item.step, "not_running", execution.worker_id, item.event.kind, output, returned))
    worker = d.workers[item.step]
    d.workers = d.workers.set(item.step, _without(worker, execution))


def _without(worker: InternalStepWorkerState, execution: Execution) -> InternalStepWorkerState:
    return replace(
        worker,
        in_progress=worker.in_progress.delete(execution.item.id),
        busy=worker.busy & ~(1 << execution.worker_id),
    )


def reclaim(d: Draft, execution: Execution) -> Execution:
    """Give a worker to a suspended body that goes on by itself, even if that is one more than `num_workers`."""
    item = execution.item
    worker = d.workers[item.step]
    if any(entry == item.id for entry in worker.ready):
        worker = replace(worker, ready=Fifo.of(entry for entry in worker.ready if entry != item.id))
    else:
        d.active += 1
    execution = replace(execution, worker_id=_free_slot(worker.busy), waits_on="")
    d.workers = d.workers.set(
        item.step,
        replace(
            worker,
            suspended=worker.suspended.delete(item.id),
            in_progress=worker.in_progress.set(item.id, execution),
            busy=worker.busy | (1 << execution.worker_id),
        ),
    )
    d.publish(StepReport(item.step, "running", execution.worker_id, item.event.kind))
    return execution


def rerun(d: Draft, execution: Execution) -> None:
    """Run an execution's body again on its worker, with the step's buffers as they are now."""
    item = execution.item
    if d.paused:
        finish(d, execution)
        requeue(d, execution.interrupted())
        return
    worker = d.workers[item.step]
    if execution.writes is not None:
        execution = replace(execution, item=execution.interrupted())
    execution = replace(execution, seq=d.next_seq())
    d.workers = d.workers.set(item.step, replace(worker, in_progress=worker.in_progress.set(item.id, execution)))
    _command(d, worker, execution)


def begin_again(d: Draft, execution: Execution) -> None:
    """Run a body that has left its process from the top: on its worker if it has one, else on the next free one."""
    item = execution.item
    worker = d.workers[item.step]
    if item.id in worker.in_progress:
        rerun(d, replace(execution, item=execution.interrupted()))
        return
    # Its own wait may be open still: when that is answered, the item must not become ready a second time.
    suspended = worker.suspended.set(item.id, replace(execution, live=False, waits_on=ANY))
    d.workers = d.workers.set(item.step, replace(worker, suspended=suspended))
    if item.id not in set(worker.ready):
        _make_ready(d, item.step, item.id)


def leave(d: Draft, execution: Execution, key: str) -> None:
    """Note that a body has left its process and waits under this key. It holds no worker; an answer begins it again."""
    item, execution = execution.item, replace(execution, live=False)
    worker = d.workers[item.step]
    if item.id in worker.in_progress:
        suspend(d, execution, key)
        return
    if item.id not in set(worker.ready):
        execution = replace(execution, waits_on=key)
    d.workers = d.workers.set(item.step, replace(worker, suspended=worker.suspended.set(item.id, execution)))


def _command(d: Draft, worker: InternalStepWorkerState, execution: Execution) -> None:
    item = execution.item
    d.commands.append(
        CommandRunWorker(
            execution.seq,
            item.step,
            item,
            execution.worker_id,
            execution.id,
            d.at,
            worker.collected_events,
            records_of(d, item.id) if d.waiting.answers else EMPTY_MAP,
        )
    )


def requeue(d: Draft, item: WorkItem) -> None:
    """Put an item back at the head of its queue: it is next."""
    worker = d.worker(item.step)
    d.active += 1
    d.workers = d.workers.set(item.step, replace(worker, queue=worker.queue.push_front(item)))


def attempt_due(d: Draft, step: str, timer: int) -> None:
    """Put a delayed attempt whose time has come at the head of its queue."""
    worker = d.worker(step)
    item = worker.delayed.get(timer)
    if item is None:
        return
    d.workers = d.workers.set(step, replace(worker, delayed=worker.delayed.delete(timer)))
    requeue(d, item)
    fill(d, step)


def suspend(d: Draft, execution: Execution, key: str) -> None:
    """Suspend an execution whose body itself waits under this key, and give its worker to others."""
    execution = replace(execution, waits_on=key)
    step = execution.item.step
    worker = _without(d.workers[step], execution)
    d.active -= 1
    d.publish(StepReport(step, "not_running", execution.worker_id, execution.item.event.kind))
    d.workers = d.workers.set(step, replace(worker, suspended=worker.suspended.set(execution.item.id, execution)))
    fill(d, step)


def wake(d: Draft, step: str, item: int, key: str, answer: Answer) -> None:
    """Let the body of an answered wait go on, now or as soon as a worker is free."""
    depth.answered(d, step, item, answer.event)
    worker = d.worker(step)
    execution = worker.execution(item)
    if execution is None:
        return
    if execution.waits_on == key or (execution.waits_on == ANY and item not in set(worker.ready)):
        _make_ready(d, step, item)
    elif execution.live:
        # The wait was in a child task of the body, which needs no worker of its own.
        reply(d, execution, key, answer)


def _make_ready(d: Draft, step: str, item: int) -> None:
    worker = d.workers[step]
    d.active += 1
    d.workers = d.workers.set(step, replace(worker, ready=worker.ready.push_back(item)))
    fill(d, step)


def _continue(d: Draft, worker: InternalStepWorkerState) -> InternalStepWorkerState:
    """Let the first ready execution go on: in its body if a process holds it, else from the top."""
    item_id, ready = worker.ready.pop_front()
    execution = worker.suspended[item_id]
    worker = replace(worker, ready=ready, suspended=worker.suspended.delete(item_id))
    item = execution.item
    if not execution.live:
        return dispatch(d, worker, execution.interrupted())
    worker_id = _free_slot(worker.busy)
    key = execution.waits_on
    reply(d, execution, key, answer_of(d, item_id, key) or Answer(), worker_id)
    d.publish(StepReport(item.step, "running", worker_id, item.event.kind))
    return replace(
        worker,
        in_progress=worker.in_progress.set(item_id, replace(execution, worker_id=worker_id, waits_on="")),
        busy=worker.busy | (1 << worker_id),
    )


def rewind_in_progress(d: Draft) -> None:
    """Put executing work back at the head of its queue: no body is alive after a recovery. Suspended work stays.

    Worker ids start from 0 again. Nothing is dispatched yet: see `fill`.
    """
    for step in sorted(d.workers):
        worker = d.workers[step]
        queue = worker.queue
        for _, execution in sorted(worker.in_progress.items(), key=lambda pair: pair[1].seq, reverse=True):
            queue = queue.push_front(execution.interrupted())
        suspended = worker.suspended
        for item, execution in worker.suspended.items():
            suspended = suspended.set(item, replace(execution, live=False))
        d.workers = d.workers.set(
            step,
            replace(
                worker,
                num_workers=num_workers(d.config, step),
                queue=queue,
                in_progress=EMPTY_MAP,
                busy=0,
                suspended=suspended,
            ),
        )


def rewind_stranded(d: Draft) -> None:
    """Queue work again that is suspended in a wait which nothing will end, because its child run was cancelled."""
    for step in sorted(d.workers):
        worker = d.workers[step]
        ready = set(worker.ready)
        for item, execution in sorted(worker.suspended.items(), reverse=True):
            if item not in ready and not is_open(d, item, execution.waits_on):
                worker = d.workers[step]
                d.workers = d.workers.set(step, replace(worker, suspended=worker.suspended.delete(item)))
                requeue(d, execution.interrupted())


def drop_all(d: Draft) -> None:
    """Drop all work of a run that is over."""
    d.workers = EMPTY_MAP
    d.active = d.asleep = 0
    d.timers = EMPTY_MAP


# Waits and their answers, by work item and key.


def is_open(d: Draft, item: int, key: str) -> bool:
    """Return whether something will still end this wait."""
    return key in d.waiting.open.get(item, EMPTY_MAP)


def open_wait(d: Draft, item: int, key: str, number: int) -> None:
    """Open a wait. `number` is that of the waiter, the timer or the child run which will end it."""
    waiting = d.waiting
    d.waiting = replace(waiting, open=waiting.open.set(item, waiting.open.get(item, EMPTY_MAP).set(key, number)))


def close_wait(d: Draft, item: int, key: str) -> None:
    """Close a wait: nothing will end it any more."""
    d.waiting = replace(d.waiting, open=without(d.waiting.open, item, key))


def without(of_items: Map[int, Map[str, int]], item: int, key: str) -> Map[int, Map[str, int]]:
    """Return the open waits without one of them."""
    keys = of_items.get(item, EMPTY_MAP)
    keys = keys.delete(key) if key in keys else keys
    if keys:
        return of_items.set(item, keys)
    return of_items.delete(item) if item in of_items else of_items


def answer_of(d: Draft, item: int, key: str) -> Answer | None:
    """Return what a wait was answered with; None if it was not."""
    found: Answer | None = d.waiting.answers.get(item, EMPTY_MAP).get(key)
    return found


def set_answer(d: Draft, item: int, key: str, answer: Answer) -> None:
    """Remember what a wait was answered with, for a body that runs again."""
    waiting = d.waiting
    of_item = waiting.answers.get(item, EMPTY_MAP).set(key, answer)
    d.waiting = replace(waiting, answers=waiting.answers.set(item, of_item))


def forget_answer(d: Draft, item: int, key: str) -> None:
    """Take the answer of a wait away."""
    waiting = d.waiting
    answers = waiting.answers.get(item, EMPTY_MAP)
    if key in answers:
        answers = answers.delete(key)
        by_item = waiting.answers.set(item, answers) if answers else waiting.answers.delete(item)
        d.waiting = replace(waiting, answers=by_item)


def reply(d: Draft, execution: Execution, key: str, answer: Answer, worker_id: int | None = None) -> None:
    """Let a body go on with the answer to its wait."""
    d.commands.append(
        CommandResumeWorker(
            execution.seq,
            execution.item.step,
            key,
            answer.event,
            answer.timed_out,
            worker_id,
            answer.value,
            answer.child,
        )
    )


def records_of(d: Draft, item: int) -> Map[str, Any]:
    """Return the results that were recorded with an item, by name."""
    answers = d.waiting.answers.get(item, EMPTY_MAP)
    return Map({key.removeprefix(ONCE): a.value for key, a in answers.items() if key.startswith(ONCE)})


def find(d: Draft, step: str, item: int, seq: int) -> Execution | None:
    """Find the execution that a command of this number started. None if it is over: then the tick counts as dropped."""
    execution = d.worker(step).execution(item)
    if execution is None or execution.seq != seq or not execution.live:
        d.dropped += 1
        return None
    return execution

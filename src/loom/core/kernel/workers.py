"""Queues, worker slots and executions: who works on what. Pure.

A step has at most `num_workers` executions that hold a worker. Everything else of it is queued, delayed until a timer,
suspended in a wait, or ready to go on. `active` counts what can move by itself, so that idleness costs O(1). While the
run is paused nothing begins and nothing that was suspended goes on; see `fill`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.body_effects import ANY
from loom.core.commands import CommandRunWorker
from loom.core.config import num_workers
from loom.core.kernel import waits
from loom.core.persistent import EMPTY_MAP, Fifo
from loom.core.reports import StepReport
from loom.core.state import Answer, Execution, InternalStepWorkerState, WorkItem

if TYPE_CHECKING:
    from loom.core.draft import Draft
    from loom.core.records import EventKind, EventRecord


def enqueue(d: Draft, step: str, event: EventRecord, extra: Any = None) -> None:
    """Give a step new work: run it at once if a worker is free, else queue it."""
    d.items += 1
    d.active += 1
    worker = d.workers.get(step) or d.worker(step)
    limit = worker.num_workers
    is_free = not worker.queue.size and not worker.ready.size and (not limit or len(worker.in_progress) < limit)
    if is_free and not d.paused:
        d.workers = d.workers.set(step, _start(d, worker, WorkItem(d.items, step, event, extra, 0, d.at)))
        return
    item = WorkItem(d.items, step, event, extra)
    d.publish(StepReport(step, "preparing", None, event.kind))
    d.workers = d.workers.set(step, replace(worker, queue=worker.queue.push_back(item)))


def fill(d: Draft, step: str) -> None:
    """Use the free workers of a step: first for bodies that may go on, then for the queue."""
    worker = d.workers.get(step)
    if worker is None or (not worker.queue.size and not worker.ready.size) or d.paused:
        return
    limit = worker.num_workers
    while not limit or len(worker.in_progress) < limit:
        if worker.ready:
            worker = _continue(d, worker)
        elif worker.queue:
            item, rest = worker.queue.pop_front()
            worker = _start(d, worker, item, rest)
        else:
            break
    d.workers = d.workers.set(step, worker)


def _start(
    d: Draft, worker: InternalStepWorkerState, item: WorkItem, queue: Fifo[WorkItem] | None = None
) -> InternalStepWorkerState:
    """Dispatch an item on the smallest free worker. `queue` is what is left behind it."""
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
    d.publish(StepReport(item.step, "running", worker_id, item.event.kind))
    in_progress = worker.in_progress.set(item.id, execution)
    busy = worker.busy | (1 << worker_id)
    if queue is None:
        return replace(worker, in_progress=in_progress, busy=busy)
    return replace(worker, queue=queue, in_progress=in_progress, busy=busy)


def _free_slot(busy: int) -> int:
    """The position of the lowest zero bit."""
    return (~busy & (busy + 1)).bit_length() - 1


def finish(d: Draft, execution: Execution, output: EventKind | None = None, returned: bool = False) -> None:
    """An execution is over: its worker is free again. The caller decides what becomes of the item."""
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
    """A suspended body goes on by itself: it has a worker again, even if that is one more than there should be."""
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
    """Run a body from the top that has left its process: on its worker if it has one, else with the next free one."""
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
    """A body has left its process and waits under this key: it holds no worker, and begins again when it is woken."""
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
            waits.records_of(d, item.id) if d.waiting.answers else EMPTY_MAP,
        )
    )


def requeue(d: Draft, item: WorkItem) -> None:
    """Put an item back at the head of its queue: it is next."""
    worker = d.worker(item.step)
    d.active += 1
    d.workers = d.workers.set(item.step, replace(worker, queue=worker.queue.push_front(item)))


def suspend(d: Draft, execution: Execution, key: str) -> None:
    """The body itself waits under this key: give its worker to others."""
    execution = replace(execution, waits_on=key)
    step = execution.item.step
    worker = _without(d.workers[step], execution)
    d.active -= 1
    d.publish(StepReport(step, "not_running", execution.worker_id, execution.item.event.kind))
    d.workers = d.workers.set(step, replace(worker, suspended=worker.suspended.set(execution.item.id, execution)))
    fill(d, step)


def wake(d: Draft, step: str, item: int, key: str, answer: Answer) -> None:
    """A wait of an item is answered: its body goes on, now or as soon as a worker is free."""
    worker = d.worker(step)
    execution = worker.execution(item)
    if execution is None:
        return
    if execution.waits_on == key or (execution.waits_on == ANY and item not in set(worker.ready)):
        _make_ready(d, step, item)
    elif execution.live:
        # The wait was in a child task of the body, which needs no worker of its own.
        waits.reply(d, execution, key, answer)


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
        return _start(d, worker, execution.interrupted())
    worker_id = _free_slot(worker.busy)
    key = execution.waits_on
    waits.reply(d, execution, key, waits.answer_of(d, item_id, key) or Answer(), worker_id)
    d.publish(StepReport(item.step, "running", worker_id, item.event.kind))
    return replace(
        worker,
        in_progress=worker.in_progress.set(item_id, replace(execution, worker_id=worker_id, waits_on="")),
        busy=worker.busy | (1 << worker_id),
    )


def rewind_in_progress(d: Draft) -> None:
    """After a take-up: no body is alive. What was executing goes back to the head of its queue, what was waiting stays.

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
    """What is suspended in a wait that nothing will end, since its child run was cancelled, begins again to wait."""
    for step in sorted(d.workers):
        worker = d.workers[step]
        ready = set(worker.ready)
        for item, execution in sorted(worker.suspended.items(), reverse=True):
            if item not in ready and not waits.is_open(d, item, execution.waits_on):
                worker = d.workers[step]
                d.workers = d.workers.set(step, replace(worker, suspended=worker.suspended.delete(item)))
                requeue(d, execution.interrupted())


def drop_all(d: Draft) -> None:
    """The run is over: nothing is queued, executing or waiting any more."""
    d.workers = EMPTY_MAP
    d.active = d.asleep = 0
    d.timers = EMPTY_MAP

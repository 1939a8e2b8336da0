"""Another event in place of the one that failed a run. Pure.

It is found in what the failed run had in hand: the answer that a wait of the failed work had got, or the event that the
work was for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.kernel.waits import WAIT, addressed, waiter_id_of
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo

if TYPE_CHECKING:
    from immutables import Map

    from loom.core.records import EventRecord
    from loom.core.state import Abandoned, Answer, Outcome, WorkItem
    from loom.core.ticks import TickRetryRun


def failed_item(outcome: Outcome | None) -> WorkItem | None:
    """The work that failed a run: it is back at the head of its queue. None if the run ended in another way."""
    abandoned = outcome.abandoned if outcome is not None else None
    worker = abandoned.workers.get(outcome.step) if outcome is not None and abandoned is not None else None
    item = next(iter(worker.queue), None) if worker is not None else None
    return item if item is not None and item.last_failure is not None else None


def answers_of(abandoned: Abandoned, item: int) -> dict[str, EventRecord]:
    """The events that the waits of a work item were answered with, by the waits' keys."""
    answers: Map[str, Answer] = abandoned.waiting.answers.get(item, EMPTY_MAP)
    found = ((key, answer.event) for key, answer in sorted(answers.items()) if key.startswith(WAIT))
    return {key: event for key, event in found if event is not None}


def healed(abandoned: Abandoned, tick: TickRetryRun) -> Abandoned | None:
    """Tell what a run goes on from, with the event of the tick in its place; None if the place is gone."""
    return _with_answer(abandoned, tick) if tick.key else _with_input(abandoned, tick)


def _with_answer(abandoned: Abandoned, tick: TickRetryRun) -> Abandoned | None:
    """The wait has no answer: it is asked for again, and finds the event, which is kept for it alone."""
    if tick.event is None or tick.key not in answers_of(abandoned, tick.item):
        return None
    waiting = abandoned.waiting
    answers = waiting.answers.set(tick.item, waiting.answers[tick.item].delete(tick.key))
    name = addressed(waiter_id_of(tick.key))
    kept: Fifo[EventRecord] = waiting.kept.get(name, EMPTY_FIFO)
    # In front of all others: it stands in for an event that had come before them.
    by_name = waiting.kept.set(name, kept.push_front(tick.event))
    waiting = replace(waiting, answers=answers, kept=by_name, kept_count=waiting.kept_count + 1)
    return replace(abandoned, waiting=waiting)


def _with_input(abandoned: Abandoned, tick: TickRetryRun) -> Abandoned | None:
    worker = abandoned.workers.get(tick.step)
    if tick.event is None or worker is None or all(item.id != tick.item for item in worker.queue):
        return None
    queue = [replace(item, event=tick.event) if item.id == tick.item else item for item in worker.queue]
    return replace(abandoned, workers=abandoned.workers.set(tick.step, replace(worker, queue=Fifo.of(queue))))

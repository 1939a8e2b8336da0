"""What all waits of work items have in common: which are open, and what they were answered with. Pure.

A wait belongs to its work item, not to a process. Under its key stands the number of what will end it, which is a
waiter, a timer or a child run, and later the answer. A result that a body has recorded is an answer too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import ONCE
from loom.core.commands import CommandResumeWorker
from loom.core.persistent import EMPTY_MAP

if TYPE_CHECKING:
    from loom.core.draft import Draft
    from loom.core.state import Answer, Execution


def is_open(d: Draft, item: int, key: str) -> bool:
    """Whether something will end this wait still."""
    return key in d.waiting.open.get(item, EMPTY_MAP)


def open_wait(d: Draft, item: int, key: str, number: int) -> None:
    """A wait begins, and what has this number will end it."""
    waiting = d.waiting
    d.waiting = replace(waiting, open=waiting.open.set(item, waiting.open.get(item, EMPTY_MAP).set(key, number)))


def close_wait(d: Draft, item: int, key: str) -> None:
    """Nothing will end this wait any more."""
    d.waiting = replace(d.waiting, open=without(d.waiting.open, item, key))


def without(of_items: Map[int, Map[str, int]], item: int, key: str) -> Map[int, Map[str, int]]:
    """The open waits without one of them."""
    keys = of_items.get(item, EMPTY_MAP)
    keys = keys.delete(key) if key in keys else keys
    if keys:
        return of_items.set(item, keys)
    return of_items.delete(item) if item in of_items else of_items


def answer_of(d: Draft, item: int, key: str) -> Answer | None:
    """What a wait was answered with."""
    found: Answer | None = d.waiting.answers.get(item, EMPTY_MAP).get(key)
    return found


def set_answer(d: Draft, item: int, key: str, answer: Answer) -> None:
    """Remember what a wait was answered with, for a body that runs again."""
    waiting = d.waiting
    of_item = waiting.answers.get(item, EMPTY_MAP).set(key, answer)
    d.waiting = replace(waiting, answers=waiting.answers.set(item, of_item))


def forget_answer(d: Draft, item: int, key: str) -> None:
    """A wait has no answer after all."""
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
    """The results that were recorded with an item, by name."""
    answers = d.waiting.answers.get(item, EMPTY_MAP)
    return Map({key.removeprefix(ONCE): a.value for key, a in answers.items() if key.startswith(ONCE)})

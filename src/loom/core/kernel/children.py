"""Child runs: started for a work item, waited for like an event, and cancelled when nobody wants them any more. Pure.

A child is a run of its own. Its parent knows its number and id and learns of its end by a tick. The start leaves with
the commit that holds the wait, so it is never asked for twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.commands import CommandCancelChild, CommandStartChild
from loom.core.kernel import waits, workers
from loom.core.persistent import EMPTY_MAP
from loom.core.records import without_traceback
from loom.core.state import Answer, Child, ChildEnd

if TYPE_CHECKING:
    from loom.core.draft import Draft
    from loom.core.state import WorkItem
    from loom.core.ticks import TickChildEnded, TickStartChild


def begin(d: Draft, tick: TickStartChild, item: WorkItem, key: str) -> None:
    """Ask for a run that the item waits for under this key. Its id tells whose child it is."""
    number = d.next_seq()
    child = Child(f"{d.run_id}:{number}", tick.workflow, item.step, item.id, key, d.at)
    d.children = d.children.set(number, child)
    waits.open_wait(d, item.id, key, number)
    d.commands.append(CommandStartChild(number, child.run_id, tick.workflow, tick.start))


def ended(d: Draft, tick: TickChildEnded) -> None:
    """A child is over: its parent's body goes on with the result, or with what came instead of one."""
    child = d.children.get(tick.child)
    if child is None:
        d.dropped += 1
        return
    _forget(d, tick.child, child)
    # A parent may have many children, and each has its traceback in its own history.
    failure = without_traceback(tick.failure) if tick.failure is not None else None
    answer = Answer(tick.event, child=ChildEnd(child.run_id, tick.status, failure))
    waits.set_answer(d, child.item, child.key, answer)
    workers.wake(d, child.step, child.item, child.key, answer)


def cancel(d: Draft, number: int) -> None:
    """Nobody waits for this child any more."""
    child = d.children[number]
    _forget(d, number, child)
    d.commands.append(CommandCancelChild(number, child.run_id))


def cancel_all(d: Draft) -> None:
    """The run is over, and its children with it, oldest first."""
    for number in sorted(d.children):
        cancel(d, number)
    d.children = EMPTY_MAP


def _forget(d: Draft, number: int, child: Child) -> None:
    d.children = d.children.delete(number)
    waits.close_wait(d, child.item, child.key)

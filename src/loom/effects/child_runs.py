"""How the end of a child run reaches the body that waits for it. May import loom.steps and loom.core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.steps.errors import ChildRunCancelled, ChildRunFailed
from loom.steps.handler import plain_result

if TYPE_CHECKING:
    from loom.core.commands import CommandResumeWorker
    from loom.core.state import ChildEnd
    from loom.effects.convert import Conversion

MAX_NESTING = 50
"""How deep child runs may be nested. Their ids tell: each adds a number to its parent's."""

_WAYS = {"failed": "failed", "timed_out": "timed out", "cancelled": "was cancelled"}


def check_nesting(run_id: str) -> None:
    """Refuse a child of a child of a child, and so on: a workflow that starts itself must come to an end."""
    depth = 0
    while run_id.rpartition(":")[2].isdigit():
        run_id, depth = run_id.rpartition(":")[0], depth + 1
    if depth >= MAX_NESTING:
        raise ChildRunFailed(f"Child runs are nested more than {MAX_NESTING} deep.", run_id, "NestingLimit")


def result_of_child(answer: CommandResumeWorker, convert: Conversion) -> Any:
    """The child's result, as its handler would give it, or the error that stands for its failure."""
    child = answer.child
    if answer.event is None:
        if child is not None and child.status != "completed":
            raise _error_of(child)
        return None
    # A flow that has failed has a result nevertheless.
    ended: Any = convert.event(answer.event)
    return plain_result(ended)


def _error_of(child: ChildEnd) -> ChildRunFailed:
    failure = child.failure
    message = failure.message if failure is not None else f"The child run {child.run_id!r} {_WAYS[child.status]}."
    made = ChildRunCancelled if child.status == "cancelled" else ChildRunFailed
    error = made(message, child.run_id, failure.type if failure is not None else "")
    if failure is not None:
        kind = failure.type.removeprefix("builtins.")
        error.add_note(f"Child run {child.run_id!r} failed with {kind}: its history says where.")
    return error

"""How blocks and flows end: the rule of the leaves, and the records of what was skipped or could not be read. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.flows.records import shown_error
from loom.flows.state import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from immutables import Map

    from loom.expressions import ExpressionError
    from loom.expressions.errors import FunctionError
    from loom.flows.program import Block, Node, Program

DEPENDENCY_FAILED = (
    "ActionDependencyFailed",
    "The execution of this action was skipped: an action that it runs after did not end as its 'runAfter' asks for.",
)
BRANCH_NOT_TAKEN = (
    "ActionBranchingConditionNotSatisfied",
    "The execution of this action was skipped: the branch that it is in was not taken.",
)


@lru_cache(maxsize=8)
def skipped(at: float, code: str = DEPENDENCY_FAILED[0], message: str = DEPENDENCY_FAILED[1]) -> Record:
    """The record of an action that is skipped."""
    return Record("Skipped", None, None, "ActionSkipped", {"code": code, "message": message}, at, at)


def invalid_template(node: Node, error: ExpressionError | FunctionError, code: str) -> dict[str, Any]:
    """The error of an action whose template cannot be evaluated: it names the action, the place and the text."""
    path = getattr(error, "path", "")
    where = f"{node.path}.{path}" if path else node.path
    if node.secure_inputs:
        return {
            "code": code,
            "message": f"Action '{node.name}', {where}: the template cannot be evaluated.",
        }
    return {"code": code, "message": f"Action '{node.name}', {where}: {error}"}


def block_outcome(program: Program, block: Block, records: Map[int, Record]) -> tuple[str, Record | None]:
    """The status of a block, and the record that made it fail.

    Take the actions that nobody runs after; instead of one that was skipped, take those before it, again and again.
    Failed if one of them failed, else TimedOut if one of them did, else Succeeded.
    """
    for leaf in block.leaves:
        if records[leaf].status != "Succeeded":
            break
    else:
        return "Succeeded", None
    seen = set(block.leaves)
    pending = list(block.leaves)
    timed_out: Record | None = None
    failed: list[int] = []
    while pending:
        index = pending.pop()
        record = records[index]
        status = record.status
        if status == "Succeeded":
            continue
        if status == "Skipped":
            before = [b for b, _ in program.nodes[index].after if b not in seen]
            seen.update(before)
            pending += before
        elif status == "TimedOut":
            timed_out = timed_out or record
        else:
            failed.append(index)
    if failed:
        return "Failed", records[min(failed)]
    return ("TimedOut", timed_out) if timed_out is not None else ("Succeeded", None)


def told_cause(program: Program, block: Block, records: Map[int, Record], cause: Record | None) -> Record | None:
    """What the owner of a block may tell about the record that made it fail: its error, unless that is secure."""
    if cause is None or cause.error is None:
        return cause
    culprit = next((program.nodes[index] for index in block.nodes if records.get(index) is cause), None)
    hidden = culprit is not None and (culprit.secure_inputs or culprit.secure_outputs)
    return replace(cause, error=shown_error(cause.error, hidden))


def without_unfinished(records: Map[int, Record]) -> Map[int, Record]:
    """The records of an iteration as they are seen from outside: a retry goes on in the iteration's own."""
    bare = {index: replace(record, unfinished=None) for index, record in records.items() if record.unfinished}
    return records.update(bare) if bare else records


def forgotten(program: Program, records: Map[int, Record], indexes: Iterable[int]) -> tuple[Map[int, Record], bool]:
    """The records without those of actions that will run again, and whether one of them had answered the caller."""
    had_answered = False
    for index in indexes:
        record = records.get(index)
        if record is not None:
            had_answered = had_answered or (program.nodes[index].type == "response" and record.status == "Succeeded")
            records = records.delete(index)
    return records, had_answered

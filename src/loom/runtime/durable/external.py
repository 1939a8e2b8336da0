"""Which events a stored run takes from outside: what it waits for now, and what its code lets in at any time.

A run whose code this process does not have takes only what it waits for now: nobody here could tell an answer from an
event that its steps pass between them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.core.state import CHILD_RUN, MAX_REPORTED, specs_of
from loom.flows.calls import MASK
from loom.flows.nodes.external import Awaited, ExternalCall
from loom.runtime.durable.registration import FlowRegistration
from loom.runtime.stored_run import program_of_row
from loom.steps.graph import CALLBACK_EVENT, is_answer, is_bound, is_declared, is_own

if TYPE_CHECKING:
    from loom.core.records import EventKind, EventRecord
    from loom.flows.program import Program
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.run_client import RunClient
    from loom.store.records import RunRow

_WEBHOOK = "httpwebhook"


def awaited_by(program: Program) -> list[Awaited]:
    """The events that the actions of a flow wait for, each once."""
    found: dict[str | None, Awaited] = {}
    for node in program.nodes:
        operation = node.operation
        if isinstance(operation, ExternalCall) and operation.awaits is not None:
            found.setdefault(operation.awaits.event, operation.awaits)
        elif node.type == _WEBHOOK:
            found.setdefault(CALLBACK_EVENT, Awaited(CALLBACK_EVENT))
    return list(found.values())


def takes(code: Registration, kind: EventKind, step: str | None = None) -> bool:
    """Whether the steps of a workflow in Python, or one of them, take events of a kind from outside at any time."""
    if is_own(kind) or is_bound(kind) or isinstance(code, FlowRegistration):
        return False
    return is_declared(code.definition.steps, kind, step) or (is_answer(kind) and code.accepts(kind, step))


class Way(NamedTuple):
    """How an event from a caller who may answer a run, and no more, reaches the run."""

    waiter_id: str | None = None
    """The only waiter that may get it; None: any waiter."""


async def way_in(
    runtime: RunClient, row: RunRow, event: EventRecord, step: str | None = None, waiter_id: str | None = None
) -> Way | None:
    """Tell how a running run takes an event from a caller who may answer it, and no more; None if it does not."""
    kind, code = event.kind, runtime.codes.get(row.workflow)
    if is_own(kind) or is_bound(kind):
        return None
    if row.document is None and code is not None and takes(code, kind, step):
        return Way(waiter_id)
    found = await _awaited(runtime, row, event, step, waiter_id)
    if found is not None or row.document is None:
        return found
    program = await program_of_row(runtime, row)
    known = {awaited.event for awaited in awaited_by(program)} if program is not None else set()
    return Way(waiter_id) if kind.name in known or kind.label in known else None


async def _awaited(
    runtime: RunClient, row: RunRow, event: EventRecord, step: str | None, waiter_id: str | None
) -> Way | None:
    """Tell how a waiter would get it, or would do so if its fields were others and no step takes its type.

    A type that is awaited and that a step takes too must be just what is awaited, and is for its waiter alone: else it
    would reach the step, also if the waiter is gone when it comes.
    """
    kind, code = event.kind, runtime.codes.get(row.workflow)
    waiters: Any = json.loads(row.head.waiters)
    if len(waiters) >= MAX_REPORTED:
        waiters = await runtime.waiters(row.run_id)
    must_fit = row.document is None and (code is None or code.accepts(kind, step))
    codec = runtime.codec_of(row)
    for waiter in waiters:
        if not _is_for(waiter, kind, code) or step not in (None, waiter["step"]):
            continue
        if waiter_id not in (None, waiter["waiter_id"]):
            continue
        wanted = waiter["requirements"].items()
        if not must_fit:
            return Way(waiter_id)
        if all(value in (MASK, codec.field(event, name)) for name, value in wanted):
            return Way(waiter["waiter_id"])
    return None


def _is_for(waiter: dict[str, Any], kind: EventKind, code: Registration | None) -> bool:
    """Whether a waiter waits for a kind: by its wire name, by the name that a flow gives it, or by a base of it."""
    wanted = waiter["event_type"]
    if wanted == CHILD_RUN:
        return False
    if wanted == kind.name or ("." not in wanted and wanted == kind.label):
        return True
    spec = specs_of(code.config).get(waiter["step"]) if code is not None and wanted in kind.bases else None
    return spec is not None and spec.accept_subclasses

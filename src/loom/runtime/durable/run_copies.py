"""Copies of stored runs (forks, exports and imports), and what deletes runs. `RunClient` has a method for each."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from loom.runtime.durable import history
from loom.runtime.durable.fork_changes import ForkMaker
from loom.runtime.durable.names import can_be_kept, check_run_id, check_stored_names
from loom.store.errors import RunActive, RunExists, RunNotFound, StoreError
from loom.store.operations import ImportRun, PurgeRuns

if TYPE_CHECKING:
    from loom.runtime.durable.fork_changes import ForkChanges
    from loom.runtime.durable.run_client import RunClient

_PAGE = 200


async def store_fork(client: RunClient, source_id: str, tick: int, run_id: str | None, changes: ForkChanges) -> str:
    """Store a new run that goes on from a past tick of another one, with these changes, and return its id."""
    await client.ready()
    run_id = run_id if run_id is not None else uuid.uuid4().hex
    check_run_id(run_id)
    client.check_keys()
    row = await client.row(source_id)
    # A client that has not joined does not know better than what the other run was told last.
    downtime = max(await client.downtime(), row.head.downtime)
    maker = ForkMaker(client, row, changes) if changes.is_any else None
    new = history.NewFork(run_id, client.now(), downtime, client.links, maker)
    stored = await history.forked(client.store, row, client.field_reader(row), tick, new)
    if not await client.committer.submit(ImportRun(stored)):
        raise RunExists(run_id, "so it cannot be the name of a fork")
    return run_id


async def export_run(client: RunClient, run_id: str) -> bytes:
    """Return everything that is stored of a run, as JSON."""
    await client.ready()
    stored = await client.store.export(run_id) if can_be_kept(run_id) else None
    if stored is None:
        raise RunNotFound(run_id)
    return history.packed(stored, client.now(), await client.downtime())


async def import_run(client: RunClient, data: bytes) -> str:
    """Store a run that was exported, and return its id."""
    await client.ready()
    client.check_heads()
    unpacked = history.unpacked(data, client.now(), await client.downtime())
    try:
        check_stored_names(unpacked.row.run_id, unpacked.row.workflow, unpacked.row.tags)
    except ValueError as error:
        raise StoreError(f"This is not an exported run: {error}") from error
    stored = client.signed_import(unpacked)
    if not await client.committer.submit(ImportRun(stored)):
        why, advice = "so the exported one cannot take its place", "Delete that one first, or use another store"
        raise RunExists(stored.row.run_id, why, advice)
    return stored.row.run_id


async def purge(client: RunClient, run_id: str | None, ended_before: float | None) -> int:
    """Delete an ended run with its child runs, or all that ended before a time. Return how many."""
    await client.ready()
    if run_id is None and ended_before is None:
        raise ValueError("purge() needs a run_id, or ended_before=... as a time in seconds since the epoch.")
    if run_id is not None and (await client.row(run_id)).head.status == "running":
        raise RunActive(run_id, "cancel it before you purge it")
    total = 0
    if run_id is not None:
        # A run that begins again under this id will have children of the same ids.
        async for child in client.list(parent_id=run_id):
            total += await client.purge(child.run_id)
    while True:
        gone = await client.committer.submit(PurgeRuns(run_id=run_id, ended_before=ended_before, limit=_PAGE))
        assert isinstance(gone, int)
        total += gone
        if gone < _PAGE:
            return total

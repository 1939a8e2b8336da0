"""Write a group: one transaction, in as few round trips as its operations allow.

A group of plain commits is a single statement. Any other is cut into batches; for each, the runs that it starts are
put in, all rows that it touches are locked, what it comes to is decided, and that is written table by table. Locks are
taken in the order of keys within a batch; groups of several batches may still meet in a deadlock, which the database
ends, and then the group is written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.store.errors import StoreUnavailable
from loom.store.operations import (
    AcquitRun,
    ClaimRuns,
    CommitRun,
    ForgetDeaths,
    ImportRun,
    PostMessage,
    PurgeRuns,
    ReleaseRun,
    SetTags,
    SignHead,
    Started,
    StartRun,
    TryRun,
)
from loom.store.postgres import key_values, ownership
from loom.store.postgres import statements as sql
from loom.store.postgres.connections import (
    NOTHING_WRITTEN,
    ChangedSinceError,
    columns,
    unknown_if_lost,
)
from loom.store.postgres.driver import CLASHED
from loom.store.postgres.plan import Facts, LockedRun, OperationBatch, Plan, batches, decide, plain_commits
from loom.store.postgres.rows import (
    chunk_values,
    commit_values,
    import_values,
    snapshot_values,
    start_values,
    tags_of,
    tags_values,
)
from loom.store.rules import does_not_follow, effects_of_commit, replaced_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.postgres.connections import Address
    from loom.store.postgres.driver import Connection
    from loom.store.postgres.plan import Single, Wide
    from loom.store.records import RunRow, StoredRun

_ATTEMPTS = 5
_MAX_PAYLOAD = 7000
"""PostgreSQL takes less than 8000 bytes in one notification."""

_to_json = msgspec.json.Encoder().encode


_AGAIN: tuple[type[Exception], ...] = (*CLASHED, ChangedSinceError)


class GroupWriter:
    """Writes groups, each through a connection that no other caller uses at the time."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def write(self, connection: Connection, group: Sequence[Operation]) -> tuple[list[Result], list[str]]:
        """Write a group. Return the results, and the runs to notify of."""
        plain = plain_commits(group)
        if plain is not None:
            return await self._write_plain(connection, plain), []
        attempt = 1
        while True:
            try:
                return await self._transaction(connection, group)
            except _AGAIN as error:
                if attempt == _ATTEMPTS:
                    raise StoreUnavailable(
                        f"{self._address.place}: {attempt} attempts met others at the same rows.{NOTHING_WRITTEN}"
                    ) from error
                attempt += 1

    async def _write_plain(self, connection: Connection, commits: Sequence[CommitRun]) -> list[Result]:
        if not commits:
            return []
        values = columns([commit_values(commit, effects_of_commit(commit, None).waits) for commit in commits])
        with unknown_if_lost(self._address):
            rows = await connection.fetch(sql.COMMIT_RUNS, *values)
        follows = dict(rows)
        if not all(follows.values()):
            raise does_not_follow(next(commit for commit in commits if follows.get(commit.run_id) is False))
        return [commit.run_id in follows for commit in commits]

    async def _transaction(self, connection: Connection, group: Sequence[Operation]) -> tuple[list[Result], list[str]]:
        results: list[Result] = []
        notified: dict[str, None] = {}
        await connection.execute("BEGIN")
        try:
            for part in batches(group):
                if isinstance(part, OperationBatch):
                    plan = await _write_batch(connection, part)
                    results += plan.results
                    notified |= plan.notified
                else:
                    results.append(await _write_wide(connection, part, notified))
            if notified:
                await connection.execute(sql.NOTIFY, self._address.channel, payloads(notified))
        except BaseException:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        with unknown_if_lost(self._address):
            await connection.execute("COMMIT")
        return results, list(notified)


def payloads(run_ids: Iterable[str]) -> list[str]:
    """Write ids as JSON lists that fit into notifications. A too long id becomes an empty list: look at all."""
    found: list[str] = []
    part: list[str] = []
    size = 2
    for run_id in run_ids:
        length = len(_to_json(run_id)) + 1
        if length > _MAX_PAYLOAD:
            found.append("[]")
            continue
        if size + length > _MAX_PAYLOAD:
            found.append(_to_json(part).decode())
            part, size = [], 2
        part.append(run_id)
        size += length
    if part:
        found.append(_to_json(part).decode())
    return found


# --- batches ---------------------------------------------------------------------------------------------------------


async def _write_batch(connection: Connection, batch: OperationBatch) -> Plan:
    plan = decide(batch, await _facts(connection, batch))
    if plan.undone:
        await connection.execute(sql.UNDO_STARTS, plan.undone)
    if plan.commits:
        await connection.fetch(sql.COMMIT_RUNS, *columns(plan.commits))
    if plan.ended:
        await connection.execute(sql.CLEAR_ENDED, plan.ended, plan.messages_gone)
    for statement, rows in (
        (sql.REOPEN_RUNS, plan.reopened),
        (sql.WRITE_SNAPSHOTS, plan.snapshots),
        (sql.PRUNE, plan.pruned),
        (sql.SET_TIMERS, plan.timers_set),
        (sql.DROP_TIMERS, plan.timers_gone),
        (sql.WRITE_MESSAGES, plan.messages),
        (sql.WRITE_EVENT_IDS, plan.event_ids),
        (sql.DROP_MESSAGES, plan.messages_taken),
        (sql.SET_OWNERS, plan.owners),
        (sql.SET_DOCUMENTS, plan.pinned),
    ):
        if rows:
            await connection.execute(statement, *columns(rows))
    if plan.documents:
        await key_values.keep_documents(connection, plan.documents)
    if plan.poison:
        await ownership.mark_poison(connection, plan.poison)
    return plan


async def _facts(connection: Connection, batch: OperationBatch) -> Facts:
    """Insert the runs that the batch starts, lock the runs that it touches, and read what the plan needs of them."""
    facts = Facts()
    if batch.starts:
        rows = [start_values(start) for start in batch.starts.values()]
        facts.created = dict(await connection.fetch(sql.START_RUNS, *columns(rows)))
    there = [run_id for run_id in batch.run_ids if run_id not in facts.created]
    if there:
        for key, run_id, *values in await connection.fetch(sql.LOCK_RUNS, there):
            facts.runs[run_id] = LockedRun(key, *values)
    again = [start.run_id for start in batch.operations if isinstance(start, StartRun)]
    again = [run_id for run_id in again if run_id not in facts.created]
    if again:
        for run_id, workflow, start in await connection.fetch(sql.STARTED_BEFORE, again):
            facts.started[run_id] = Started(False, workflow, start)
        if len(facts.started) < len(again):
            raise ChangedSinceError
    await _learn_of_messages(connection, batch, facts)
    return facts


async def _learn_of_messages(connection: Connection, batch: OperationBatch, facts: Facts) -> None:
    """Count messages where that matters, and find which of the named event ids are known."""
    runs = {run.key: run for run in facts.runs.values()}
    counted: set[int] = set()
    named: list[tuple[Any, ...]] = []
    for operation in _with_sent(batch):
        run = facts.runs.get(operation.run_id)
        if run is None:
            continue
        if isinstance(operation, ReleaseRun) or (isinstance(operation, PostMessage) and operation.limit is not None):
            counted.add(run.key)
        if isinstance(operation, PostMessage) and operation.event_id is not None:
            named.append((run.key, operation.event_id))
    if counted:
        for key, count in await connection.fetch(sql.COUNT_MESSAGES, list(counted)):
            runs[key].inbox = count
    if named:
        for key, event_id in await connection.fetch(sql.KNOWN_EVENT_IDS, *columns(named)):
            runs[key].ids.add(event_id)


def _with_sent(batch: OperationBatch) -> Iterator[Single]:
    for operation in batch.operations:
        yield operation
        if isinstance(operation, CommitRun):
            yield from operation.sent


# --- what stands alone -----------------------------------------------------------------------------------------------


async def _write_wide(connection: Connection, operation: Wide, notified: dict[str, None]) -> Result:
    if isinstance(operation, ClaimRuns):
        workflows = list(operation.workflows)
        rows = await connection.fetch(sql.CLAIM_RUNS, operation.fence, workflows, operation.now, operation.limit)
        return [row[0] for row in rows]
    if isinstance(operation, ImportRun):
        imported = await _import(connection, operation.run)
        if imported:
            notified[operation.run.row.run_id] = None
        return imported
    if isinstance(operation, SignHead):
        return await _sign(connection, operation.row)
    if isinstance(operation, SetTags):
        return await _set_tags(connection, operation)
    if isinstance(operation, PurgeRuns):
        return await _purge(connection, operation)
    return await _write_deaths(connection, operation)


async def _write_deaths(connection: Connection, operation: TryRun | AcquitRun | ForgetDeaths) -> Result:
    if isinstance(operation, TryRun):
        return await ownership.try_one(connection, operation)
    if isinstance(operation, AcquitRun):
        return await ownership.acquit(connection, operation)
    return await ownership.forget_deaths(connection, operation)


async def _sign(connection: Connection, row: RunRow) -> bool:
    """Sign a row that has no signature, if it is as it was read."""
    head = row.head
    values = (head.mac, row.run_id, row.workflow, head.status, head.ticks, head.events, row.document)
    return bool(await connection.fetchval(sql.SIGN_HEAD, *values))


async def _set_tags(connection: Connection, asked: SetTags) -> bool:
    """Replace the tags of a run."""
    rows = await connection.fetch(sql.LOCK_TAGS, asked.run_id)
    for key, tags in rows:
        await connection.execute(sql.SET_TAGS, key, tags_values(replaced_tags(asked, tags_of(tags))))
    return bool(rows)


async def _purge(connection: Connection, operation: PurgeRuns) -> int:
    run_id, before, limit = operation.run_id, operation.ended_before, operation.limit
    if run_id is not None:
        gone = await connection.fetch(sql.ENDED_RUN, run_id, before, limit)
    elif before is not None:
        gone = await connection.fetch(sql.OLD_RUNS, before, limit)
    else:
        return 0
    if gone:
        await connection.execute(sql.PURGE_RUNS, [row[0] for row in gone])
        await key_values.drop_unused_documents(connection, {row[1] for row in gone if row[1] is not None})
    return len(gone)


async def _import(connection: Connection, run: StoredRun) -> bool:
    key = await connection.fetchval(sql.IMPORT_RUN, *import_values(run.row))
    if key is None:
        return False
    await connection.execute(sql.WRITE_START, key, run.start)
    if run.row.document is not None and run.document is not None:
        await key_values.keep_documents(connection, {run.row.document: (run.document, run.row.created_at)})
    snapshots = [] if run.snapshot is None else [(key, *snapshot_values(run.snapshot))]
    for statement, rows in (
        (sql.WRITE_CHUNKS, [(key, *chunk_values(chunk)) for chunk in run.chunks]),
        (sql.WRITE_SNAPSHOTS, snapshots),
        (sql.SET_TIMERS, [(key, timer.seq, timer.due, timer.purpose) for timer in run.timers]),
        (sql.WRITE_MESSAGES, [(key, run.row.created_at, message.data) for message in run.inbox]),
        (sql.WRITE_EVENT_IDS, [(key, event_id) for event_id in run.event_ids]),
    ):
        if rows:
            await connection.execute(statement, *columns(rows))
    return True

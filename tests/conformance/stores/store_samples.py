"""Short ways to write the operations that the tests are about."""

from __future__ import annotations

from typing import Any

import msgspec

from loom.store.operations import CommitRun, Operation, PostMessage, StartRun
from loom.store.ports import Store
from loom.store.records import Chunk, RunHead, RunQuery, StoredRun, TimerRow


def start(run_id: str = "r", workflow: str = "w", at: float = 1.0, **more: Any) -> StartRun:
    return StartRun(run_id, workflow, b"input of " + run_id.encode(), at, **more)


def post(run_id: str = "r", data: bytes = b"mail", **more: Any) -> PostMessage:
    return PostMessage(run_id, data, 2.0, **more)


def timer(seq: int, due: float) -> TimerRow:
    return TimerRow(seq, due, "sleep")


async def do(store: Store, operation: Operation) -> Any:
    """Apply one operation alone."""
    [result] = await store.apply([operation])
    return result


async def started(store: Store, run_id: str, fence: int, workflow: str = "w", at: float = 1.0, **more: Any) -> Owner:
    """Start a run that is owned at once."""
    await do(store, start(run_id, workflow, at, owner=fence, **more))
    return Owner(store, run_id, fence)


class Owner:
    """Writes one run, as its owner does: each commit continues the journal and the stream."""

    def __init__(self, store: Store, run_id: str, fence: int) -> None:
        self.store = store
        self.run_id = run_id
        self.fence = fence
        self.ticks = 0
        self.events = 0

    def next(self, ticks: int = 1, events: int = 0, head: dict[str, Any] | None = None, **more: Any) -> CommitRun:
        """A commit that adds so many ticks and events."""
        chunk = Chunk(self.ticks, ticks, self.events, events, f"{self.run_id}:{self.ticks}:{self.events}".encode())
        self.ticks += ticks
        self.events += events
        values: dict[str, Any] = {"status": "running", "updated_at": 2.0 + self.ticks, "needs_worker": False}
        values |= head or {}
        row = RunHead(ticks=self.ticks, events=self.events, **values)
        return CommitRun(self.run_id, self.fence, row, **({"chunk": chunk} | more))

    async def commit(self, ticks: int = 1, events: int = 0, head: dict[str, Any] | None = None, **more: Any) -> Any:
        return await do(self.store, self.next(ticks, events, head, **more))

    async def end(self, status: str = "completed", at: float = 9.0) -> Any:
        return await self.commit(head={"status": status, "updated_at": at})

    async def everything(self) -> StoredRun:
        return await exported(self.store, self.run_id)


async def exported(store: Store, run_id: str = "r") -> StoredRun:
    """All that is stored of a run, in a form that two stores can be compared by."""
    stored = await store.export(run_id)
    assert stored is not None
    return comparable(stored)


async def document_of(store: Store, run_id: str = "r") -> tuple[str | None, bytes | None]:
    """What `get` and `load` say of the document of a run."""
    row, loaded = await store.get(run_id), await store.load(run_id)
    assert row is not None
    assert loaded is not None
    assert loaded.row.document == row.document
    return row.document, loaded.document


def comparable(stored: StoredRun) -> StoredRun:
    """Without what a store may choose: the numbers of mail, and the order of what is a set."""
    head = msgspec.structs.replace(stored.row.head, waiting_for=tuple(sorted(stored.row.head.waiting_for)))
    return msgspec.structs.replace(
        stored,
        row=msgspec.structs.replace(stored.row, head=head),
        inbox=tuple(msgspec.structs.replace(message, id=0) for message in stored.inbox),
        timers=tuple(sorted(stored.timers, key=lambda timer: timer.seq)),
        event_ids=tuple(sorted(stored.event_ids)),
    )


async def ids(store: Store, **query: Any) -> list[str]:
    """The runs that a query finds."""
    return [row.run_id for row in await store.find(RunQuery(**query))]


async def messages_of(store: Store, run_id: str = "r") -> list[bytes]:
    return [message.data for message in await store.inbox(run_id, 0)]

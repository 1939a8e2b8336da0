"""What of operations and records is sealed: whatever people and workflows put into runs, but not names and times.

May import msgspec, and the operations, records and sealed values beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.store.errors import CorruptEntry, CorruptRecord, KeyUnavailable
from loom.store.operations import CommitRun, ImportRun, ParkRun, PostMail, Started, StartRun

if TYPE_CHECKING:
    from loom.store.encrypted_values import Sealer
    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, Entry, Mail, RunHead, RunRow, Snapshot, StoredRun


class Records:
    """Seals operations, and opens results and records."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    # -- sealing ------------------------------------------------------------------------------------------------------

    def sealed(self, operation: Operation) -> Operation:
        """An operation as the store beneath shall see it."""
        match operation:
            case CommitRun():
                return self._sealed_commit(operation)
            case StartRun() | PostMail():
                return self._sealed_input(operation)
            case ParkRun():
                return replace(operation, reason=self._sealer.seal_text(operation.reason, "parked", operation.run_id))
            case ImportRun():
                return ImportRun(self._sealed_run(operation.run))
            case _:
                return operation

    def _sealed_input(self, asked: StartRun | PostMail) -> StartRun | PostMail:
        if isinstance(asked, PostMail):
            return self._sealed_mail(asked)
        return replace(
            asked,
            start=self._sealer.seal(asked.start, "start", asked.run_id),
            document=self._sealed_document(asked.document),
            mail=None if asked.mail is None else self._sealed_mail(asked.mail),
        )

    def _sealed_mail(self, asked: PostMail) -> PostMail:
        return replace(asked, data=self._sealer.seal(asked.data, "mail", asked.run_id))

    def _sealed_document(self, document: tuple[str, bytes] | None) -> tuple[str, bytes] | None:
        return None if document is None else (document[0], self.seal_document(*document))

    def seal_document(self, digest: str, data: bytes) -> bytes:
        """The text of a definition."""
        return self._sealer.seal(data, "document", digest)

    def seal_entry(self, kind: str, key: str, data: bytes) -> bytes:
        """What an entry holds."""
        return self._sealer.seal(data, "entry", kind, key)

    def _sealed_commit(self, asked: CommitRun) -> CommitRun:
        run_id, chunk, snapshot = asked.run_id, asked.chunk, asked.snapshot
        return replace(
            asked,
            head=self._sealed_head(run_id, asked.head),
            chunk=None if chunk is None else self._sealed_chunk(run_id, chunk),
            snapshot=None if snapshot is None else self._sealed_snapshot(run_id, snapshot),
            sent=tuple(map(self._sealed_input, asked.sent)),
            document=self._sealed_document(asked.document),
        )

    def _sealed_head(self, run_id: str, head: RunHead) -> RunHead:
        sealer = self._sealer
        return replace(
            head,
            waiters=sealer.seal_list(head.waiters, "waiters", run_id),
            error=None if head.error is None else sealer.seal_text(head.error, "error", run_id),
            parked=None if head.parked is None else sealer.seal_text(head.parked, "parked", run_id),
            # Without a key of its own a link would let everybody try what the data might be.
            link=self._sealed_link(head.link, run_id),
        )

    def _sealed_link(self, link: bytes | None, run_id: str, *place: int) -> bytes | None:
        return None if link is None else self._sealer.seal(link, "link", run_id, *place)

    def _sealed_chunk(self, run_id: str, chunk: Chunk) -> Chunk:
        data = self._sealer.seal(chunk.data, "chunk", run_id, chunk.first_tick, chunk.first_cursor)
        return replace(chunk, data=data, previous=self._sealed_link(chunk.previous, run_id, chunk.first_tick))

    def _sealed_snapshot(self, run_id: str, snapshot: Snapshot) -> Snapshot:
        data = self._sealer.seal(snapshot.data, "snapshot", run_id, snapshot.ticks)
        return replace(snapshot, data=data, link=self._sealed_link(snapshot.link, run_id, snapshot.ticks))

    def _sealed_run(self, run: StoredRun) -> StoredRun:
        run_id, seal = run.row.run_id, self._sealer.seal
        document = run.document
        if document is not None and run.row.document is not None:
            document = self.seal_document(run.row.document, document)
        return replace(
            run,
            row=replace(run.row, head=self._sealed_head(run_id, run.row.head)),
            start=seal(run.start, "start", run_id),
            snapshot=None if run.snapshot is None else self._sealed_snapshot(run_id, run.snapshot),
            chunks=tuple(self._sealed_chunk(run_id, chunk) for chunk in run.chunks),
            mail=tuple(replace(mail, data=seal(mail.data, "mail", run_id)) for mail in run.mail),
            document=document,
        )

    # -- opening ------------------------------------------------------------------------------------------------------

    def result(self, operation: Operation, result: Result) -> Result:
        """What an operation has come to, as its caller shall see it."""
        if isinstance(operation, StartRun) and isinstance(result, Started) and not result.created:
            start = self._sealer.unseal(result.start, operation.run_id, "the start", "start", operation.run_id)
            return replace(result, start=start)
        return result

    def row(self, row: RunRow) -> RunRow:
        """The row of a run."""
        head, run_id, sealer = row.head, row.run_id, self._sealer
        error, parked = head.error, head.parked
        return replace(
            row,
            head=replace(
                head,
                waiters=sealer.unseal_list(head.waiters, run_id, "what it waits for", "waiters", run_id),
                error=None if error is None else sealer.unseal_text(error, run_id, "its error", "error", run_id),
                parked=None if parked is None else sealer.unseal_text(parked, run_id, "its row", "parked", run_id),
                link=self._link(head.link, run_id),
            ),
        )

    def listed_row(self, row: RunRow) -> RunRow:
        """The row of a run. One that does not open is shown as parked: a list has other runs too."""
        try:
            return self.row(row)
        except (CorruptRecord, KeyUnavailable) as error:
            return replace(row, head=replace(row.head, waiters=b"[]", error=None, parked=str(error), link=None))

    def _link(self, link: bytes | None, run_id: str, *place: int) -> bytes | None:
        return None if link is None else self._sealer.unseal(link, run_id, "a link", "link", run_id, *place)

    def chunk(self, run_id: str, chunk: Chunk) -> Chunk:
        """A chunk of a run's journal."""
        place = run_id, chunk.first_tick, chunk.first_cursor
        data = self._sealer.unseal(chunk.data, run_id, f"the chunk from tick {chunk.first_tick}", "chunk", *place)
        return replace(chunk, data=data, previous=self._link(chunk.previous, run_id, chunk.first_tick))

    def mail(self, run_id: str, mail: Mail) -> Mail:
        """A piece of a run's mail."""
        return replace(mail, data=self._sealer.unseal(mail.data, run_id, f"mail {mail.id}", "mail", run_id))

    def document(self, owner: str, digest: str, data: bytes) -> bytes:
        """The text of a definition."""
        try:
            return self._sealer.unseal(data, owner, f"the document {digest}", "document", digest)
        except CorruptRecord as error:
            raise CorruptEntry("document", digest, error.reason) from error

    def entry(self, entry: Entry) -> Entry:
        """An entry."""
        kind, key = entry.kind, entry.key
        try:
            data = self._sealer.unseal(entry.data, key, f"the data of {kind}", "entry", kind, key)
        except CorruptRecord as error:
            raise CorruptEntry(kind, key, error.reason) from error
        return replace(entry, data=data)

    def run(self, run: StoredRun) -> StoredRun:
        """Everything of a run."""
        run_id, snapshot, document = run.row.run_id, run.snapshot, run.document
        if document is not None and run.row.document is not None:
            document = self.document(run_id, run.row.document, document)
        return replace(
            run,
            row=self.row(run.row),
            start=self._sealer.unseal(run.start, run_id, "the start", "start", run_id),
            snapshot=None if snapshot is None else self._snapshot(run_id, snapshot),
            chunks=tuple(self.chunk(run_id, chunk) for chunk in run.chunks),
            mail=tuple(self.mail(run_id, mail) for mail in run.mail),
            document=document,
        )

    def _snapshot(self, run_id: str, snapshot: Snapshot) -> Snapshot:
        what = f"the snapshot after {snapshot.ticks} ticks"
        data = self._sealer.unseal(snapshot.data, run_id, what, "snapshot", run_id, snapshot.ticks)
        return replace(snapshot, data=data, link=self._link(snapshot.link, run_id, snapshot.ticks))

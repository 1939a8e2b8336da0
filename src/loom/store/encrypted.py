"""A store that encrypts: the store beneath sees only what can be read with its keys.

Sealed are inputs, journals, streams, snapshots, inbox messages, definitions, errors, what runs wait for, and data of
entries. What a database must search or count by stays plain: ids, names of workflows and event types, tags, times,
numbers, and the purposes of timers.

A sealed value is AES-256-GCM: the magic number, the length of the key's id, the id, 12 bytes of nonce, and the
ciphertext with its tag. The tag covers what the value is and whose it is, so that a value opens only in its own place.
`cryptography` is imported when the first sealer is made.
"""

from __future__ import annotations

import base64
import binascii
import os
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.store.errors import CorruptEntry, CorruptRecord, KeyUnavailable, WrongKeys
from loom.store.keyring import KEY_MARKERS, check_key_markers, key_markers
from loom.store.operations import CommitRun, ImportRun, ParkRun, PostMessage, Started, StartRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from loom.store.changes import ChangeReader, Look
    from loom.store.keyring import Keyring
    from loom.store.operations import Operation, Result
    from loom.store.ports import OwnedStore, Store
    from loom.store.records import (
        Chunk,
        Entry,
        InboxMessage,
        RunHead,
        RunQuery,
        RunRow,
        Snapshot,
        StoredRun,
    )

ENCRYPTION_KEYS = "LOOM_ENCRYPTION_KEYS"
PLAIN = "plain"
_USE = "encryption"


async def check_readable(store: Store) -> None:
    """Raise `WrongKeys` if an open store was written with encryption and is read without: it shows key markers."""
    await check_key_markers(store, _USE, None, ENCRYPTION_KEYS)


class EncryptedStore:
    """Encrypts on the way into another store, and decrypts on the way back."""

    def __init__(self, inner: OwnedStore, ring: Keyring) -> None:
        self.inner = inner
        self.exclusive = inner.exclusive
        self.keyed = inner.keyed
        self._ring = ring
        self.sealer = Sealer(ring)
        """For what belongs to the store and is kept beside it."""
        self._records = _Records(self.sealer)
        # What holds nothing that is sealed is that of the store beneath.
        self.close = inner.close
        self.join, self.beat, self.owned = inner.join, inner.beat, inner.owned
        self.members = inner.members
        self.holder, self.timers_due, self.descendants = inner.holder, inner.timers_due, inner.descendants
        self.next_timers = inner.next_timers
        self.counts, self.held_counts, self.workflow_counts = inner.counts, inner.held_counts, inner.workflow_counts
        self.size = inner.size
        self.drop_entry, self.drop_expired = inner.drop_entry, inner.drop_expired

    @property
    def on_notification(self) -> Callable[[Sequence[str]], None]:
        """See the port."""
        return self.inner.on_notification

    @on_notification.setter
    def on_notification(self, listener: Callable[[Sequence[str]], None]) -> None:
        self.inner.on_notification = listener

    async def open(self) -> None:
        """Open the store beneath. `WrongKeys` if it was written with other keys, or without any."""
        await self.inner.open()
        try:
            await self._check()
        except BaseException:
            await self.inner.close()
            raise

    async def _check(self) -> None:
        if not self._ring.lenient and not await key_markers(self.inner, _USE):
            counts = await self.inner.counts()
            if counts["running"] + counts["completed"] + counts["failed"] + counts["cancelled"]:
                raise WrongKeys(
                    f"This store has runs that are not encrypted. The word `{PLAIN}` in {ENCRYPTION_KEYS}, beside the "
                    "keys, lets them be read; what is written from then on is encrypted."
                )
        await check_key_markers(self.inner, _USE, self._ring, ENCRYPTION_KEYS)

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """Write a group in one transaction."""
        results = await self.inner.apply([self._records.sealed(operation) for operation in group])
        return [self._records.result(*pair) for pair in zip(group, results, strict=True)]

    async def get(self, run_id: str) -> RunRow | None:
        """Return the row of a run; None if there is none."""
        row = await self.inner.get(run_id)
        return None if row is None else self._records.row(row)

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match."""
        return [self._records.listed_row(row) for row in await self.inner.find(query)]

    def change_reader(self, after: str | None = None) -> _OpenedChanges:
        """Make a reader of changed runs, from its first look on or after a position."""
        return _OpenedChanges(self.inner.change_reader(after), self._records)

    async def load(self, run_id: str) -> StoredRun | None:
        """Return what is needed to recover a run."""
        stored = await self.inner.load(run_id)
        return None if stored is None else self._records.run(stored)

    async def export(self, run_id: str) -> StoredRun | None:
        """Return everything of a run, decrypted."""
        stored = await self.inner.export(run_id)
        return None if stored is None else self._records.run(stored)

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """Return the messages of a run after an id."""
        return [self._records.message(run_id, message) for message in await self.inner.inbox(run_id, after)]

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, beginning with the one that holds this tick."""
        return [self._records.chunk(run_id, chunk) for chunk in await self.inner.chunks(run_id, first_tick, limit)]

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, beginning with the one that holds this cursor."""
        return [self._records.chunk(run_id, chunk) for chunk in await self.inner.stream(run_id, cursor, limit)]

    async def document(self, digest: str) -> bytes | None:
        """Return the text of a definition; None if there is none."""
        data = await self.inner.document(digest)
        return None if data is None else self._records.document(digest, digest, data)

    async def save_document(self, digest: str, data: bytes) -> None:
        """Store a definition for good."""
        await self.inner.save_document(digest, self._records.seal_document(digest, data))

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """Store an entry, if the stored one is the expected one."""
        # Markers say which keys a process needs, so it must be able to read them without.
        held = data if kind == KEY_MARKERS else self._records.seal_entry(kind, key, data)
        return await self.inner.put_entry(kind, key, held, expires_at=expires_at, expect=expect)

    async def entry(self, kind: str, key: str) -> Entry | None:
        """Return an entry, unless it has expired."""
        return self._entry(await self.inner.entry(kind, key))

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """Return the entries of a kind after a key, in the order of keys."""
        found = await self.inner.entries(kind, after, limit)
        if kind == KEY_MARKERS:  # a reader that sees no marker of encryption needs no key
            return [entry for entry in found if not entry.key.startswith(f"{_USE}.")]
        return [self._records.entry(entry) for entry in found]

    def _entry(self, entry: Entry | None) -> Entry | None:
        return entry if entry is None or entry.kind == KEY_MARKERS else self._records.entry(entry)


class _OpenedChanges:
    """A reader of changes that opens the rows of another one."""

    def __init__(self, inner: ChangeReader, records: _Records) -> None:
        self.pause = inner.pause
        self._inner = inner
        self._records = records

    async def look(self) -> Look:
        """See `ChangeReader`."""
        look = await self._inner.look()
        opened = [
            each._replace(row=self._records.listed_row(each.row)) if each.row is not None else each
            for each in look.changed
        ]
        return look._replace(changed=opened)


class _Records:
    """Seals operations, and opens results and records."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    # -- sealing ------------------------------------------------------------------------------------------------------

    def sealed(self, operation: Operation) -> Operation:
        """Return an operation as the store beneath gets it."""
        match operation:
            case CommitRun():
                return self._sealed_commit(operation)
            case StartRun() | PostMessage():
                return self._sealed_input(operation)
            case ParkRun():
                return replace(operation, reason=self._sealer.seal_text(operation.reason, "parked", operation.run_id))
            case ImportRun():
                return ImportRun(self._sealed_run(operation.run))
            case _:
                return operation

    def _sealed_input(self, asked: StartRun | PostMessage) -> StartRun | PostMessage:
        if isinstance(asked, PostMessage):
            return self._sealed_message(asked)
        return replace(
            asked,
            start=self._sealer.seal(asked.start, "start", asked.run_id),
            document=self._sealed_document(asked.document),
            message=None if asked.message is None else self._sealed_message(asked.message),
        )

    def _sealed_message(self, asked: PostMessage) -> PostMessage:
        return replace(asked, data=self._sealer.seal(asked.data, "mail", asked.run_id))

    def _sealed_document(self, document: tuple[str, bytes] | None) -> tuple[str, bytes] | None:
        return None if document is None else (document[0], self.seal_document(*document))

    def seal_document(self, digest: str, data: bytes) -> bytes:
        """Seal the text of a definition."""
        return self._sealer.seal(data, "document", digest)

    def seal_entry(self, kind: str, key: str, data: bytes) -> bytes:
        """Seal the data of an entry."""
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
            inbox=tuple(replace(message, data=seal(message.data, "mail", run_id)) for message in run.inbox),
            document=document,
        )

    # -- opening ------------------------------------------------------------------------------------------------------

    def result(self, operation: Operation, result: Result) -> Result:
        """Return the result of an operation as its caller gets it."""
        if isinstance(operation, StartRun) and isinstance(result, Started) and not result.created:
            start = self._sealer.unseal(result.start, operation.run_id, "the start", "start", operation.run_id)
            return replace(result, start=start)
        return result

    def row(self, row: RunRow) -> RunRow:
        """Open the row of a run."""
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
        """Open the row of a run. One that does not open is shown as parked: a list has other runs too."""
        try:
            return self.row(row)
        except (CorruptRecord, KeyUnavailable) as error:
            return replace(row, head=replace(row.head, waiters=b"[]", error=None, parked=str(error), link=None))

    def _link(self, link: bytes | None, run_id: str, *place: int) -> bytes | None:
        return None if link is None else self._sealer.unseal(link, run_id, "a link", "link", run_id, *place)

    def chunk(self, run_id: str, chunk: Chunk) -> Chunk:
        """Open a chunk of a run's journal."""
        place = run_id, chunk.first_tick, chunk.first_cursor
        data = self._sealer.unseal(chunk.data, run_id, f"the chunk from tick {chunk.first_tick}", "chunk", *place)
        return replace(chunk, data=data, previous=self._link(chunk.previous, run_id, chunk.first_tick))

    def message(self, run_id: str, message: InboxMessage) -> InboxMessage:
        """Open a message of a run."""
        return replace(message, data=self._sealer.unseal(message.data, run_id, f"mail {message.id}", "mail", run_id))

    def document(self, owner: str, digest: str, data: bytes) -> bytes:
        """Open the text of a definition."""
        try:
            return self._sealer.unseal(data, owner, f"the document {digest}", "document", digest)
        except CorruptRecord as error:
            raise CorruptEntry("document", digest, error.reason) from error

    def entry(self, entry: Entry) -> Entry:
        """Open an entry."""
        kind, key = entry.kind, entry.key
        try:
            data = self._sealer.unseal(entry.data, key, f"the data of {kind}", "entry", kind, key)
        except CorruptRecord as error:
            raise CorruptEntry(kind, key, error.reason) from error
        return replace(entry, data=data)

    def run(self, run: StoredRun) -> StoredRun:
        """Open everything of a run."""
        run_id, snapshot, document = run.row.run_id, run.snapshot, run.document
        if document is not None and run.row.document is not None:
            document = self.document(run_id, run.row.document, document)
        return replace(
            run,
            row=self.row(run.row),
            start=self._sealer.unseal(run.start, run_id, "the start", "start", run_id),
            snapshot=None if snapshot is None else self._snapshot(run_id, snapshot),
            chunks=tuple(self.chunk(run_id, chunk) for chunk in run.chunks),
            inbox=tuple(self.message(run_id, message) for message in run.inbox),
            document=document,
        )

    def _snapshot(self, run_id: str, snapshot: Snapshot) -> Snapshot:
        what = f"the snapshot after {snapshot.ticks} ticks"
        data = self._sealer.unseal(snapshot.data, run_id, what, "snapshot", run_id, snapshot.ticks)
        return replace(snapshot, data=data, link=self._link(snapshot.link, run_id, snapshot.ticks))


MAGIC = b"\x00loom\x01"
"""No text begins with it."""
_TEXT = "loom-sealed:"
_LIST, _LIST_END = b'["loom-sealed:', b'"]'
_NONCE = 12

_Place = tuple[str | int, ...]
"""What a value is, whose it is, and where in that it stands."""


class Sealer:
    """Seals values with the first of its keys, and opens values of all."""

    __slots__ = ("_ciphers", "_head", "_writing", "ring")

    def __init__(self, ring: Keyring) -> None:
        self.ring = ring
        self._ciphers = {name.encode(): _cipher(key) for name, key in ring.keys.items()}
        name = ring.first.encode()
        self._writing = self._ciphers[name]
        self._head = MAGIC + bytes([len(name)]) + name

    def secret(self) -> bytes:
        """Return a secret that is made of the first key, for digests that tell nothing to those without it."""
        return blake2b(self.ring.keys[self.ring.first], digest_size=32, person=b"loom digests").digest()

    def seal(self, data: bytes, *place: str | int) -> bytes:
        """Seal a value for one place only."""
        # Chance is enough for a nonce: one key may seal billions of values before two meet.
        nonce = os.urandom(_NONCE)
        return self._head + nonce + self._writing.encrypt(nonce, data, _bound(place))

    def unseal(self, data: bytes, owner: str, what: str, *place: str | int) -> bytes:
        """Open a value that was sealed for this place. `owner` and `what` name it in errors."""
        if not data.startswith(MAGIC):
            if self.ring.lenient:
                return data
            raise CorruptRecord(
                owner, what, "it is not encrypted. If it is from before there was a key, the word `plain` lets it pass"
            )
        start = len(MAGIC) + 1 + data[len(MAGIC)] if len(data) > len(MAGIC) else len(data)
        name = data[len(MAGIC) + 1 : start]
        cipher = self._ciphers.get(name)
        if cipher is None:
            shown = name.decode("utf-8", "replace")
            raise KeyUnavailable(
                f"{what} of {owner!r} is encrypted with the key {shown!r}, and at hand is {self.ring.names}."
            )
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(data[start : start + _NONCE], data[start + _NONCE :], _bound(place))
        except (InvalidTag, ValueError) as error:
            raise CorruptRecord(owner, what, "it is damaged, or was written for another place") from error

    def seal_text(self, text: str, *place: str | int) -> str:
        """Seal a text as a text."""
        sealed = self.seal(text.encode("utf-8", "surrogatepass"), *place)
        return _TEXT + base64.b64encode(sealed).decode()

    def unseal_text(self, text: str, owner: str, what: str, *place: str | int) -> str:
        """Open a text. One that was not sealed is shown as it is: nothing follows from it."""
        if not text.startswith(_TEXT):
            return text
        data = _decoded(text[len(_TEXT) :].encode("utf-8", "replace"))
        return self.unseal(data, owner, what, *place).decode("utf-8", "surrogatepass")

    def seal_list(self, data: bytes, *place: str | int) -> bytes:
        """Seal a JSON list as a JSON list with one text. An empty one stays as it is."""
        if data == b"[]":
            return data
        return _LIST + base64.b64encode(self.seal(data, *place)) + _LIST_END

    def unseal_list(self, data: bytes, owner: str, what: str, *place: str | int) -> bytes:
        """Open a list. One that was not sealed is shown as it is."""
        if not data.startswith(_LIST):
            return data
        return self.unseal(_decoded(data[len(_LIST) : -len(_LIST_END)]), owner, what, *place)


def _decoded(text: bytes) -> bytes:
    """Decode base64. A damaged text becomes a value that does not open."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return MAGIC


def _bound(place: _Place) -> bytes:
    return "\0".join(map(str, place)).encode("utf-8", "surrogatepass")


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ImportError("Encryption needs an extra: pip install 'loom-workflows[encryption]'") from error
    return AESGCM(key)

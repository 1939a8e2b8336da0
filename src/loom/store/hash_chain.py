"""The chain of a journal: each chunk holds the link of the one before it, and the run's row that of the last one.

A link is a digest over the link before it and a chunk, so a chunk that was changed, removed, put in or moved does not
fit what follows it. With a key it is also a signature: who can write the database but lacks the key cannot make one.
A link begins with the id of its key, or with nothing, and a colon. What was written before there were links has none.

The first chunk follows on a link made of the run's id and of the digest of its document, so that no run can have the
journal of another one, nor another definition. Journals from before that have the id alone. Pruning takes chunks away
from the beginning: the first that is left says what it follows on, and all the rest is still bound to the row.

With keys, the head of a run is signed too: who cuts the last chunks off and sets the row back to the link before them
cannot make the signature of that row. An old row with its own old signature is as good as a new one: only an anchor,
which is kept outside of the store, tells them apart (`loom.runtime.verification`).
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from loom.store import payloads
from loom.store.errors import BadKeys, BrokenJournal
from loom.store.records import RunHead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.store.keyring import Keyring
    from loom.store.operations import StartRun
    from loom.store.records import Chunk, RunRow, Snapshot, StoredRun

_Kind = Literal["signed", "unsigned", "unchained", "unknown"]

HeadKind = Literal["signed", "unsigned", "unchecked"]
"""Of a head: its signature holds; it has none; it has one that this process has no keys to check."""

_numbers = Struct("<4q").pack
_head_numbers = Struct("<5q").pack
_SIZE = 24
"""Bytes of a digest: enough that two chunks with the same one cannot be found."""
_HEAD = "its row"
_UNBEGUN = RunHead("running", 0, 0, 0.0)
"""The signed fields of a run that was only started."""


def first_link(run_id: str, document: str | None = None) -> bytes:
    """Return the link that the first chunk of a run follows: a digest of its id and, in new runs, its document."""
    begins = blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=_SIZE, person=b"loom run").digest()
    if document is not None:
        named = begins + document.encode("utf-8", "surrogatepass")
        begins = blake2b(named, digest_size=_SIZE, person=b"loom document").digest()
    return b":" + begins


class Checked(NamedTuple):
    """A journal whose links hold, as far as it has any."""

    chunks: int
    unchained: int
    """Chunks that are older than links."""
    unsigned: int
    """Chunks whose links have no key."""
    unknown: int
    """Chunks whose links are signed, while this process has no keys to check them."""

    @property
    def is_signed(self) -> bool:
        """Tell whether all of it is signed."""
        return not self.unchained and not self.unsigned


class Links:
    """Makes links and checks them, with keys or without."""

    __slots__ = ("_begun", "_digest", "_heads", "_prefix", "heads_since", "ring")

    def __init__(self, ring: Keyring | None = None) -> None:
        self.ring = ring
        self.heads_since: float | None = None
        """Since when the store demands that every head is signed; None if it does not. See `loom.store.keyring`."""
        keys = {"": b""} | (ring.keys if ring is not None else {})
        self._begun = {name: blake2b(digest_size=_SIZE, key=key) for name, key in keys.items()}
        """Digests that have taken their key in, by the id of the key. Copies are cheaper than new ones."""
        name = ring.first if ring is not None else ""
        self._prefix, self._digest = name.encode() + b":", self._begun[name]
        signing = ring.keys if ring is not None else {}
        self._heads = {name: blake2b(digest_size=_SIZE, key=key, person=b"loom head") for name, key in signing.items()}

    def link(self, before: bytes, chunk: Chunk) -> bytes:
        """Return the link of a chunk that follows a link."""
        return self._prefix + _of_chunk(self._digest, before, chunk)

    def chained(
        self, run_id: str, chunks: Iterable[Chunk], document: str | None = None
    ) -> tuple[tuple[Chunk, ...], bytes]:
        """Chain chunks as the whole journal of a run. Return them, and the link of the last one."""
        link = first_link(run_id, document)
        chained: list[Chunk] = []
        for chunk in chunks:
            chained.append(replace(chunk, previous=link))
            link = self.link(link, chunk)
        return tuple(chained), link

    def seal(self, run_id: str, ticks: int, data: bytes) -> bytes:
        """Return the link of a snapshot, which depends on no other."""
        return self._prefix + _of_snapshot(self._digest, run_id, ticks, data)

    # -- heads --------------------------------------------------------------------------------------------------------

    def head_mac(self, run_id: str, workflow: str, document: str | None, head: RunHead) -> bytes | None:
        """Sign what a row says of its run, as it will be stored; None without keys."""
        if self.ring is None:
            return None
        return self._prefix + _of_head(self._heads[self.ring.first], run_id, workflow, document, head)

    def signed_start(self, start: StartRun) -> StartRun:
        """Sign the row that a start will make."""
        if self.ring is None:
            return start
        digest = start.document[0] if start.document is not None else None
        return replace(start, mac=self.head_mac(start.run_id, start.workflow, digest, _UNBEGUN))

    def signed_row(self, row: RunRow) -> RunRow:
        """Sign a row that is imported or forked. Without keys it has no signature: it may have one of another store."""
        mac = self.head_mac(row.run_id, row.workflow, row.document, row.head)
        return replace(row, head=replace(row.head, mac=mac))

    def holds(self, mac: bytes, row: RunRow, document: str | None, head: RunHead) -> bool:
        """Whether a signature is that of a head of a run, by the key that it names."""
        name, _, made = mac.partition(b":")
        begun = self._heads.get(name.decode("utf-8", "replace"))
        return begun is not None and compare_digest(made, _of_head(begun, row.run_id, row.workflow, document, head))

    def check_head(self, row: RunRow) -> HeadKind:
        """Compare the signature of a row with what the row says; `BrokenJournal` if it is another one.

        A head without one is broken only where the store demands signatures.
        """
        mac, ring = row.head.mac, self.ring
        if ring is None:
            return "unsigned" if mac is None else "unchecked"
        if mac is None:
            if self.heads_since is not None:
                raise BrokenJournal(row.run_id, _HEAD, "its signature is missing, and every head here has one")
            return "unsigned"
        if not self.holds(mac, row, row.document, row.head):
            self._key_of(row.run_id, _HEAD, mac)  # if the key is not here, that is what is told
            raise BrokenJournal(row.run_id, _HEAD, "the signature that was made of it is another one")
        return "signed"

    def anchor_seal(self, name: str | None = None) -> AnchorSeal:
        """Begin the signature of an anchor, with the first key or the one of this id. `BadKeys` without keys."""
        if self.ring is None:
            raise BadKeys("An anchor is signed: it needs the keys that the store is signed with.")
        name = name if name is not None else self.ring.first
        return AnchorSeal(name, blake2b(digest_size=_SIZE, key=self.ring.keys[name], person=b"loom anchor"))

    # -- journals -----------------------------------------------------------------------------------------------------

    def check(self, stored: StoredRun) -> Checked:
        """Compare the links of a run with what is stored of it; `BrokenJournal` says where they do not fit.

        The run may come from `export`, or from `load`: then only the chunks after the snapshot are checked.
        """
        checked = self._check_journal(stored)
        self.check_head(stored.row)  # last: a place in the journal says more than the row
        return checked

    def _check_journal(self, stored: StoredRun) -> Checked:
        row, chunks = stored.row, stored.chunks
        for chunk in chunks:
            payloads.check_whole(row.run_id, place(chunk), chunk.data)
        if stored.snapshot is not None:
            payloads.check_whole(row.run_id, "its snapshot", stored.snapshot.data)
            self._check_snapshot(row.run_id, stored.snapshot)
        if not chunks:
            return Checked(0, 0, 0, 0)
        begins = first_link(row.run_id)
        allowed = (None, begins) if row.document is None else (None, begins, first_link(row.run_id, row.document))
        if chunks[0].first_tick == 0 and chunks[0].previous not in allowed:
            raise BrokenJournal(
                row.run_id,
                place(chunks[0]),
                "it does not follow on the beginning of the run, or the run has another document now",
            )
        behind = [chunk.previous for chunk in chunks[1:]] + [row.head.link]
        found = [self._kind(row.run_id, chunk, link, begins) for chunk, link in zip(chunks, behind, strict=True)]
        checked = Checked(len(chunks), found.count("unchained"), found.count("unsigned"), found.count("unknown"))
        if self._must_be_signed and not checked.is_signed:
            raise BrokenJournal(
                row.run_id,
                "its journal",
                f"{checked.unchained + checked.unsigned} of {len(chunks)} chunks are not signed. If they were written "
                "before there was a key, the word `unsigned` among the keys lets them pass",
            )
        return checked

    @property
    def _must_be_signed(self) -> bool:
        return self.ring is not None and not self.ring.lenient

    def _kind(self, run_id: str, chunk: Chunk, link: bytes | None, begins: bytes) -> _Kind:
        """Tell how a chunk is protected by the link made of it."""
        if chunk.previous is None:
            if link is not None and link != begins:
                raise BrokenJournal(run_id, place(chunk), "its link is missing")
            return "unchained"
        if link is None:
            raise BrokenJournal(run_id, place(chunk), "the link that was made of it is missing")
        name, begun = self._key_of(run_id, place(chunk), link)
        if begun is None:
            return "unknown"
        if not compare_digest(link, name.encode() + b":" + _of_chunk(begun, chunk.previous, chunk)):
            raise BrokenJournal(run_id, place(chunk), "the link that was made of it is another one")
        return "signed" if name else "unsigned"

    def _check_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        where = f"the snapshot after {snapshot.ticks} ticks"
        if self._must_be_signed and (snapshot.link is None or snapshot.link.startswith(b":")):
            raise BrokenJournal(run_id, where, "it is not signed")
        if snapshot.link is None:
            return
        name, begun = self._key_of(run_id, where, snapshot.link)
        if begun is None:
            return
        made = name.encode() + b":" + _of_snapshot(begun, run_id, snapshot.ticks, snapshot.data)
        if not compare_digest(snapshot.link, made):
            raise BrokenJournal(run_id, where, "the link that was made of it is another one")

    def _key_of(self, run_id: str, where: str, link: bytes) -> tuple[str, blake2b | None]:
        """Return the id of a link's key, and a digest that begins with it; None if this process has no keys at all."""
        name = link.partition(b":")[0].decode("utf-8", "replace")
        begun = self._begun.get(name)
        if begun is None and self.ring is not None:
            raise BrokenJournal(run_id, where, f"it is signed with the key {name!r}, and at hand is {self.ring.names}")
        return name, begun


class AnchorSeal:
    """The signature of an anchor, line by line: see `loom.runtime.verification`."""

    def __init__(self, name: str, begun: blake2b) -> None:
        self._name = name
        self._digest = begun

    def add(self, line: bytes) -> None:
        """Add the next line."""
        self._digest.update(line)

    def made(self) -> bytes:
        """Return the signature of all lines so far."""
        return self._name.encode() + b":" + self._digest.digest()


def check_whole(stored: StoredRun) -> None:
    """Raise `BrokenJournal` if ticks or events are missing between what was pruned and what the row counts.

    What was pruned is in the snapshot: a run that begins later than that has lost something.
    """
    row = stored.row
    if row.first_tick > (0 if stored.snapshot is None else stored.snapshot.ticks):
        raise BrokenJournal(
            row.run_id,
            "the beginning of its journal",
            f"its first {row.first_tick} ticks are missing, and no snapshot covers them",
        )
    tick, cursor = row.first_tick, 0 if row.first_tick == 0 else None
    for chunk in stored.chunks:
        if chunk.first_tick != tick or cursor not in (None, chunk.first_cursor):
            raise BrokenJournal(row.run_id, place(chunk), f"tick {tick} was to come, at event {cursor}")
        tick, cursor = tick + chunk.ticks, chunk.first_cursor + chunk.events
    if tick != row.head.ticks or cursor not in (None, row.head.events):
        raise BrokenJournal(
            row.run_id,
            f"the end of its journal, behind {tick} ticks and {cursor} events,",
            f"its row counts {row.head.ticks} and {row.head.events}",
        )


def place(chunk: Chunk) -> str:
    """Name a chunk, for people."""
    return f"the chunk of {chunk.ticks} ticks from tick {chunk.first_tick}"


def _of_chunk(begun: blake2b, before: bytes, chunk: Chunk) -> bytes:
    digest = begun.copy()
    digest.update(before + _numbers(chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events) + chunk.data)
    return digest.digest()


def _of_head(begun: blake2b, run_id: str, workflow: str, document: str | None, head: RunHead) -> bytes:
    names = run_id + workflow
    no_document = -1 if document is None else len(document)
    digest = begun.copy()
    # The lengths say where one name ends and the next begins.
    digest.update(_head_numbers(head.ticks, head.events, len(run_id), len(workflow), no_document))
    digest.update(f"{names}{document or ''}{head.status}:".encode("utf-8", "surrogatepass") + (head.link or b""))
    return digest.digest()


def _of_snapshot(begun: blake2b, run_id: str, ticks: int, data: bytes) -> bytes:
    digest = begun.copy()
    # No chunk has such numbers: what was made of a snapshot is never taken for what was made of a chunk.
    digest.update(first_link(run_id) + _numbers(ticks, -1, -1, -1))
    digest.update(data)
    return digest.digest()

"""Anchors: what a store holds of every run at a moment, signed, in a file that is kept where the database is not.

A run's row carries its own signature, so nobody without the keys can make another one. But an old row, put back with
the journal and the signature of its time, is as good as it was then: the database alone cannot show that it was newer.
An anchor can. A run only grows, so whatever has fewer ticks than its anchor, or another past, was put back.

The file has one JSON value per line: what the anchor is, then one list per run, then the signature of all lines before.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from loom.store.errors import CorruptRecord, StoreError
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from loom.store.chain import Links
    from loom.store.ports import Store
    from loom.store.records import RunHead, RunRow, RunStatus

_VERSION = 1
_PAGE = 200
_ENDED = ("completed", "cancelled")
"""Runs that have ended for good. One that has failed may be retried."""

_encode = msgspec.json.Encoder().encode


class BadAnchor(StoreError):
    """A file is no anchor, was changed, or was made with a key that is not here."""


class AnchoredRun(NamedTuple):
    """What an anchor knows of a run."""

    run_id: str
    ticks: int
    events: int
    status: RunStatus
    mac: bytes
    """The signature that its row had, or would have had."""


class Anchor(NamedTuple):
    """An anchor that was read, and whose signature holds."""

    at: float
    heads_since: float | None
    """Since when the store demanded that every row is signed."""
    runs: tuple[AnchoredRun, ...]


class Difference(NamedTuple):
    """A run that is not what its anchor knows."""

    run_id: str | None
    """None if it concerns the store as a whole."""
    problem: str
    gone: bool = False
    """The run is not there at all: it may have been purged."""


# -- making ----------------------------------------------------------------------------------------------------------


async def anchor_lines(store: Store, links: Links, now: float) -> AsyncIterator[str]:
    """The lines of an anchor of all runs, each with its end. `BrokenJournal` if a row is not what was written."""
    seal = links.anchor_seal()
    line = _line({"loom_anchor": _VERSION, "at": now, "heads_since": links.heads_since})
    seal.add(line)
    yield line.decode()
    query = RunQuery(limit=_PAGE)
    while rows := await store.find(query):
        for row in rows:
            links.check_head(row)
            mac = links.head_mac(row.run_id, row.workflow, row.document, row.head)
            assert mac is not None
            head = row.head
            line = _line([row.run_id, head.ticks, head.events, head.status, _shown(mac)])
            seal.add(line)
            yield line.decode()
        query = replace(query, after=(rows[-1].created_at, rows[-1].run_id))
    yield _line({"root": _shown(seal.made())}).decode()


def _line(value: Any) -> bytes:
    return _encode(value) + b"\n"


def _shown(mac: bytes) -> str:
    """A signature as text: the id of its key, a colon, and the digest in hexadecimal."""
    name, _, digest = mac.partition(b":")
    return f"{name.decode()}:{digest.hex()}"


# -- reading ---------------------------------------------------------------------------------------------------------


def read_anchor(data: bytes, links: Links) -> Anchor:
    """An anchor whose signature holds; else `BadAnchor`."""
    lines = data.splitlines(keepends=True)
    try:
        first, root = msgspec.json.decode(lines[0]), msgspec.json.decode(lines[-1])
        version, at, heads_since = first["loom_anchor"], float(first["at"]), first["heads_since"]
        signature = _read(root["root"])
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise BadAnchor(f"This is no anchor, or only part of one: {error}.") from error
    if version != _VERSION:
        raise BadAnchor(f"The anchor has format {version}; this version of Loom reads {_VERSION}.")
    name = signature.partition(b":")[0].decode()
    if links.ring is None or name not in links.ring.keys:
        have = "no key" if links.ring is None else links.ring.names
        raise BadAnchor(f"The anchor is signed with the key {name!r}, and here is {have}.")
    seal = links.anchor_seal(name)
    for line in lines[:-1]:
        seal.add(line)
    if not compare_digest(signature, seal.made()):
        raise BadAnchor("The anchor was changed: the signature that was made of it is another one.")
    return Anchor(at, heads_since, tuple(_runs(lines[1:-1])))


def _runs(lines: Iterable[bytes]) -> Iterator[AnchoredRun]:
    for line in lines:
        run_id, ticks, events, status, mac = msgspec.json.decode(line)
        yield AnchoredRun(run_id, ticks, events, status, _read(mac))


def _read(text: str) -> bytes:
    name, _, digest = text.rpartition(":")
    return name.encode() + b":" + bytes.fromhex(digest)


# -- comparing -------------------------------------------------------------------------------------------------------


async def differences(store: Store, links: Links, anchor: Anchor) -> AsyncIterator[Difference]:
    """What of an anchor the store does not hold any more: runs that were put back, changed or are gone."""
    if anchor.heads_since is not None and links.heads_since is None:
        yield Difference(None, "The note that every row of this store is signed was there, and is gone.")
    for known in anchor.runs:
        try:
            row = await store.get(known.run_id)
        except CorruptRecord as error:
            yield Difference(known.run_id, str(error))
            continue
        if row is None:
            text = f"Run {known.run_id!r} is gone: it had {_size(known)}, and was {known.status}."
            yield Difference(known.run_id, text, gone=True)
            continue
        problem = await _problem(store, links, known, row)
        if problem is not None:
            yield Difference(known.run_id, f"Run {known.run_id!r} {problem}")


def _size(found: AnchoredRun | RunHead) -> str:
    return f"{found.ticks} ticks and {found.events} events"


async def _problem(store: Store, links: Links, known: AnchoredRun, row: RunRow) -> str | None:
    """What is wrong with a run, as the rest of a sentence; None if it is as it was, or has gone on since."""
    head = row.head
    if head.ticks < known.ticks or head.events < known.events:
        return f"was put back: it had {_size(known)}, and has {_size(head)}."
    if known.status in _ENDED and head.status != known.status:
        return f"was put back: it was {known.status}, and is {head.status}."
    if not known.ticks:
        return None if _was(links, known, row, None) else "is another one: its workflow or its document has changed."
    if head.ticks == known.ticks and head.events == known.events:
        return None if _was(links, known, row, head.link) else "is another one: its row has changed without a tick."
    if row.first_tick > known.ticks:
        return None  # what it was then is pruned
    chunks = await store.chunks(known.run_id, known.ticks, 1) if head.ticks > known.ticks else []
    if not chunks or (chunks[0].first_tick, chunks[0].first_cursor) != (known.ticks, known.events):
        return await _within(store, links, known, row)
    return None if _was(links, known, row, chunks[0].previous) else _OTHER_PAST


_OTHER_PAST = "is another one: it was put back to an earlier moment, and went on otherwise."


async def _within(store: Store, links: Links, known: AnchoredRun, row: RunRow) -> str | None:
    """The same for a run whose next chunk begins with the same tick, because it has only events."""
    found = await store.export(known.run_id)
    for chunk in found.chunks if found is not None else ():
        if (chunk.first_tick, chunk.first_cursor) == (known.ticks, known.events):
            return None if _was(links, known, row, chunk.previous) else _OTHER_PAST
    return _OTHER_PAST


def _was(links: Links, known: AnchoredRun, row: RunRow, link: bytes | None) -> bool:
    """Whether a run had the row that the anchor has signed, if its last link was this one."""
    head = replace(row.head, status=known.status, ticks=known.ticks, events=known.events, link=link)
    if links.holds(known.mac, row, row.document, head):
        return True
    # A run that nobody had begun may have got its document with its first commit.
    return not known.ticks and links.holds(known.mac, row, None, head)

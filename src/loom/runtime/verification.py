"""Verification of stored runs: whether a store still holds what was written to it. It asks three questions.

- `verify`: do links, places, documents and signed rows of a journal hold together? Nothing is replayed.
- `replayed_run`: does the journal, reduced again from its beginning, give the stored state, events and row?
- Anchors: was a run put back? A row carries its own signature, but an old row, put back with the journal of its time,
  is as good as it was then. An anchor is a signed list of all runs at a moment, in a file away from the database. Runs
  only grow, so one with fewer ticks than its anchor, or with another past, was put back.

An anchor has one JSON value per line: what it is, then one list per run, then the signature of all lines before.
"""

from __future__ import annotations

import json
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from loom.api.runs import Replay
from loom.core.commands import CommandPublishEvent
from loom.core.persistent import EMPTY_MAP
from loom.core.records import EventRecord
from loom.core.reducer import Draft, transition
from loom.core.state import BrokerState
from loom.effects.off_loop import aside
from loom.runtime.masking import shown_published
from loom.runtime.plain import fields_of, plain
from loom.runtime.planners import planner_for, program_in
from loom.runtime.run_head import HeadWriter
from loom.store import codec
from loom.store.errors import BrokenJournal, CorruptRecord, RunNotFound, StoreError
from loom.store.hash_chain import Links, check_whole
from loom.store.keyring import Keyring, note_signed_heads
from loom.store.operations import SignHead
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from loom.api.problems import RunStatus
    from loom.core.records import Published
    from loom.core.reducer import FieldReader
    from loom.runtime.durable.run_client import RunClient
    from loom.store.hash_chain import Checked, HeadKind
    from loom.store.ports import RunReads, Store
    from loom.store.records import Chunk, RunHead, RunRow, StoredRun

# -- journals and rows ------------------------------------------------------------------------------------------------


_PAGE = 200

Verdict = Literal["signed", "unsigned_head", "chained", "unchecked", "unchained", "empty", "broken"]
"""All of it is signed; the journal is signed but the run's row is not; it holds together; it is signed, and no key is
here; some of it is from before there were links; there is no journal yet; it is not what was written."""


class Verified(NamedTuple):
    """What was found of a run."""

    run_id: str
    verdict: Verdict
    problem: str | None = None
    """Of a broken one: what, and where."""
    head: HeadKind = "unsigned"
    """Whether its row is signed. Without keys rows have no signature, and need none."""


async def verified(store: RunReads, links: Links) -> AsyncIterator[Verified]:
    """Look at every run, newest first."""
    query = RunQuery(limit=_PAGE)
    while rows := await store.find(query):
        for row in rows:
            found = await verify(store, links, row.run_id)
            if found is not None:
                yield found
        query = replace(query, after=(rows[-1].created_at, rows[-1].run_id))


async def verify(store: RunReads, links: Links, run_id: str) -> Verified | None:
    """Look at one run; None if there is none of this id."""
    try:
        stored = await store.export(run_id)
        if stored is None:
            return None
        checked, head = _checked(stored, links), links.check_head(stored.row)
        return Verified(run_id, _verdict(checked, head), head=head)
    except CorruptRecord as error:
        return Verified(run_id, "broken", str(error))


def _checked(stored: StoredRun, links: Links) -> Checked:
    check_whole(stored)
    digest, text = stored.row.document, stored.document
    if digest is not None:
        from loom.flows.document import digest_of  # only flows need it, and it is much

        if text is None or digest_of(text.decode("utf-8", "replace")) != digest:
            raise BrokenJournal(stored.row.run_id, "its document", f"the text of {digest} is missing or damaged")
    return links.check(stored)


def _verdict(checked: Checked, head: HeadKind) -> Verdict:
    if not checked.chunks:
        return "empty"
    if checked.unchained:
        return "unchained"
    if checked.unknown:
        return "unchecked"
    if checked.unsigned:
        return "chained"
    return "signed" if head == "signed" else "unsigned_head"


class Signed(NamedTuple):
    """What came of signing the heads of a store."""

    since: float
    """When the store began to demand it."""
    signed: int = 0
    broken: tuple[Verified, ...] = ()
    """Runs that are not what was written: they stay as they are."""


async def sign_heads(store: Store, links: Links, now: float) -> Signed:
    """Sign the rows that have no signature yet, and note that from now on every row has one.

    It happens once. A row that lacks its signature after that may be a forger's, and is not signed.
    """
    if links.heads_since is not None:
        return Signed(links.heads_since)
    signed, broken = 0, list[Verified]()
    # Chunks from before there was a key do not become signed by this: those who check them still say so.
    lenient = Links(links.ring and Keyring(links.ring.keys, lenient=True, gone=links.ring.gone))
    async for found in verified(store, lenient):
        # A row that its owner has changed since it was read is read again.
        while found.verdict != "broken" and found.head == "unsigned":
            row = await store.get(found.run_id)
            if row is None or row.head.mac is not None:
                break
            if (await store.apply([SignHead(links.signed_row(row))]))[0]:
                signed += 1
                break
        if found.verdict == "broken":
            broken.append(found)
    await note_signed_heads(store, now)
    links.heads_since = now
    return Signed(now, signed, tuple(broken))


# -- replay -----------------------------------------------------------------------------------------------------------


_COMPARED = ("status", "ticks", "events", "idle_since", "kept", "paused", "error")


class Replayed(NamedTuple):
    """What a replay has found."""

    first_tick: int
    """The first tick that was replayed: 0, or the first that was not pruned."""
    ticks: int
    events: int
    snapshot: int | None
    """After how many ticks the stored snapshot was made, if there is one to compare with."""
    differences: list[str]
    state: BrokerState


@runtime_checkable
class KeepsHistories(Protocol):
    """A store whose runs have a history of their own beneath their journals."""

    async def history_problems(self, run_id: str) -> list[str]:
        """What of it does not lead to what it records, in words."""
        ...


async def replayed_run(runtime: RunClient, run_id: str) -> Replay:
    """Replay a stored run and say what that has found. A long journal is reduced in a thread, for it takes a while."""
    stored = await runtime.store.export(run_id)
    if stored is None:
        raise RunNotFound(run_id)
    found = await aside("replay", replayed, stored, runtime.field_reader(stored.row))
    differences = [*_broken_links(stored, runtime.links), *found.differences]
    if isinstance(runtime.store, KeepsHistories):
        differences += await runtime.store.history_problems(run_id)
    return Replay(
        run_id=run_id,
        replay="different" if differences else "same",
        first_tick=found.first_tick,
        ticks=found.ticks,
        events=found.events,
        snapshot=found.snapshot,
        differences=differences,
    )


def _broken_links(stored: StoredRun, links: Links) -> list[str]:
    """A journal that replays well may still be another one than was written."""
    try:
        links.check(stored)
    except BrokenJournal as error:
        return [str(error)]
    return []


def replayed(stored: StoredRun, read_field: FieldReader) -> Replayed:
    """Reduce all ticks of a run again, and compare the state, the stream and the row with what is stored."""
    run_id, snapshot = stored.row.run_id, stored.snapshot
    saved = codec.decode_state(run_id, snapshot.data) if snapshot is not None else None
    pruned = stored.row.first_tick > 0 and saved is not None
    planner = planner_for(stored.document)
    draft = Draft(saved if pruned and saved is not None else BrokerState(), planner, read_field)
    first, differences = draft.ticks, list[str]()
    for chunk in stored.chunks:
        if chunk.first_tick + chunk.ticks <= draft.ticks:
            continue
        differences += _reduce_chunk(run_id, chunk, draft, None if pruned else saved)
    state = draft.freeze()
    differences += _other_fields(stored, state)
    compared = saved.ticks if saved is not None and not pruned else None
    return Replayed(first, state.ticks - first, state.published, compared, differences, state)


def _reduce_chunk(run_id: str, chunk: Chunk, draft: Draft, saved: BrokerState | None) -> list[str]:
    differences: list[str] = []
    made: list[Published] = []
    program = program_in(draft.planner)
    whole = draft.ticks == chunk.first_tick
    if draft.ticks < chunk.first_tick:
        return [f"The journal lacks the ticks {draft.ticks} to {chunk.first_tick - 1}."]
    for tick in codec.decode_ticks(run_id, chunk)[draft.ticks - chunk.first_tick :]:
        transition(draft, tick)
        published = [command.event for command in draft.commands if isinstance(command, CommandPublishEvent)]
        made += [shown_published(program, event) for event in published]
        draft.commands = []
        if saved is not None and draft.ticks == saved.ticks:
            differences += _other_state(draft.freeze(), saved)
    if whole:
        differences += _other_events(chunk, made, codec.decode_published(run_id, chunk))
    return differences


def _other_state(made: BrokerState, saved: BrokerState) -> list[str]:
    if not saved.waiting.asked:
        # Earlier versions kept no questions in snapshots. None of them decides anything.
        made = replace(made, waiting=replace(made.waiting, asked=EMPTY_MAP))
    names = [name for name in made.__struct_fields__ if getattr(made, name) != getattr(saved, name)]
    return [f"The snapshot after {saved.ticks} ticks differs in: {', '.join(names)}."] if names else []


def _other_events(chunk: Chunk, made: list[Published], stored: list[Published]) -> list[str]:
    for cursor, (new, old) in enumerate(zip(made, stored, strict=False), chunk.first_cursor):
        if new != old:
            return [f"Event {cursor} is stored as: {_words(old)}; replay gives: {_words(new)}."]
    if len(made) != len(stored):
        where = f"the ticks {chunk.first_tick} to {chunk.first_tick + chunk.ticks - 1}"
        return [f"Of {where} {len(stored)} events are stored; replay gives {len(made)}."]
    return []


def _words(published: Published) -> str:
    """What stands on the stream, in one line. Of a flow's records only what they are: they may hold what is secure."""
    if not isinstance(published, EventRecord):
        return f"{type(published).__name__}({_listed(plain(published))})"
    name = published.kind.label or published.kind.name
    return f"{name}({_listed(fields_of(published))})" if isinstance(published.body, str) else name


def _listed(fields: Any) -> str:
    if not isinstance(fields, dict):
        return str(fields)
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())


def _other_fields(stored: StoredRun, state: BrokerState) -> list[str]:
    if stored.row.head.ticks == 0:
        return []
    head, _ = HeadWriter().head(state, lambda: state, 0.0)
    # The caller that asked for a retry has set the status, and the tick is still in the inbox.
    names = [name for name in _COMPARED if not (stored.inbox and name in ("status", "error", "idle_since"))]
    if head.idle_since is not None:
        # The error of an idle run says why it is stuck: its owner words that from more than the state.
        names = [name for name in names if name != "error"]
    return [
        _difference(name, stored.row.head, head) for name in names if _get(stored.row.head, name) != _get(head, name)
    ]


def _difference(name: str, stored: RunHead, made: RunHead) -> str:
    return f"The row says {name}={_get(stored, name)!r}; replay gives {_get(made, name)!r}."


def _get(head: RunHead, name: str) -> Any:
    return getattr(head, name)


# -- anchors ----------------------------------------------------------------------------------------------------------


_VERSION = 1
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


async def anchor_lines(store: RunReads, links: Links, now: float) -> AsyncIterator[str]:
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


async def differences(store: RunReads, links: Links, anchor: Anchor) -> AsyncIterator[Difference]:
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


async def _problem(store: RunReads, links: Links, known: AnchoredRun, row: RunRow) -> str | None:
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


async def _within(store: RunReads, links: Links, known: AnchoredRun, row: RunRow) -> str | None:
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

"""Whether the journals of stored runs are what was written: their links, their places, their documents, their heads.

Nothing is replayed here: `loom.runtime.replaying` does that. What an old row that was put back looks like, only an
anchor tells: see `loom.runtime.anchors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from loom.flows.document import digest_of
from loom.store.chain import Links, check_whole
from loom.store.errors import BrokenJournal, CorruptRecord
from loom.store.keyring import Keyring
from loom.store.marks import note_signed_heads
from loom.store.operations import SignHead
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.store.chain import Checked, HeadKind
    from loom.store.ports import Store
    from loom.store.records import StoredRun

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


async def verified(store: Store, links: Links) -> AsyncIterator[Verified]:
    """Look at every run, newest first."""
    query = RunQuery(limit=_PAGE)
    while rows := await store.find(query):
        for row in rows:
            found = await verify(store, links, row.run_id)
            if found is not None:
                yield found
        query = replace(query, after=(rows[-1].created_at, rows[-1].run_id))


async def verify(store: Store, links: Links, run_id: str) -> Verified | None:
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
    if digest is not None and (text is None or digest_of(text.decode("utf-8", "replace")) != digest):
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

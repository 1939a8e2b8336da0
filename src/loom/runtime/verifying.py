"""Whether the journals of stored runs are what was written: their links, their places, their documents.

Nothing is replayed here: `loom.runtime.replaying` does that. May import loom.flows and loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from loom.flows.document import digest_of
from loom.store.chain import check_whole
from loom.store.errors import BrokenJournal, CorruptRecord
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.store.chain import Checked, Links
    from loom.store.ports import Store
    from loom.store.records import StoredRun

_PAGE = 200

Verdict = Literal["signed", "chained", "unchecked", "unchained", "empty", "broken"]
"""All of it is signed; it holds together; it is signed, and no key is at hand; some of it is from before there were
links; there is no journal yet; it is not what was written."""


class Verified(NamedTuple):
    """What was found of a run."""

    run_id: str
    verdict: Verdict
    problem: str | None = None
    """Of a broken one: what, and where."""


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
        return Verified(run_id, _verdict(_checked(stored, links))) if stored is not None else None
    except CorruptRecord as error:
        return Verified(run_id, "broken", str(error))


def _checked(stored: StoredRun, links: Links) -> Checked:
    check_whole(stored)
    digest, text = stored.row.document, stored.document
    if digest is not None and (text is None or digest_of(text.decode("utf-8", "replace")) != digest):
        raise BrokenJournal(stored.row.run_id, "its document", f"the text of {digest} is missing or damaged")
    return links.check(stored)


def _verdict(checked: Checked) -> Verdict:
    if not checked.chunks:
        return "empty"
    if checked.unchained:
        return "unchained"
    if checked.unknown:
        return "unchecked"
    return "chained" if checked.unsigned else "signed"

"""A start may lack its document: whoever takes the run up brings it with a commit, and then the run keeps it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_databases import Database
from store_samples import Owner, do, document_of, exported, post, start, started, timer

from loom.store.operations import ClaimRun, ImportRun, ParkRun, PurgeRuns, ReleaseRun, Started
from loom.store.ports import Store
from loom.store.records import RunQuery, Snapshot

DIGEST = "sha256:2e"
TEXT = '{"definition": "ö"}'.encode()
DOCUMENT = (DIGEST, TEXT)


async def test_the_first_commit_brings_the_document(store: Store, owner: Owner) -> None:
    assert await document_of(store) == (None, None)
    assert await owner.commit(document=DOCUMENT) is True
    assert await document_of(store) == DOCUMENT
    assert (await exported(store)).document == TEXT
    assert [row.document for row in await store.find(RunQuery())] == [DIGEST]


async def test_what_else_the_commit_has_is_written_too(store: Store, owner: Owner) -> None:
    await do(store, post("r"))
    [letter] = await store.inbox("r", 0)
    head = {"idle_since": 4.0, "waiters": b"[1]", "waiting_for": ("A",)}
    more: dict[str, Any] = {
        "timers_set": (timer(1, 8.0),),
        "messages_taken": (letter.id,),
        "snapshot": Snapshot(1, b"s"),
    }
    sent = (start("child", document=("other", b"other")), start("plain"))
    assert await owner.commit(2, 1, head, document=DOCUMENT, sent=sent, **more) is True
    stored = await owner.everything()
    assert (stored.row.head.ticks, stored.row.head.idle_since, stored.row.head.waiting_for) == (2, 4.0, ("A",))
    assert (len(stored.chunks), stored.inbox, stored.timers) == (1, (), (timer(1, 8.0),))
    assert stored.snapshot == Snapshot(1, b"s")
    assert [await document_of(store, name) for name in ("r", "child", "plain")] == [
        DOCUMENT,
        ("other", b"other"),
        (None, None),
    ]


async def test_a_commit_without_a_chunk_may_bring_it(store: Store, owner: Owner) -> None:
    assert await owner.commit(0, chunk=None, document=DOCUMENT) is True
    assert await document_of(store) == DOCUMENT


async def test_later_commits_leave_it_alone(store: Store, owner: Owner) -> None:
    await owner.commit(document=DOCUMENT)
    await owner.commit()
    await owner.commit(head={"idle_since": 4.0})
    assert await document_of(store) == DOCUMENT


@pytest.mark.parametrize("brought_by", ["start", "commit"])
async def test_a_run_that_has_one_keeps_it_and_the_other_is_not_stored(
    store: Store, fence: int, brought_by: str
) -> None:
    owner = await started(store, "r", fence, document=DOCUMENT if brought_by == "start" else None)
    if brought_by == "commit":
        await owner.commit(document=DOCUMENT)
    assert await owner.commit(document=("other", b"other")) is True
    assert await owner.commit(head={"idle_since": 4.0}, document=("other", b"other")) is True
    assert await document_of(store) == DOCUMENT
    assert await store.document("other") is None


async def test_in_one_group_the_first_commit_of_a_run_decides(store: Store, owner: Owner) -> None:
    group = [owner.next(), owner.next(document=DOCUMENT), owner.next(document=("other", b"other"))]
    assert await store.apply(group) == [True] * 3
    assert await document_of(store) == DOCUMENT
    assert await store.document("other") is None


async def test_a_run_may_be_started_and_get_it_in_one_group(store: Store, fence: int) -> None:
    owner, other = Owner(store, "r", fence), Owner(store, "s", fence)
    group = [start("r", owner=fence), owner.next(document=DOCUMENT), start("s", owner=fence, document=("s", b"s"))]
    results = await store.apply([*group, other.next(document=DOCUMENT)])
    assert results == [Started(True), True, Started(True), True]
    assert [await document_of(store, name) for name in "rs"] == [DOCUMENT, ("s", b"s")]


async def test_many_runs_get_theirs_together(store: Store, fence: int) -> None:
    owners = [await started(store, f"r{number}", fence) for number in range(5)]
    documents = [DOCUMENT, ("other", b"other"), DOCUMENT, None, (DIGEST, b"another")]
    group = [owner.next(document=document) for owner, document in zip(owners, documents, strict=True)]
    assert await store.apply(group) == [True] * 5
    found = [await document_of(store, owner.run_id) for owner in owners]
    assert found == [DOCUMENT, ("other", b"other"), DOCUMENT, (None, None), DOCUMENT]


@pytest.mark.parametrize("is_started_first", [True, False])
async def test_the_first_text_under_a_digest_stays(store: Store, owner: Owner, is_started_first: bool) -> None:
    starts, commits = start("s", document=(DIGEST, b"by start")), owner.next(document=(DIGEST, b"by commit"))
    await store.apply([starts, commits] if is_started_first else [commits, starts])
    first = b"by start" if is_started_first else b"by commit"
    assert await document_of(store) == await document_of(store, "s") == (DIGEST, first)


async def test_the_run_comes_before_what_it_sends(store: Store, owner: Owner) -> None:
    await owner.commit(document=DOCUMENT, sent=(start("child", document=(DIGEST, b"another")),))
    assert await document_of(store, "child") == DOCUMENT


# --- what is not written ---------------------------------------------------------------------------------------------


async def test_a_commit_that_is_refused_stores_nothing(store: Store, owner: Owner) -> None:
    refused = replace(owner.next(document=DOCUMENT), fence=owner.fence + 1000)
    assert await do(store, refused) is False
    assert await store.apply([start("s"), refused]) == [Started(True), False]
    assert await do(store, replace(refused, run_id="unknown")) is False
    assert await document_of(store) == (None, None)
    assert await store.document(DIGEST) is None


@pytest.mark.parametrize("given_up_by", [ReleaseRun, ParkRun])
async def test_a_former_owner_cannot_bring_it(store: Store, owner: Owner, given_up_by: type) -> None:
    reason = ("why",) if given_up_by is ParkRun else ()
    await owner.commit()
    await do(store, given_up_by("r", owner.fence, *reason))
    assert await owner.commit(document=DOCUMENT) is False
    assert await document_of(store) == (None, None)
    assert await store.document(DIGEST) is None


async def test_beside_a_refused_commit_others_bring_theirs(store: Store, owner: Owner, fence: int) -> None:
    other = await started(store, "s", fence)
    refused = replace(owner.next(document=("refused", b"")), fence=fence + 1000)
    assert await store.apply([refused, other.next(document=DOCUMENT)]) == [False, True]
    assert await document_of(store) == (None, None)
    assert await document_of(store, "s") == DOCUMENT
    assert await store.document("refused") is None


async def test_a_group_that_fails_leaves_nothing_and_can_be_written_again(store: Store, owner: Owner) -> None:
    first = owner.next(document=DOCUMENT)
    owner.next()
    out_of_place = owner.next()
    for group in ([first, out_of_place], [first, start("s"), out_of_place]):
        with pytest.raises(Exception, match="does not follow"):
            await store.apply(group)
        assert await document_of(store) == (None, None)
        assert await store.document(DIGEST) is None
    assert await do(store, first) is True
    assert await document_of(store) == DOCUMENT


async def test_a_commit_out_of_place_brings_no_document(store: Store, owner: Owner) -> None:
    owner.next()
    with pytest.raises(Exception, match="does not follow"):
        await owner.commit(document=DOCUMENT)
    assert await document_of(store) == (None, None)
    assert await store.document(DIGEST) is None


# --- how long it stays -----------------------------------------------------------------------------------------------


async def test_the_next_owner_finds_it(store: Store, owner: Owner) -> None:
    await owner.commit(document=DOCUMENT)
    results = await store.apply([ReleaseRun("r", owner.fence), ClaimRun("r", owner.fence)])
    assert results == [True, True]
    assert await owner.commit(document=("other", b"other")) is True
    assert await document_of(store) == DOCUMENT
    assert await store.document("other") is None


async def test_a_run_that_ends_with_its_first_commit_keeps_it_until_it_is_purged(store: Store, owner: Owner) -> None:
    assert await owner.commit(head={"status": "completed"}, document=DOCUMENT) is True
    assert await document_of(store) == DOCUMENT
    assert await do(store, PurgeRuns(run_id="r")) == 1
    assert await store.document(DIGEST) is None


async def test_it_goes_with_the_last_run_that_has_it(store: Store, fence: int) -> None:
    owners = [await started(store, "a", fence, document=DOCUMENT), await started(store, "b", fence)]
    for owner in owners:
        await owner.commit(document=DOCUMENT)
        await owner.end()
    assert await do(store, PurgeRuns(run_id="a")) == 1
    assert await document_of(store, "b") == DOCUMENT
    assert await do(store, PurgeRuns(run_id="b")) == 1
    assert await store.document(DIGEST) is None


async def test_a_saved_document_stays_without_its_run(store: Store, owner: Owner) -> None:
    await store.save_document(DIGEST, TEXT)
    await owner.commit(head={"status": "failed"}, document=(DIGEST, b"another"))
    assert await document_of(store) == DOCUMENT
    assert await do(store, PurgeRuns(run_id="r")) == 1
    assert await store.document(DIGEST) == TEXT


async def test_in_one_group_it_comes_back_after_it_went(store: Store, owner: Owner, fence: int) -> None:
    old = await started(store, "old", fence, document=DOCUMENT)
    await old.end()
    assert await store.apply([PurgeRuns(run_id="old"), owner.next(document=DOCUMENT)]) == [1, True]
    assert await document_of(store) == DOCUMENT


async def test_a_run_started_anew_under_the_id_of_one_that_is_gone_gets_its_own(store: Store, owner: Owner) -> None:
    await owner.commit(document=DOCUMENT)
    await owner.end()
    await store.apply([PurgeRuns(run_id="r"), start("r", owner=owner.fence)])
    again = Owner(store, "r", owner.fence)
    assert await again.commit(document=("new", b"new")) is True
    assert await document_of(store) == ("new", b"new")


async def test_a_copy_carries_it(store: Store, owner: Owner) -> None:
    await owner.commit(document=DOCUMENT)
    stored = await store.export("r")
    assert stored is not None
    assert await do(store, ImportRun(replace(stored, row=replace(stored.row, run_id="copy")))) is True
    await owner.end()
    await do(store, PurgeRuns(run_id="r"))
    assert await document_of(store, "copy") == DOCUMENT


async def test_it_outlives_the_store(database: Database, store: Store, owner: Owner) -> None:
    await owner.commit(document=DOCUMENT)
    await store.close()
    assert await document_of(await database.open()) == DOCUMENT

"""The definitions that runs are started with: stored once, kept for as long as a run has them, and carried along."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from store_databases import KINDS, Database, new_database
from store_samples import Owner, do, document_of, exported, ids, start, started

from loom.runtime.durable.history import packed, unpacked
from loom.store.operations import ClaimRuns, ImportRun, PurgeRuns, Started
from loom.store.ports import Store
from loom.store.records import RunQuery, StoredRun

DIGEST = "sha256:1f"
TEXT = '{"definition": {"ä": "🧵"}}'.encode()
DOCUMENT = (DIGEST, TEXT)


async def test_a_run_has_the_document_that_it_was_started_with(store: Store) -> None:
    await do(store, start("r", document=DOCUMENT))
    assert await document_of(store) == DOCUMENT
    assert (await exported(store)).document == TEXT
    assert await store.document(DIGEST) == TEXT


async def test_a_run_without_a_document_has_none(store: Store) -> None:
    await store.apply([start("r"), start("s", document=DOCUMENT)])
    assert await document_of(store) == (None, None)
    assert await store.document("unknown") is None


async def test_lists_tell_the_digest(store: Store) -> None:
    await store.apply([start("r", document=DOCUMENT), start("s")])
    assert {row.run_id: row.document for row in await store.find(RunQuery())} == {"r": DIGEST, "s": None}


async def test_every_run_keeps_its_version(store: Store, fence: int) -> None:
    old = await started(store, "old", fence, document=("v1", b"one"))
    await started(store, "new", fence, document=("v2", b"two"))
    await old.commit(ticks=2)
    await old.commit(ticks=1, head={"idle_since": 4.0})
    assert await document_of(store, "old") == ("v1", b"one")
    assert await document_of(store, "new") == ("v2", b"two")


async def test_the_first_text_under_a_digest_stays(store: Store) -> None:
    await store.apply([start("r", document=DOCUMENT), start("s", document=(DIGEST, b"another"))])
    await do(store, start("t", document=(DIGEST, b"one more")))
    await store.save_document(DIGEST, b"the last")
    assert [await document_of(store, run_id) for run_id in ("r", "s", "t")] == [DOCUMENT] * 3


async def test_a_repeated_start_stores_no_document(store: Store) -> None:
    await do(store, start("r", document=DOCUMENT))
    again = await do(store, start("r", document=("other", b"other")))
    assert again == Started(False, "w", b"input of r")
    assert await document_of(store) == DOCUMENT
    assert await store.document("other") is None


async def test_a_child_brings_its_document_with_the_commit_that_starts_it(store: Store, owner: Owner) -> None:
    child = start("child", "flow", parent="r", parent_ref=1, document=DOCUMENT)
    assert await owner.commit(sent=(child, start("plain"))) is True
    assert await document_of(store, "child") == DOCUMENT
    assert await document_of(store, "plain") == (None, None)


async def test_a_commit_that_is_refused_brings_no_document(store: Store, owner: Owner) -> None:
    refused = replace(owner.next(sent=(start("child", document=DOCUMENT),)), fence=owner.fence + 1000)
    assert await do(store, refused) is False
    assert await store.get("child") is None
    assert await store.document(DIGEST) is None


async def test_a_group_that_fails_brings_no_document(store: Store, owner: Owner) -> None:
    owner.next()
    out_of_place = owner.next()
    with pytest.raises(Exception, match="does not follow"):
        await store.apply([start("s", document=DOCUMENT), out_of_place])
    assert await store.document(DIGEST) is None


async def test_a_run_that_is_claimed_is_loaded_with_its_document(store: Store, fence: int) -> None:
    await do(store, start("r", document=DOCUMENT))
    assert await do(store, ClaimRuns(fence, ("w",), 2.0)) == ["r"]
    assert await document_of(store) == DOCUMENT


async def test_a_document_outlives_the_store(database: Database, store: Store) -> None:
    await do(store, start("r", document=DOCUMENT))
    await store.save_document("saved", b"saved")
    await store.close()
    again = await database.open()
    assert await document_of(again) == DOCUMENT
    assert await again.document("saved") == b"saved"


# --- copies ----------------------------------------------------------------------------------------------------------


def _named(stored: StoredRun, run_id: str) -> StoredRun:
    return replace(stored, row=replace(stored.row, run_id=run_id))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_export_carries_the_document_into_another_store(store: Store, fence: int, kind: str, tmp_path) -> None:
    owner = await started(store, "r", fence, document=DOCUMENT)
    await owner.commit(ticks=3)
    stored = await store.export("r")
    assert stored is not None
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere = new_database(kind, folder)
    try:
        there = await elsewhere.open()
        assert await do(there, ImportRun(unpacked(packed(stored, 5.0, 0.0), 5.0, 0.0))) is True
        assert await document_of(there) == DOCUMENT
        assert (await exported(there)).chunks == stored.chunks
    finally:
        await elsewhere.dispose()


async def test_a_copy_keeps_the_document_when_the_original_is_gone(store: Store, fence: int) -> None:
    owner = await started(store, "r", fence, document=DOCUMENT)
    stored = await store.export("r")
    assert stored is not None
    assert await do(store, ImportRun(_named(stored, "copy"))) is True
    await owner.end()
    assert await do(store, PurgeRuns(run_id="r")) == 1
    assert await document_of(store, "copy") == DOCUMENT


async def test_an_import_does_not_change_a_document_that_is_there(store: Store) -> None:
    await do(store, start("r", document=DOCUMENT))
    stored = await store.export("r")
    assert stored is not None
    assert await do(store, ImportRun(replace(_named(stored, "copy"), document=b"forged"))) is True
    assert await do(store, ImportRun(replace(_named(stored, "r"), document=b"forged"))) is False
    assert await document_of(store, "copy") == await document_of(store) == DOCUMENT


def test_what_was_exported_before_there_were_documents_can_be_read() -> None:
    old = b"""{"loom_run": 1, "run": {
        "row": {"run_id": "r", "workflow": "w", "created_at": 1.0,
            "head": {"status": "running", "ticks": 0, "events": 0, "updated_at": 1.0}},
        "start": "", "snapshot": null, "chunks": []
    }}"""
    stored = unpacked(old, 5.0, 0.0)
    assert (stored.row.document, stored.document) == (None, None)


# --- how long they stay ----------------------------------------------------------------------------------------------


async def test_a_document_goes_with_the_last_run_that_has_it(store: Store, fence: int) -> None:
    for number in range(3):
        await (await started(store, f"r{number}", fence, document=DOCUMENT)).end(at=float(number))
    plain = await started(store, "plain", fence)
    await plain.end(at=0.5)
    assert await do(store, PurgeRuns(ended_before=1.5)) == 3
    assert await store.document(DIGEST) == TEXT
    assert await do(store, PurgeRuns(run_id="r2")) == 1
    assert await store.document(DIGEST) is None


async def test_purging_leaves_the_documents_of_others_alone(store: Store, fence: int) -> None:
    for name in ("a", "b"):
        await (await started(store, name, fence, document=(name, name.encode()))).end()
    running = await started(store, "c", fence, document=("c", b"c"))
    await running.commit()
    assert await do(store, PurgeRuns(run_id="a")) == 1
    assert [await store.document(name) for name in "abc"] == [None, b"b", b"c"]
    assert await do(store, PurgeRuns(ended_before=1e9)) == 1
    assert [await store.document(name) for name in "abc"] == [None, None, b"c"]


async def test_a_saved_document_stays_for_good(store: Store, fence: int) -> None:
    await store.save_document(DIGEST, TEXT)
    assert await store.document(DIGEST) == TEXT
    owner = await started(store, "r", fence, document=DOCUMENT)
    await owner.end()
    assert await do(store, PurgeRuns(run_id="r")) == 1
    assert await store.document(DIGEST) == TEXT
    await store.save_document(DIGEST, TEXT)
    assert await store.document(DIGEST) == TEXT


async def test_a_document_that_a_run_has_can_be_saved_later(store: Store, fence: int) -> None:
    owner = await started(store, "r", fence, document=DOCUMENT)
    await store.save_document(DIGEST, TEXT)
    await owner.end()
    await do(store, PurgeRuns(run_id="r"))
    assert await store.document(DIGEST) == TEXT


async def test_a_document_that_went_comes_back_with_the_next_start(store: Store, fence: int) -> None:
    owner = await started(store, "r", fence, document=DOCUMENT)
    await owner.end()
    results = await store.apply([PurgeRuns(run_id="r"), start("r", document=DOCUMENT)])
    assert results == [1, Started(True)]
    assert await document_of(store) == DOCUMENT
    results = await store.apply([start("s", document=DOCUMENT), PurgeRuns(ended_before=1e9)])
    assert results == [Started(True), 0]
    assert sorted(await ids(store)) == ["r", "s"]
    assert await document_of(store, "s") == DOCUMENT


async def test_a_long_document_comes_back_byte_by_byte(store: Store) -> None:
    every_byte = bytes(range(256)) * 5000
    await store.apply([start(f"r{number}", document=("long", every_byte)) for number in range(3)])
    assert await document_of(store, "r2") == ("long", every_byte)
    await store.save_document("empty", b"")
    assert await store.document("empty") == b""

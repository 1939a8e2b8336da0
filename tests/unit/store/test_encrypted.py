"""What the store beneath an encrypted one gets to see, and what happens with other keys. That it behaves as a store is
seen by the conformance suite."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

from loom.store.encrypted import MAGIC, EncryptedStore, Sealer, check_readable
from loom.store.errors import CorruptRecord, KeyUnavailable, WrongKeys
from loom.store.keyring import Keyring
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import CommitRun, ImportRun, ParkRun, PostMessage, StartRun
from loom.store.records import Chunk, RunHead, RunQuery, Snapshot

ONE, TWO = b"1" * 32, b"2" * 32
SECRET = b"attack at dawn"
FIRST = Keyring({"k1": ONE})


@pytest.fixture
def database() -> MemoryDatabase:
    return MemoryDatabase()


@pytest.fixture
async def store(database: MemoryDatabase) -> AsyncIterator[EncryptedStore]:
    store = EncryptedStore(MemoryStore(database), FIRST)
    await store.open()
    yield store
    await store.close()


async def opened(database: MemoryDatabase, ring: Keyring) -> EncryptedStore:
    store = EncryptedStore(MemoryStore(database), ring)
    await store.open()
    return store


async def fill(store: EncryptedStore, run_id: str = "r") -> int:
    """A run that has the secret wherever there is a place for it."""
    fence = (await store.join("tester", 60.0)).fence
    text = SECRET.decode()
    head = RunHead(
        "running", 1, 1, 2.0, waiters=b'[{"a": "attack at dawn"}]', waiting_for=("A",), error=text, link=SECRET
    )
    await store.apply([StartRun(run_id, "w", SECRET, 1.0, owner=fence, document=("d", SECRET), tags={"t": "v"})])
    commit = CommitRun(
        run_id,
        fence,
        head,
        chunk=Chunk(0, 1, 0, 1, SECRET, SECRET),
        snapshot=Snapshot(1, SECRET, SECRET),
        sent=(PostMessage(run_id, SECRET, 2.0), StartRun(f"child of {run_id}", "w", SECRET, 2.0)),
    )
    await store.apply([commit, PostMessage(run_id, SECRET, 2.0)])
    await store.apply([ParkRun(run_id, fence, text)])
    await store.save_document("saved", SECRET)
    await store.put_entry("kind", "key", SECRET)
    return fence


async def test_the_store_beneath_sees_nothing_of_it(store: EncryptedStore) -> None:
    await fill(store)
    inner = store.inner
    everything = [await inner.export("r"), await inner.export("child of r"), await inner.entry("kind", "key")]
    assert all(everything)
    assert SECRET not in repr([*everything, await inner.document("saved")]).encode()
    row = await inner.get("r")
    assert row is not None
    assert (row.head.waiting_for, row.tags, row.head.ticks) == (("A",), {"t": "v"}, 1)
    run = await store.export("r")
    assert run is not None
    assert run.snapshot is not None
    assert {run.start, run.document, run.chunks[0].data, run.chunks[0].previous, run.snapshot.data} == {SECRET}
    assert (run.row.head.error, run.row.head.parked) == ("attack at dawn", "attack at dawn")
    assert [message.data for message in run.inbox] == [SECRET, SECRET]
    assert (run.row.head.link, run.snapshot.link) == (SECRET, SECRET)


async def test_a_value_opens_only_in_its_own_place(store: EncryptedStore) -> None:
    await fill(store, "r")
    await fill(store, "x")
    inner = store.inner
    mine, other = await inner.export("r"), await inner.export("x")
    assert mine is not None
    assert other is not None
    changed = type(mine)(
        row=type(mine.row)("new", "w", 1.0, mine.row.head), start=other.start, snapshot=None, chunks=mine.chunks
    )
    await inner.apply([ImportRun(changed)])
    with pytest.raises(
        CorruptRecord, match=r"'new': .* cannot be read: it is damaged, or was written for another place"
    ):
        await store.export("new")
    with pytest.raises(CorruptRecord, match="the chunk from tick 0"):
        await store.chunks("new", 0, 10)
    await inner.put_entry("kind", "other", (await inner.entry("kind", "key")).data)  # type: ignore[union-attr]
    with pytest.raises(CorruptRecord, match="The stored kind 'other' cannot be read: it is damaged"):
        await store.entry("kind", "other")


async def test_keys_follow_each_other(database: MemoryDatabase, store: EncryptedStore) -> None:
    await fill(store)
    later = await opened(database, Keyring({"k2": TWO, "k1": ONE}))
    run = await later.export("r")
    assert run is not None
    assert run.start == SECRET
    await later.apply([StartRun("new", "w", SECRET, 5.0)])
    sealed = await later.inner.export("new")
    assert sealed is not None
    assert sealed.start.startswith(MAGIC + b"\x02k2")
    # Who has opened it before does not know the new key: nothing is garbage, and the rest can be read.
    with pytest.raises(KeyUnavailable, match="the start of 'new' is encrypted with the key 'k2', and at hand is 'k1'"):
        await store.export("new")
    assert (await store.export("r")) == run
    await later.close()


async def test_lists_show_runs_that_do_not_open(database: MemoryDatabase, store: EncryptedStore) -> None:
    await fill(store, "r")
    later = await opened(database, Keyring({"k2": TWO, "k1": ONE}))
    await fill(later, "new")
    rows = {row.run_id: row.head for row in await store.find(RunQuery())}
    assert rows["r"].waiters == b'[{"a": "attack at dawn"}]'
    assert rows["new"].waiters == b"[]"
    assert "encrypted with the key 'k2'" in (rows["new"].parked or "")
    with pytest.raises(KeyUnavailable):
        await store.get("new")
    await later.close()


async def test_a_store_does_not_open_with_the_wrong_keys(database: MemoryDatabase, store: EncryptedStore) -> None:
    await fill(store)
    with pytest.raises(WrongKeys, match="the encryption key 'k1', and at hand is 'k2'"):
        await opened(database, Keyring({"k2": TWO}))
    with pytest.raises(WrongKeys, match="The encryption key 'k1' in LOOM_ENCRYPTION_KEYS is not the one"):
        await opened(database, Keyring({"k1": TWO}))
    assert database.stores == [store.inner]
    with pytest.raises(WrongKeys, match="and at hand is no key"):
        await check_readable(store.inner)
    await check_readable(store)
    given_up = await opened(database, Keyring({"k2": TWO}, gone=frozenset({"k1"})))
    with pytest.raises(KeyUnavailable):
        await given_up.export("r")
    await given_up.close()


async def test_what_is_not_encrypted_must_be_allowed(database: MemoryDatabase) -> None:
    plain = MemoryStore(database)
    await plain.open()
    await plain.apply([StartRun("r", "w", SECRET, 1.0)])
    with pytest.raises(WrongKeys, match="has runs that are not encrypted"):
        await opened(database, FIRST)
    lenient = await opened(database, Keyring({"k1": ONE}, lenient=True))
    run = await lenient.export("r")
    assert run is not None
    assert run.start == SECRET
    await lenient.close()
    strict = await opened(database, FIRST)
    with pytest.raises(CorruptRecord, match="'r': the start cannot be read: it is not encrypted"):
        await strict.export("r")
    await strict.close()
    await plain.close()


def test_damaged_values_are_told_from_those_of_other_keys() -> None:
    sealer = Sealer(FIRST)
    sealed = sealer.seal(SECRET, "chunk", "r")
    assert sealer.unseal(sealed, "r", "it", "chunk", "r") == SECRET
    assert sealer.seal(SECRET, "chunk", "r") != sealed
    for harmed in (sealed[:-1], sealed[: len(MAGIC) + 3], sealed[:-1] + bytes([sealed[-1] ^ 1])):
        with pytest.raises(CorruptRecord, match="'r': it cannot be read: it is damaged"):
            sealer.unseal(harmed, "r", "it", "chunk", "r")
    for harmed in (MAGIC, MAGIC + b"\x02"):
        with pytest.raises(KeyUnavailable, match="encrypted with the key ''"):
            sealer.unseal(harmed, "r", "it", "chunk", "r")
    text = sealer.seal_text("w\ud800rds", "error", "r")
    assert sealer.unseal_text(text, "r", "it", "error", "r") == "w\ud800rds"
    assert sealer.unseal_text("plain words", "r", "it", "error", "r") == "plain words"
    with pytest.raises((CorruptRecord, KeyUnavailable)):
        sealer.unseal_text("loom-sealed:%%", "r", "it", "error", "r")


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ImportError, match=r"loom-workflows\[encryption\]"):
        EncryptedStore(MemoryStore(), FIRST)

"""Large payloads beside the journal, in a folder and in the store: whole runs, purges, moves, damage and full disks."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, StoreUnavailable, Workflow, step
from loom.runtime.durable.worker import WorkerRuntime
from loom.store import payload_places, payload_store
from loom.store.encrypted import EncryptedStore
from loom.store.keyring import parse_keys
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.payload_store import PayloadStore
from loom.store.ports import OwnedStore

ABOVE = 2000
LARGE = "large payload, " * 1000
KEYS = parse_keys("k:" + "A" * 43 + "=", what="keys", lenient="plain")


class Document(HumanResponseEvent):
    text: str


class Reads(Workflow):
    @step
    async def read(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("first", ev.text)
        other = await ctx.wait_for_event(Document, timeout=None)
        return StopEvent(result=f"{ev.text}|{other.text}")


class Parent(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child("reads", text=ev.text))


class Place:
    """One database with a place for payloads, opened again and again."""

    def __init__(self, open_inner: Callable[[], OwnedStore], place: str, folder: Path) -> None:
        self.open_inner, self.place, self.folder = open_inner, place, folder

    @asynccontextmanager
    async def opened(self, *, payloads: bool = True, **options: Any) -> AsyncIterator[WorkerRuntime]:
        store = self.open_inner()
        kept: Any = payload_store.payload_store(store, self.place, ABOVE) if payloads else store
        async with loom.connect(kept, poll_interval=0.05, **options) as runtime:
            runtime.register(Reads(), name="reads")
            runtime.register(Parent(), name="parent")
            yield runtime

    def files(self) -> list[Path]:
        return [file for file in self.folder.rglob("*") if file.is_file() and file.name != "run"]

    async def bodies(self, runtime: WorkerRuntime) -> int:
        if self.place != "table":
            return len(self.files())
        return len(await runtime.store.entries("payload", limit=1000))


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_inner(kind: str, tmp_path: Path) -> Callable[[], OwnedStore]:
    if kind == "memory":
        database = MemoryDatabase()
        return lambda: MemoryStore(database)
    if kind == "sqlite":
        from loom.store.sqlite import SqliteStore

        return lambda: SqliteStore(tmp_path / "runs.db")
    from postgres_server import fresh_database_url

    from loom.store.postgres import PostgresStore

    url = fresh_database_url()
    return lambda: PostgresStore(url)


@pytest.fixture(params=["table", "folder", "sealed table", "sealed folder"])
def place(request: pytest.FixtureRequest, open_inner: Callable[[], OwnedStore], tmp_path: Path) -> Place:
    words, folder = str(request.param).split(), tmp_path / "payloads"
    sealed: Callable[[], OwnedStore] = lambda: EncryptedStore(open_inner(), KEYS)  # noqa: E731 - of the same type
    inner = sealed if "sealed" in words else open_inner
    return Place(inner, "table" if "table" in words else folder.as_uri(), folder)


async def _until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - a store tells nothing here
            await asyncio.sleep(0.005)


async def _idle(runtime: WorkerRuntime, run_id: str) -> None:
    async def is_idle() -> bool:
        return (await runtime.get(run_id)).idle_since is not None

    await _until(is_idle)


async def _parked(runtime: WorkerRuntime, run_id: str) -> str:
    async def is_parked() -> bool:
        return (await runtime.get(run_id)).parked is not None

    await _until(is_parked)
    return str((await runtime.get(run_id)).parked)


async def _over(runtime: WorkerRuntime, run_id: str) -> None:
    async def is_over() -> bool:
        return (await runtime.get(run_id)).status != "running"

    await _until(is_over)


async def test_a_run_goes_on_elsewhere_with_what_is_kept_beside_it(place: Place) -> None:
    async with place.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        again = await runtime.start("reads", {"text": LARGE}, run_id="a")
        assert again.run_id == "a", "the same start is known, though its text is elsewhere"
        await _idle(runtime, "a")
        store = runtime.store
        assert isinstance(store, PayloadStore)
        chunks = await store.inner.chunks("a", 0, 100)
        assert all(len(chunk.data) < ABOVE * 2 for chunk in chunks), "what is stored is small"
        assert sum(len(chunk.data) for chunk in await store.chunks("a", 0, 100)) > len(LARGE)
    async with place.opened() as runtime:
        await runtime.send_event("a", Document(text=LARGE[::-1]))
        assert await (await runtime.handler("a")) == f"{LARGE}|{LARGE[::-1]}"
        checked = [entry async for entry in runtime.history("a")]
        assert len(checked) > 3
    if place.place != "table":
        sealed = "sealed" if isinstance(place.open_inner(), EncryptedStore) else ""
        assert any(LARGE[:15].encode() in file.read_bytes() for file in place.files()) == (not sealed)


async def test_a_child_gets_a_payload_of_its_parent(place: Place) -> None:
    async with place.opened() as runtime:
        await runtime.start("parent", {"text": LARGE}, run_id="p")
        children: list[Any] = []

        async def has_begun() -> bool:
            children[:] = [each async for each in runtime.list(workflow="reads")]
            return bool(children)

        await _until(has_begun)
        await _idle(runtime, children[0].run_id)
        await runtime.send_event(children[0].run_id, Document(text="end"))
        assert await (await runtime.handler("p")) == f"{LARGE}|end"


async def test_payloads_go_with_their_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_store, "PURGE_S", -1.0)
    async with place.opened() as runtime:
        for run_id in ("a", "b"):
            await runtime.start("reads", {"text": LARGE}, run_id=run_id)
            await _idle(runtime, run_id)
        both = await place.bodies(runtime)
        await runtime.cancel("a")
        await _over(runtime, "a")
        await runtime.purge("a")
        left = await place.bodies(runtime)
        assert 0 < left < both
        await runtime.send_event("b", Document(text="end"))
        assert (await (await runtime.handler("b"))).endswith("|end"), "the same text in another run is there still"


async def test_a_run_that_has_just_begun_anew_keeps_what_a_purge_leaves_alone(place: Place) -> None:
    async with place.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        await _idle(runtime, "a")
        store = runtime.store
        assert isinstance(store, PayloadStore)
        await store.place.drop("a", time.time() - 60)
        await runtime.send_event("a", Document(text="end"))
        assert (await (await runtime.handler("a"))).endswith("|end")


async def test_the_sweep_takes_what_a_crash_has_left(place: Place) -> None:
    async with place.opened() as runtime:
        store = runtime.store
        assert isinstance(store, PayloadStore)
        await store.place.put("never begun", {"p0": b"x"})
        assert await store.sweep() == 1
        assert await place.bodies(runtime) == 1, "its start may be on its way"
        await store.sweep(-1.0)
        assert await place.bodies(runtime) == 0


async def test_exports_carry_the_texts(place: Place, tmp_path: Path) -> None:
    async with place.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        await _idle(runtime, "a")
        exported = await runtime.export_run("a")
    async with loom.connect(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.register(Reads(), name="reads")
        await other.import_run(exported)
        await other.send_event("a", Document(text="end"))
        assert await (await other.handler("a")) == f"{LARGE}|end"


async def test_a_reader_without_the_place_parks_the_run_and_says_why(place: Place) -> None:
    async with place.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        await runtime.start("reads", {"text": "small"}, run_id="b")
        await _idle(runtime, "a")
        await _idle(runtime, "b")
    async with place.opened(payloads=False) as runtime:
        for run_id in ("a", "b"):
            await runtime.send_event(run_id, Document(text="end"))
        assert await (await runtime.handler("b")) == "small|end"
        assert "LOOM_PAYLOADS" in await _parked(runtime, "a")
        assert {each.run_id async for each in runtime.list()} == {"a", "b"}
    async with place.opened() as runtime:
        await runtime.resume("a")
        assert await (await runtime.handler("a")) == f"{LARGE}|end"


@pytest.fixture
def folder(open_inner: Callable[[], OwnedStore], tmp_path: Path) -> Place:
    return Place(open_inner, (tmp_path / "payloads").as_uri(), tmp_path / "payloads")


@pytest.mark.parametrize("harm", ["missing", "damaged"])
async def test_a_lost_payload_parks_its_run_and_no_other(folder: Place, harm: str) -> None:
    async with folder.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        await runtime.start("reads", {"text": "small"}, run_id="b")
        await _idle(runtime, "a")
        await _idle(runtime, "b")
    for file in folder.files():
        file.unlink() if harm == "missing" else file.write_bytes(file.read_bytes()[::-1])
    async with folder.opened() as runtime:
        for run_id in ("a", "b"):
            await runtime.send_event(run_id, Document(text="end"))
        assert await (await runtime.handler("b")) == "small|end"
        assert f"is {harm} in the folder" in await _parked(runtime, "a")
        assert {each.run_id async for each in runtime.list()} == {"a", "b"}


async def test_a_full_disk_refuses_what_is_large_and_loses_nothing(
    folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with folder.opened() as runtime:
        await runtime.start("reads", {"text": "small"}, run_id="a")
        await _idle(runtime, "a")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(payload_places.PayloadFolder, "_write", staticmethod(full))
            with pytest.raises(StoreUnavailable, match="No space left"):
                await runtime.send_event("a", Document(text=LARGE), event_id="e1")
            with pytest.raises(StoreUnavailable, match="No space left"):
                await runtime.start("reads", {"text": LARGE}, run_id="b")
            await runtime.start("reads", {"text": "small"}, run_id="c")
        await runtime.send_event("a", Document(text=LARGE), event_id="e1")
        assert await (await runtime.handler("a")) == f"small|{LARGE}"
        assert {each.run_id async for each in runtime.list()} == {"a", "c"}
    assert [file for file in folder.folder.rglob(".*") if file.is_file()] == [], "no half-written file is left"


async def test_stores_that_share_a_folder_leave_each_other_alone(folder: Place, tmp_path: Path) -> None:
    """One address in the environment of a machine is the place of all its stores."""
    database = MemoryDatabase()
    other = Place(lambda: MemoryStore(database), folder.place, folder.folder)
    async with folder.opened() as runtime, other.opened() as beside:
        for each in (runtime, beside):
            await each.start("reads", {"text": LARGE}, run_id="same")
            await _idle(each, "same")
        await runtime.start("reads", {"text": LARGE}, run_id="own")
        await _idle(runtime, "own")
        await beside.cancel("same")
        await _over(beside, "same")
        await beside.purge("same")
        store = beside.store
        assert isinstance(store, PayloadStore)
        await store.sweep(-1.0)
        for run_id in ("same", "own"):
            await runtime.send_event(run_id, Document(text="end"))
            assert await (await runtime.handler(run_id)) == f"{LARGE}|end"
    async with folder.opened() as runtime:
        assert [entry async for entry in runtime.history("own")], "and nothing is gone for readers"


async def test_a_folder_that_is_not_mounted_parks_nothing_and_gets_nothing(folder: Place) -> None:
    """The place where a disk belongs is there, and empty: what is written would be hidden by the disk later."""
    async with folder.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        await _idle(runtime, "a")
    mounted = folder.folder.rename(folder.folder.with_name("elsewhere"))
    for is_there in (False, True):
        if is_there:
            folder.folder.mkdir()
        async with folder.opened() as runtime:
            await runtime.start("reads", {"text": "small"}, run_id=f"b {is_there}")
            await _idle(runtime, f"b {is_there}")
            with pytest.raises(StoreUnavailable, match=r"Is its disk mounted\?"):
                await runtime.start("reads", {"text": LARGE}, run_id="c")
            with pytest.raises(StoreUnavailable, match=r"Is its disk mounted\?"):
                [entry async for entry in runtime.history("a")]
            assert (await runtime.get("a")).parked is None
        assert not folder.folder.exists() or not list(folder.folder.iterdir())
    folder.folder.rmdir()
    mounted.rename(folder.folder)
    async with folder.opened() as runtime:
        await runtime.send_event("a", Document(text="end"))
        assert await (await runtime.handler("a")) == f"{LARGE}|end"


async def test_what_cannot_be_kept_costs_no_other_run_its_commit(
    folder: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with folder.opened() as runtime:
        monkeypatch.setattr(payload_places.PayloadFolder, "_write", staticmethod(full))
        texts = [LARGE, LARGE, LARGE, "small", LARGE, "small"]
        starts = [runtime.start("reads", {"text": text}, run_id=str(n)) for n, text in enumerate(texts)]
        done = await asyncio.gather(*starts, return_exceptions=True)
        assert [isinstance(each, StoreUnavailable) for each in done] == [text is LARGE for text in texts]
        assert runtime.committer.failing is None, "the store itself is well"


@pytest.mark.parametrize("harm", [b"\xff\xfe", b"no\0run", None])
async def test_a_folder_that_names_no_run_does_not_end_the_sweep(
    folder: Place, harm: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with folder.opened() as runtime:
        store = runtime.store
        assert isinstance(store, PayloadStore)
        names = [f"never begun {number}" for number in range(8)]
        for name in names:
            await store.place.put(name, {"p0": b"x"})
        spoilt = sorted(folder.folder.glob("*/*/*/run"))[3]
        if harm is None:
            spoilt.unlink()
            spoilt.mkdir()
        else:
            spoilt.write_bytes(harm)
        await store.sweep(-1.0)
        assert len(folder.files()) == 1, "what belongs to nobody knows whom is left alone"


async def test_the_folder_of_a_run_keeps_its_name_while_it_has_a_payload(folder: Place) -> None:
    async with folder.opened() as runtime:
        store = runtime.store
        assert isinstance(store, PayloadStore)
        await store.place.put("gone", {"p0": b"x"})
        for file in folder.folder.rglob("run"):
            os.utime(file, (0.0, 0.0))
        await store.place.put("gone", {"p0": b"x"})
        await store.place.drop("gone", time.time() - 60.0)
        assert await store.place.runs() != [], "the sweep finds it later"
        await store.sweep(-1.0)
        assert folder.files() == []


async def test_an_entry_that_was_changed_does_not_choose_where_files_are(folder: Place) -> None:
    async with folder.opened() as runtime:
        await runtime.start("reads", {"text": LARGE}, run_id="a")
        await _idle(runtime, "a")
        await runtime.store.put_entry(payload_places.PayloadFolder.KIND, "name", b"../../home")
    async with folder.opened() as runtime:
        with pytest.raises(loom.CorruptRecord, match="it is not the name of a folder"):
            await runtime.start("reads", {"text": LARGE}, run_id="b")
        await runtime.start("reads", {"text": "small"}, run_id="c")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"payloads": "folder"}, "'table' or the URL of a folder"),
        ({"payloads": "file://elsewhere/x"}, "'table' or the URL of a folder"),
        ({"payloads": "table", "payloads_above": 10}, "at least 64 bytes"),
    ],
)
def test_a_place_that_is_none_is_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        loom.connect(f"sqlite:///{tmp_path / 'x.db'}", **given)


def test_a_cluster_keeps_no_payloads() -> None:
    with pytest.raises(ValueError, match="for stores in databases"):
        loom.connect("temporal://localhost:7233/default", payloads="table")

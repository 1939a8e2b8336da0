"""Damage in what is stored: the run is parked with a reason that names it and the place; nothing is deleted, and all
other runs go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from fault_waiting import result_of, until, until_idle, until_parked

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickAddEvent
from loom.runtime.durable import adapter
from loom.store import codec
from loom.store.errors import CorruptRecord, RunFinished
from loom.store.operations import PostMessage

TABLES = ("runs", "starts", "chunks", "snapshots", "inbox", "timers", "event_ids")


class Word(HumanResponseEvent):
    text: str


class Note(Event):
    number: int


class Listens(Workflow):
    """Enough ticks for a snapshot, then a wait."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Note:
        for number in range(6):
            ctx.write_event_to_stream(Note(number=number))
            await ctx.store.set("number", number)
        return Note(number=6)

    @step
    async def listen(self, ctx: Context, ev: Note) -> StopEvent:
        word = await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result=word.text)


class Place:
    """A database with two runs that wait, `sick` and `sound`; nobody works on it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self, **options: Any) -> Any:
        runtime = loom.connect(f"sqlite:///{self.path}", poll_interval=0.05, **options)
        runtime.register(Listens(), name="listens")
        return runtime

    def execute(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(
                sql.replace("SICK", "(SELECT id FROM runs WHERE run_id = 'sick')"), values
            ).fetchall()

    def contents(self) -> dict[str, list[Any]]:
        """Everything of the sick run, but for its owner and why it is parked."""
        found = {name: self.execute(f"SELECT * FROM {name} WHERE run = SICK") for name in TABLES if name != "runs"}
        columns = "run_id, workflow, status, created_at, ticks, events, tags, waiters, waiting_for"
        return found | {"runs": self.execute(f"SELECT {columns} FROM runs WHERE run_id = 'sick'")}


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", 5)
    place = Place(tmp_path / "runs.db")
    async with place.connect() as runtime:
        for run_id in ("sick", "sound"):
            await runtime.start("listens", run_id=run_id)
            await until_idle(runtime, run_id)
    return place


def flipped(place: Place, table: str, where: str = "run = SICK") -> None:
    """Flip a bit in the middle of a row's data."""
    [(key, data)] = place.execute(f"SELECT rowid, data FROM {table} WHERE {where} ORDER BY rowid LIMIT 1")
    middle = len(data) // 2
    place.execute(
        f"UPDATE {table} SET data = ? WHERE rowid = ?",
        data[:middle] + bytes([data[middle] ^ 64]) + data[middle + 1 :],
        key,
    )


def rewritten(place: Place, table: str, change: Callable[[bytes], bytes], where: str = "run = SICK") -> None:
    """Change a row's data, with a checksum that fits, in a run from before there were links."""
    [(key, data)] = place.execute(f"SELECT rowid, data FROM {table} WHERE {where} ORDER BY rowid DESC LIMIT 1")
    place.execute(f"UPDATE {table} SET data = ? WHERE rowid = ?", change(data), key)
    if table in ("chunks", "snapshots"):
        place.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", crc32(change(data)), key)
    place.execute("UPDATE chunks SET previous = NULL WHERE run = SICK")
    place.execute("UPDATE snapshots SET link = NULL WHERE run = SICK")
    place.execute("UPDATE runs SET link = NULL WHERE id = SICK")


def newer(data: bytes) -> bytes:
    assert data.startswith(b"[1,")
    return b"[2," + data[3:]


def cut(data: bytes) -> bytes:
    return data[:-2]


LAST_CHUNK = "run = SICK AND first_tick >= (SELECT ticks FROM snapshots WHERE run = SICK)"
NEWER = "it has format 2, and this version of Loom reads up to 1: a newer version of Loom has written it"
DAMAGES: dict[str, tuple[Callable[[Place], None], str]] = {
    "flipped chunk": (lambda place: flipped(place, "chunks", LAST_CHUNK), "its checksum is not that of its data"),
    "cut chunk": (lambda place: rewritten(place, "chunks", cut, LAST_CHUNK), "Run 'sick': the chunk of"),
    "newer chunk": (lambda place: rewritten(place, "chunks", newer, LAST_CHUNK), NEWER),
    "missing chunk": (
        lambda place: place.execute(f"DELETE FROM chunks WHERE {LAST_CHUNK}") and None,
        "the journal should have",
    ),
    "flipped snapshot": (lambda place: flipped(place, "snapshots"), "Run 'sick': the snapshot after"),
    "cut snapshot": (lambda place: rewritten(place, "snapshots", cut), "Run 'sick': its snapshot cannot be read"),
    "newer snapshot": (lambda place: rewritten(place, "snapshots", newer), NEWER),
    "no JSON in its row": (
        lambda place: place.execute("UPDATE runs SET tags = '{' WHERE run_id = 'sick'") and None,
        "Run 'sick': its row cannot be read",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_run_is_parked_when_it_is_recovered(
    place: Place, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    harm, words = DAMAGES[damage]
    whole = place.contents()
    harm(place)
    harmed = place.contents()
    assert harmed != whole
    async with place.connect() as runtime:
        for run_id in ("sick", "sound"):
            await send_without_reading(runtime, run_id)
        await until(lambda: "Run sick is parked: Run 'sick': " in caplog.text)
        assert words in caplog.text
        assert await result_of(runtime, "sound") == "hello"
    harmed["inbox"] = place.contents()["inbox"]
    harmed["event_ids"] = place.contents()["event_ids"]
    assert len(harmed["inbox"]) == 1
    assert place.contents() == harmed


async def send_without_reading(runtime: Any, run_id: str) -> None:
    """As somebody sends who does not look at the run's row first."""
    record = runtime.codec_for("listens").record(Word(text="hello"))
    tick = TickAddEvent(at=runtime.now(), event=record, accepted=True)
    await runtime.ready()
    await runtime.committer.submit(PostMessage(run_id, codec.encode_tick(tick), tick.at))


async def test_a_parked_run_goes_on_when_the_damage_is_repaired(place: Place) -> None:
    [(key, data)] = place.execute(f"SELECT rowid, data FROM chunks WHERE {LAST_CHUNK} ORDER BY rowid LIMIT 1")
    flipped(place, "chunks", LAST_CHUNK)
    async with place.connect() as runtime:
        await runtime.send_event("sick", Word(text="hello"))
        reason = await until_parked(runtime, "sick")
        for reading in (runtime.state_at("sick"), runtime.read_store("sick")):
            with pytest.raises(CorruptRecord) as refused:
                await reading
            assert str(refused.value) == reason
        with pytest.raises(CorruptRecord):
            async for _ in runtime.history("sick"):
                pass
        # Asked to go on, it is tried again; nothing has changed.
        await runtime.resume("sick")
        place.execute("UPDATE chunks SET data = ? WHERE rowid = ?", data, key)
        await runtime.resume("sick")
        assert await result_of(runtime, "sick") == "hello"


async def test_parked_runs_are_tried_again_by_the_next_process(place: Place) -> None:
    [(key, data)] = place.execute("SELECT rowid, data FROM snapshots WHERE run = SICK")
    flipped(place, "snapshots")
    for attempt in range(2):
        async with place.connect() as runtime:
            if attempt == 0:
                await runtime.send_event("sick", Word(text="hello"))
                await runtime.send_event("sound", Word(text="hello"))
            assert "the snapshot after" in await until_parked(runtime, "sick")
            assert await result_of(runtime, "sound") == "hello"
    place.execute("UPDATE snapshots SET data = ? WHERE rowid = ?", data, key)
    async with place.connect() as runtime:
        assert await result_of(runtime, "sick") == "hello"


@pytest.mark.parametrize("change", [cut, newer, lambda _: b"", lambda _: b"\x00\xff"])
@pytest.mark.parametrize("idle_timeout", [0.0, None])
async def test_damaged_mail_parks_its_run_in_memory_and_out_of_it(
    place: Place, change: Callable[[bytes], bytes], idle_timeout: float | None
) -> None:
    async with place.connect(idle_timeout=idle_timeout) as runtime:
        if idle_timeout is None:
            await runtime.resume("sick")
            await until(lambda: runtime.active_run("sick"))
        await runtime.committer.submit(PostMessage("sick", change(b"[1,x]"), 1.0))
        await runtime.committer.submit(PostMessage("sick", b"[1,y]", 1.0))
        reason = await until_parked(runtime, "sick")
        assert reason.startswith("Run 'sick': a tick of its mail cannot be read: ")
        assert runtime.active_run("sick") is None
        await runtime.send_event("sound", Word(text="hello"))
        assert await result_of(runtime, "sound") == "hello"
    [(left,)] = place.execute("SELECT COUNT(*) FROM inbox WHERE run = SICK")
    assert left == 2


UNREADABLE = {name: harm for name, (harm, _) in DAMAGES.items() if name != "no JSON in its row"} | {
    "damaged mail": lambda place: place.execute(
        "INSERT INTO inbox (run, data, at) VALUES (SICK, ?, 1.0)", b"[1,x]"
    ) and None,
}  # fmt: skip


@pytest.mark.parametrize("harm", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_run_that_cannot_be_read_is_cancelled_as_it_is_and_can_be_deleted(
    place: Place, harm: Callable[[Place], None]
) -> None:
    harm(place)
    async with place.connect() as runtime:
        await runtime.cancel("sick")
        await until(lambda: is_over(runtime, "sick"))
        info = await runtime.get("sick")
        assert (info.status, info.parked) == ("cancelled", None)
        assert info.error.startswith("It was cancelled as it is. Run 'sick': ")
        with pytest.raises((loom.WorkflowCancelledByUser, CorruptRecord)):
            await result_of(runtime, "sick")
        assert await runtime.purge("sick") == 1
        await runtime.send_event("sound", Word(text="hello"))
        assert await result_of(runtime, "sound") == "hello"


async def is_over(runtime: Any, run_id: str) -> bool:
    return (await runtime.get(run_id)).status != "running"  # type: ignore[no-any-return]


class Asks(Workflow):
    """Runs a child, and tells how that has ended."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            return StopEvent(result=await ctx.run_child("listens"))
        except loom.ChildRunCancelled:
            return StopEvent(result="cancelled")


async def test_the_parent_of_a_run_that_is_cancelled_as_it_is_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path / "runs.db")
    async with place.connect() as runtime:
        runtime.register(Asks(), name="asks")
        await runtime.start("asks", run_id="parent")
        [[child]] = await until(lambda: place.execute("SELECT run_id FROM runs WHERE workflow = 'listens'"))
        await until_idle(runtime, child)
    flipped(place, "chunks", f"run = (SELECT id FROM runs WHERE run_id = '{child}')")
    async with place.connect() as runtime:
        runtime.register(Asks(), name="asks")
        await runtime.cancel(child)
        assert await result_of(runtime, "parent") == "cancelled"


class Tidies(Listens):
    @loom.on_cancel
    async def tidy(self, ev: loom.RunCancelledEvent) -> None:
        pass


async def test_a_run_with_a_clean_up_step_is_cancelled_as_it_is_by_force_only(place: Place) -> None:
    flipped(place, "chunks", LAST_CHUNK)
    async with loom.connect(f"sqlite:///{place.path}", poll_interval=0.05) as runtime:
        runtime.register(Tidies(), name="listens")
        await runtime.cancel("sick")
        assert "its checksum is not" in await until_parked(runtime, "sick")
        await runtime.cancel("sick", force=True)
        await until(lambda: is_over(runtime, "sick"))


async def test_a_damaged_start_parks_its_run(place: Place) -> None:
    async with loom.connect(f"sqlite:///{place.path}") as client:
        await client.start("listens", run_id="never-begun")
    place.execute(
        "UPDATE starts SET data = substr(data, 4) WHERE run = (SELECT id FROM runs WHERE run_id = 'never-begun')"
    )
    async with place.connect() as runtime:
        assert (await until_parked(runtime, "never-begun")).startswith("Run 'never-begun': its start cannot be read: ")
        await runtime.send_event("sound", Word(text="hello"))
        assert await result_of(runtime, "sound") == "hello"


async def test_an_input_that_the_code_refuses_parks_its_run(place: Place) -> None:
    """The client had no code to check it with."""

    class Order(StartEvent):
        amount: int

    class Shop(Workflow):
        @step
        async def sell(self, ev: Order) -> StopEvent:
            return StopEvent(result=ev.amount)

    async with loom.connect(f"sqlite:///{place.path}") as client:
        await client.start("shop", {"amount": "many"}, run_id="wrong")
    async with place.connect() as runtime:
        runtime.register(Shop(), name="shop")
        assert "amount" in await until_parked(runtime, "wrong")


@pytest.mark.parametrize("column", ["tags", "waiting_for", "waiters"])
async def test_a_row_that_cannot_be_read_does_not_spoil_lists_and_beginnings(place: Place, column: str) -> None:
    place.execute(f"UPDATE runs SET {column} = '[1,' WHERE run_id = 'sick'")
    for _ in range(2):
        async with place.connect() as runtime:
            found = {info.run_id: info async for info in runtime.list()}
            assert set(found) == {"sick", "sound"}
            assert str(found["sick"].parked).startswith("Run 'sick': its row cannot be read: ")
            assert found["sound"].parked is None
            with pytest.raises(CorruptRecord, match="Run 'sick': its row cannot be read: "):
                await runtime.get("sick")
    async with place.connect() as runtime:
        await runtime.send_event("sound", Word(text="hello"))
        assert await result_of(runtime, "sound") == "hello"
        with pytest.raises(RunFinished):
            await runtime.send_event("sound", Word(text="again"))

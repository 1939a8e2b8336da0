"""The chain of journals, from runs to `verify`: what somebody changes in the database is found, and not run."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable import adapter
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.verification import Verified, replayed_run, verified, verify
from loom.store.errors import WrongKeys
from loom.store.hash_chain import Links

K1, K2 = (f"{name}:{base64.b64encode(name.encode() * 16).decode()}" for name in ("k1", "k2"))
SICK = "(SELECT id FROM runs WHERE run_id = 'sick')"


class Word(HumanResponseEvent):
    text: str


class Listens(Workflow):
    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("greeting", ev.greeting)
        first = await ctx.wait_for_event(Word, waiter_id="first", timeout=None)
        for number in range(ev.writes):
            await ctx.store.set("number", number)
        second = await ctx.wait_for_event(Word, waiter_id="second", timeout=None)
        return StopEvent(result=f"{first.text} {second.text}")


class Place:
    """A database with two runs that wait."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"

    def connect(self, **options: Any) -> DurableRuntime:
        options = {"idle_timeout": 0, "poll_interval": 0.05} | options
        runtime = loom.connect(f"sqlite:///{self.path}", **options)
        runtime.register(Listens(), name="listens")
        return runtime

    def execute(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(sql, values).fetchall()

    def rewrite(self, table: str, old: bytes, new: bytes) -> None:
        """Change words in what is stored of the sick run, with a checksum that fits."""
        rows = self.execute(f"SELECT rowid, data FROM {table} WHERE run = {SICK} AND instr(data, ?)", old)
        assert rows
        for key, data in rows:
            made = data.replace(old, new)
            self.execute(f"UPDATE {table} SET data = ?, checksum = ? WHERE rowid = ?", made, crc32(made), key)

    async def verdicts(self, **options: Any) -> dict[str, Verified]:
        async with loom.connect(f"sqlite:///{self.path}", **options) as runtime:
            return {found.run_id: found async for found in verified(runtime.store, runtime.links)}


UntilIdle = Callable[[Any], Awaitable[None]]


async def begin(place: Place, until_idle: UntilIdle, writes: int = 3, **options: Any) -> Place:
    async with place.connect(**options) as runtime:
        for run_id in ("sick", "sound"):
            handler = await runtime.start("listens", {"greeting": "good morning", "writes": writes}, run_id=run_id)
            await until_idle(handler)
    return place


@pytest.fixture
async def place(tmp_path: Path, until_idle: UntilIdle) -> Place:
    return await begin(Place(tmp_path), until_idle)


async def finish(runtime: DurableRuntime, run_id: str) -> Any:
    for text in ("hello", "world"):
        await runtime.send_event(run_id, Word(text=text))
    return await (await runtime.handler(run_id))


async def test_runs_are_chained_from_their_first_commit_to_their_last(place: Place) -> None:
    async with place.connect() as runtime:
        assert await finish(runtime, "sick") == "hello world"
        fork = await runtime.fork("sick", tick=1)
        data = await runtime.export_run("sick")
        await runtime.purge("sick")
        await runtime.import_run(data)
        for run_id in ("sick", "sound", fork.run_id):
            assert await verify(runtime.store, runtime.links, run_id) == Verified(run_id, "chained")
            assert (await replayed_run(runtime, run_id)).replay == "same"
        assert await verify(runtime.store, runtime.links, "nobody") is None


async def test_a_changed_journal_is_found_and_not_run(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.rewrite("chunks", b"good morning", b"evil morning")
    found = await place.verdicts()
    assert found["sound"].verdict == "chained"
    assert found["sick"].verdict == "broken"
    words = "is not what was written: the link that was made of it is another one"
    assert words in str(found["sick"].problem)
    assert "the chunk of" in str(found["sick"].problem)
    async with place.connect() as runtime:
        assert words in (await replayed_run(runtime, "sick")).differences[0]
        await runtime.send_event("sick", Word(text="hello"))
        assert await finish(runtime, "sound") == "hello world"
        async with asyncio.timeout(60):
            while words not in caplog.text:
                await runtime.get("sick")
    place.rewrite("chunks", b"evil morning", b"good morning")
    async with place.connect() as runtime:
        await runtime.send_event("sick", Word(text="world"))
        assert await (await runtime.handler("sick")) == "hello world"


HARMS = {
    "removed chunk": f"DELETE FROM chunks WHERE id = (SELECT MIN(id) + 1 FROM chunks WHERE run = {SICK})",
    "removed first": f"DELETE FROM chunks WHERE id = (SELECT MIN(id) FROM chunks WHERE run = {SICK})",
    "removed last": f"DELETE FROM chunks WHERE id = (SELECT MAX(id) FROM chunks WHERE run = {SICK})",
    "no link": "UPDATE runs SET link = NULL WHERE run_id = 'sick'",
    "no links before": f"UPDATE chunks SET previous = NULL WHERE run = {SICK}",
    "a link that is none": f"UPDATE chunks SET previous = 'text' WHERE run = {SICK}",
    "journal of another": f"""UPDATE chunks SET run = CASE run WHEN {SICK} THEN
        (SELECT id FROM runs WHERE run_id = 'sound') ELSE {SICK} END""",
}


@pytest.mark.parametrize("harm", HARMS)
async def test_what_was_done_to_the_rows_is_found(place: Place, harm: str) -> None:
    place.execute(HARMS[harm])
    found = (await place.verdicts())["sick"]
    assert found.verdict == "broken"
    assert str(found.problem).startswith("Run 'sick': ")


async def test_runs_from_before_are_unchained_and_go_on(place: Place) -> None:
    place.execute("UPDATE chunks SET previous = NULL")
    place.execute("UPDATE runs SET link = NULL")
    assert {found.verdict for found in (await place.verdicts()).values()} == {"unchained"}
    async with place.connect() as runtime:
        assert await finish(runtime, "sick") == "hello world"
    assert (await place.verdicts())["sick"].verdict == "unchained"
    place.rewrite("chunks", b"hello", b"adieu")
    assert (await place.verdicts())["sick"].verdict == "broken"


async def test_signed_journals_need_their_keys(tmp_path: Path, until_idle: UntilIdle) -> None:
    place = await begin(Place(tmp_path), until_idle, journal_keys=K1)
    assert {found.verdict for found in (await place.verdicts(journal_keys=K1)).values()} == {"signed"}
    assert {found.verdict for found in (await place.verdicts()).values()} == {"unchecked"}
    for keys in (None, K2):
        with pytest.raises(WrongKeys, match="uses the journal key 'k1'"):
            async with place.connect(journal_keys=keys) as runtime:
                await runtime.ready()
    async with loom.connect(f"sqlite:///{place.path}") as client:
        with pytest.raises(WrongKeys):
            await client.fork("sick", tick=1)
        await client.send_event("sick", Word(text="hello"))
    async with place.connect(journal_keys=f"{K2},{K1}") as runtime:
        await runtime.send_event("sick", Word(text="world"))
        assert await (await runtime.handler("sick")) == "hello world"
        fork = await runtime.fork("sick", tick=1)
    found = await place.verdicts(journal_keys=f"{K2},{K1}")
    assert {run.verdict for run in found.values()} == {"signed"}
    assert fork.run_id in found


async def test_who_lacks_the_key_cannot_forge_a_journal(tmp_path: Path, until_idle: UntilIdle) -> None:
    """The chain is made anew with all that is in the database, and once more without any signature."""
    place = await begin(Place(tmp_path), until_idle, journal_keys=K1)
    place.rewrite("chunks", b"good morning", b"evil morning")
    async with loom.connect(f"sqlite:///{place.path}") as runtime:
        stored = await runtime.store.export("sick")
    assert stored is not None
    chunks, link = Links().chained("sick", stored.chunks)
    for chunk in chunks:
        place.execute(
            f"UPDATE chunks SET previous = ? WHERE run = {SICK} AND first_tick = ?", chunk.previous, chunk.first_tick
        )
    place.execute("UPDATE runs SET link = ? WHERE run_id = 'sick'", link)
    found = await place.verdicts(journal_keys=K1)
    assert "chunks are not signed" in str(found["sick"].problem)
    assert found["sound"].verdict == "signed"
    lenient = f"{K1},unsigned"
    assert "its row is not what was written" in str((await place.verdicts(journal_keys=lenient))["sick"].problem)
    place.execute("UPDATE runs SET mac = NULL WHERE run_id = 'sick'")
    assert (await place.verdicts(journal_keys=lenient))["sick"].verdict == "chained"


async def test_a_forged_snapshot_is_found(
    tmp_path: Path, until_idle: UntilIdle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", 3)
    place = await begin(Place(tmp_path), until_idle, 40, journal_keys=K1, prune=True)
    async with place.connect(journal_keys=K1, prune=True) as runtime:
        for run_id in ("sick", "sound"):
            await finish(runtime, run_id)
    assert place.execute("SELECT COUNT(*) FROM snapshots") == [(2,)]
    assert place.execute("SELECT COUNT(*) FROM runs WHERE first_tick > 0") == [(2,)]
    assert {found.verdict for found in (await place.verdicts(journal_keys=K1)).values()} == {"signed"}
    place.rewrite("snapshots", b"good morning", b"evil morning")
    found = (await place.verdicts(journal_keys=K1))["sick"]
    assert "the snapshot after" in str(found.problem)

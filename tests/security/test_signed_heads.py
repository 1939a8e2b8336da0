"""Attacks on the rows of signed runs: who can write the database but lacks the keys cannot take a run back in time, nor
give it another definition or another status. What an old row with its own signature hides, an anchor shows."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from security_rig import is_parked, until

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.verification import Verified, verified
from loom.store.errors import WrongKeys
from loom.store.records import RunHead

K1, K2 = (f"{name}:{base64.b64encode(name.encode() * 16).decode()}" for name in ("k1", "k2"))
SICK = "(SELECT id FROM runs WHERE run_id = 'sick')"
WAIT = {"type": "waitForEvent", "inputs": {"event": "Go"}}
FLOW: dict[str, Any] = {"actions": {"W": WAIT, "Say": {"type": "compose", "inputs": "good", "runAfter": {"W": []}}}}
OTHER: dict[str, Any] = {"actions": {"W": WAIT, "Say": {"type": "compose", "inputs": "evil", "runAfter": {"W": []}}}}

UntilIdle = Callable[[Any], Awaitable[None]]


class Word(HumanResponseEvent):
    text: str


class Listens(Workflow):
    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        words = [(await ctx.wait_for_event(Word, waiter_id=str(number), timeout=None)).text for number in range(2)]
        if "fail" in words:
            raise ValueError(f"{ev.greeting} fails")
        return StopEvent(result=" ".join(words))


class Database:
    """A file, and somebody who writes it with SQL."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.url = f"sqlite:///{self.path}"

    def runtime(self, keys: str | None = K1) -> DurableRuntime:
        runtime = loom.connect(self.url, idle_timeout=0, poll_interval=0.05, journal_keys=keys)
        runtime.register(Listens(), name="listens")
        runtime.register(loom.load(FLOW), name="flow")
        return runtime

    def execute(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(sql, values).fetchall()

    def row(self) -> tuple[Any, ...]:
        """All that says how far the sick run is."""
        [row] = self.execute("SELECT * FROM runs WHERE run_id = 'sick'")
        return tuple(row)

    def put_back(self, row: tuple[Any, ...], chunks: int) -> None:
        """Put an old row in the place of the new one, and take away what came after it."""
        self.execute("DELETE FROM runs WHERE run_id = 'sick'")
        self.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", *row)
        newest = f"SELECT id FROM chunks WHERE run = {SICK} ORDER BY id LIMIT -1 OFFSET {chunks}"
        self.execute(f"DELETE FROM chunks WHERE id IN ({newest})")

    def chunks(self) -> int:
        [(count,)] = self.execute(f"SELECT COUNT(*) FROM chunks WHERE run = {SICK}")
        return int(count)

    async def verdicts(self, keys: str = K1) -> dict[str, Verified]:
        async with loom.connect(self.url, journal_keys=keys) as runtime:
            return {found.run_id: found async for found in verified(runtime.store, runtime.links)}


@pytest.fixture
async def database(tmp_path: Path, until_idle: UntilIdle) -> Database:
    """Two runs in Python that wait, and one of a flow."""
    database = Database(tmp_path)
    async with database.runtime() as runtime:
        for run_id in ("sick", "sound"):
            await until_idle(await runtime.start("listens", {"greeting": "hello"}, run_id=run_id))
        await until_idle(await runtime.start("flow", run_id="flowing"))
    assert {found.verdict for found in (await database.verdicts()).values()} == {"signed"}
    return database


async def go_on(database: Database, text: str = "hello") -> None:
    """Let the sick run take its next word."""
    async with database.runtime() as runtime:
        before = (await runtime.row("sick")).head.ticks
        await runtime.send_event("sick", Word(text=text))
        async with asyncio.timeout(60):
            while not _has_come_to_rest((await runtime.row("sick")).head, before):  # noqa: ASYNC110 - a store is asked
                await asyncio.sleep(0.01)


def _has_come_to_rest(head: RunHead, ticks: int) -> bool:
    return head.ticks > ticks and (head.status != "running" or head.idle_since is not None)


async def parked(database: Database, run_id: str) -> str:
    """Why an engine does not go on with a run."""
    async with database.runtime() as runtime:
        await runtime.send_event(run_id, Word(text="x"))
        found = await until(runtime, run_id, lambda info: is_parked(info) or info.status != "running")
        assert found.status == "running", "it has gone on"
        return str(found.parked)


def cut(database: Database) -> None:
    """Take the last chunk away, and set the row back to what the chain says before it."""
    [(number, ticks, events, link)] = database.execute(
        f"SELECT id, first_tick, first_cursor, previous FROM chunks WHERE run = {SICK} ORDER BY id DESC LIMIT 1"
    )
    database.execute("DELETE FROM chunks WHERE id = ?", number)
    database.execute("UPDATE runs SET ticks = ?, events = ?, link = ? WHERE run_id = 'sick'", ticks, events, link)


async def test_a_run_whose_last_chunks_were_cut_off_is_found_and_not_run(database: Database) -> None:
    await go_on(database)
    cut(database)
    found = await database.verdicts()
    assert found["sick"].verdict == "broken"
    assert "Run 'sick': its row is not what was written" in str(found["sick"].problem)
    assert found["sound"].verdict == "signed"
    assert "its row is not what was written" in await parked(database, "sick")


@pytest.mark.parametrize("kept", [1, 0], ids=["the front", "all"])
async def test_a_run_whose_first_chunks_were_taken_away_is_found(database: Database, kept: int) -> None:
    await go_on(database)
    database.execute(
        f"""DELETE FROM chunks WHERE run = {SICK} AND id NOT IN
        (SELECT id FROM chunks WHERE run = {SICK} ORDER BY id DESC LIMIT {kept})"""
    )
    database.execute(
        f"""UPDATE runs SET first_tick = COALESCE((SELECT MIN(first_tick) FROM chunks WHERE run = {SICK}), ticks)
        WHERE run_id = 'sick'"""
    )
    found = await database.verdicts()
    assert found["sick"].verdict == "broken"
    assert "ticks are missing, and no snapshot covers them" in str(found["sick"].problem)
    assert found["sound"].verdict == "signed"


CHANGES = {
    "status": "UPDATE runs SET status = 'completed', ended_at = 1.0 WHERE run_id = 'sick'",
    "workflow": "UPDATE runs SET workflow = 'flow' WHERE run_id = 'sick'",
    "another id": "UPDATE runs SET run_id = 'other' WHERE run_id = 'sick'",
    "a signature of another run": """UPDATE runs SET mac = (SELECT mac FROM runs WHERE run_id = 'sound')
        WHERE run_id = 'sick'""",
    "no signature at all": "UPDATE runs SET mac = x'6b313a' WHERE run_id = 'sick'",
    "a signature that is none": "UPDATE runs SET mac = 'text' WHERE run_id = 'sick'",
    "ticks": "UPDATE runs SET ticks = ticks + 1 WHERE run_id = 'sick'",
    "events": "UPDATE runs SET events = events + 1 WHERE run_id = 'sick'",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_a_row_says_cannot_be_changed(database: Database, change: str) -> None:
    database.execute(CHANGES[change])
    broken = [found.run_id for found in (await database.verdicts()).values() if found.verdict == "broken"]
    assert broken == ["other" if change == "another id" else "sick"]


async def test_a_run_cannot_be_given_another_definition(database: Database, until_idle: UntilIdle) -> None:
    """Both documents are in the store, each under its own digest: only the row says which is the run's."""
    async with database.runtime() as runtime:
        runtime.register(loom.load(OTHER), name="other")
        await until_idle(await runtime.start("other", run_id="evil"))
    [(digest,)] = database.execute("SELECT document FROM runs WHERE run_id = 'evil'")
    database.execute("UPDATE runs SET document = ? WHERE run_id = 'flowing'", digest)
    found = (await database.verdicts())["flowing"]
    assert found.verdict == "broken"
    assert "or the run has another document now" in str(found.problem)
    assert "another document" in await parked(database, "flowing")
    database.execute("UPDATE runs SET document = NULL WHERE run_id = 'flowing'")
    assert (await database.verdicts())["flowing"].verdict == "broken"


async def test_without_keys_the_first_link_binds_the_definition(tmp_path: Path, until_idle: UntilIdle) -> None:
    database = Database(tmp_path)
    async with database.runtime(None) as runtime:
        runtime.register(loom.load(OTHER), name="other")
        for name, run_id in (("flow", "flowing"), ("other", "evil")):
            await until_idle(await runtime.start(name, run_id=run_id))
    [(digest,)] = database.execute("SELECT document FROM runs WHERE run_id = 'evil'")
    database.execute("UPDATE runs SET document = ? WHERE run_id = 'flowing'", digest)
    async with loom.connect(database.url) as runtime:
        found = {found.run_id: found.verdict async for found in verified(runtime.store, runtime.links)}
    assert found == {"flowing": "broken", "evil": "chained"}


async def test_rows_of_an_encrypted_store_are_signed_too(tmp_path: Path, until_idle: UntilIdle) -> None:
    database = Database(tmp_path)
    options = {"journal_keys": K1, "encryption_keys": K2, "idle_timeout": 0}
    async with loom.connect(database.url, **options) as runtime:
        runtime.register(Listens(), name="listens")
        await until_idle(await runtime.start("listens", {"greeting": "hello"}, run_id="sick"))
        assert [found.verdict async for found in verified(runtime.store, runtime.links)] == ["signed"]
    database.execute("UPDATE runs SET workflow = 'other'")
    async with loom.connect(database.url, **options) as runtime:
        [found] = [found async for found in verified(runtime.store, runtime.links)]
    assert "its row is not what was written" in str(found.problem)


# -- signatures are demanded ------------------------------------------------------------------------------------------


async def signed(database: Database, keys: str = K1) -> Any:
    """What `loom db upgrade` does with the keys."""
    from loom.runtime.verification import sign_heads

    async with loom.connect(database.url, journal_keys=keys) as runtime:
        return await sign_heads(runtime.store, runtime.links, 1000.0)


async def test_rows_from_before_are_named_then_signed_and_from_then_on_demanded(database: Database) -> None:
    database.execute("UPDATE runs SET mac = NULL")
    found = await database.verdicts()
    assert {run.verdict for run in found.values()} == {"unsigned_head"}
    assert {run.head for run in found.values()} == {"unsigned"}
    await go_on(database)  # they go on as they are
    assert (await signed(database)).signed == 2, "and the third has got its signature by going on"
    assert {run.verdict for run in (await database.verdicts()).values()} == {"signed"}
    cut(database)
    database.execute("UPDATE runs SET mac = NULL WHERE run_id = 'sick'")
    again = await signed(database)
    assert (again.since, again.signed) == (1000.0, 0), "a row that lacks its signature now is a forger's"
    found = await database.verdicts(f"{K1},unsigned")
    assert "its signature is missing, and every head here has one" in str(found["sick"].problem)
    assert found["sound"].verdict == "signed"
    assert "its signature is missing" in await parked(database, "sick")


async def test_a_broken_run_is_not_signed(database: Database) -> None:
    database.execute("UPDATE runs SET mac = NULL")
    database.execute(f"UPDATE chunks SET previous = x'3a00' WHERE run = {SICK}")
    done = await signed(database)
    assert (done.signed, [run.run_id for run in done.broken]) == (2, ["sick"])
    assert database.execute("SELECT run_id FROM runs WHERE mac IS NULL") == [("sick",)]


async def test_a_run_put_back_to_its_start_is_found(database: Database) -> None:
    await signed(database)
    database.execute(f"DELETE FROM chunks WHERE run = {SICK}")
    database.execute("UPDATE runs SET ticks = 0, events = 0, link = NULL, mac = NULL WHERE run_id = 'sick'")
    assert "its signature is missing" in str((await database.verdicts())["sick"].problem)


async def test_starts_and_retries_are_signed_and_need_the_keys_then(database: Database) -> None:
    async with loom.connect(database.url, poll_interval=0.05) as client:
        await client.start("listens", {"greeting": "hi"}, run_id="early")  # nothing demands a signature yet
    await signed(database)
    async with loom.connect(database.url, poll_interval=0.05) as client:
        with pytest.raises(WrongKeys, match="to start or retry one, the keys are needed"):
            await client.start("listens", {"greeting": "hi"}, run_id="late")
        with pytest.raises(WrongKeys, match="to start or retry one"):
            await client.retry("sick")
        await client.send_event("sick", Word(text="hello"))  # who only sends needs none
    async with loom.connect(database.url, journal_keys=K1) as client:
        await client.start("listens", {"greeting": "hi"}, run_id="signed")
    found = await database.verdicts()
    assert (found["signed"].verdict, found["signed"].head) == ("empty", "signed")
    await go_on(database, "fail")
    async with database.runtime() as runtime:  # it may have come to rest between the two words
        await until(runtime, "sick", lambda info: info.status == "failed")
    assert (await database.verdicts())["sick"].verdict == "signed"
    async with loom.connect(database.url, journal_keys=K1) as client:
        assert (await client.get("sick")).status == "failed"
        await client.retry("sick")
    assert (await database.verdicts())["sick"].verdict == "signed", "the row of a run that is retried is signed too"
    async with database.runtime() as runtime:
        found_again = await until(runtime, "sick", lambda info: info.status == "failed" and not info.parked)
        assert found_again.status == "failed"
        data = await runtime.export_run("sick")
        await runtime.purge("sick")
        await runtime.import_run(data)
        fork = await runtime.fork("sick", tick=1)
    found = await database.verdicts()
    assert found["sick"].verdict == found[fork.run_id].verdict == "signed"


async def test_keys_follow_each_other(database: Database) -> None:
    await signed(database)
    async with database.runtime(f"{K2},{K1}") as runtime:
        await runtime.send_event("sick", Word(text="hello"))
        await runtime.send_event("sick", Word(text="world"))
        assert await (await runtime.handler("sick")) == "hello world"
    found = await database.verdicts(f"{K2},{K1}")
    assert {run.verdict for run in found.values()} == {"signed"}
    assert database.execute("SELECT run_id FROM runs WHERE substr(mac, 1, 3) = ?", b"k2:") == [("sick",)]


# -- anchors ----------------------------------------------------------------------------------------------------------


async def anchored(database: Database, keys: str = K1) -> bytes:
    from loom.runtime.verification import anchor_lines

    async with loom.connect(database.url, journal_keys=keys) as runtime:
        return "".join([line async for line in anchor_lines(runtime.store, runtime.links, 1000.0)]).encode()


async def compared(database: Database, anchor: bytes, keys: str = K1) -> list[str]:
    from loom.runtime.verification import differences, read_anchor

    async with loom.connect(database.url, journal_keys=keys) as runtime:
        read = read_anchor(anchor, runtime.links)
        return [found.problem async for found in differences(runtime.store, runtime.links, read)]


async def test_an_old_row_with_its_old_signature_is_found_by_an_anchor_alone(database: Database) -> None:
    old, chunks = database.row(), database.chunks()
    await go_on(database)
    anchor = await anchored(database)
    assert await compared(database, anchor) == []
    database.put_back(old, chunks)
    assert (await database.verdicts())["sick"].verdict == "signed", "the database alone cannot tell"
    [problem] = await compared(database, anchor)
    assert problem.startswith("Run 'sick' was put back: it had ")
    await go_on(database, "other")
    await go_on(database, "words")
    assert (await database.verdicts())["sick"].verdict == "signed"
    [problem] = await compared(database, anchor)
    assert problem == "Run 'sick' is another one: it was put back to an earlier moment, and went on otherwise."


async def test_an_anchor_holds_for_runs_that_have_gone_on(database: Database, until_idle: UntilIdle) -> None:
    async with loom.connect(database.url, journal_keys=K1) as client:
        await client.start("flow", run_id="unbegun")
    anchor = await anchored(database)
    await go_on(database)
    await go_on(database)
    async with database.runtime() as runtime:
        await until_idle(await runtime.start("listens", {"greeting": "hi"}, run_id="new"))
        await until_idle(await runtime.handler("unbegun"))
    assert await compared(database, anchor) == []
    assert await compared(database, await anchored(database)) == []
    database.execute("DELETE FROM runs WHERE run_id = 'sound'")
    [gone] = await compared(database, anchor)
    assert gone.startswith("Run 'sound' is gone: it had ")


async def test_an_ended_run_that_runs_again_and_a_forgotten_note_are_named(database: Database) -> None:
    await signed(database)
    await go_on(database)
    old, chunks = database.row(), database.chunks()
    await go_on(database)
    anchor = await anchored(database)
    database.put_back(old, chunks)
    database.execute("DELETE FROM entries WHERE kind = 'keyring' AND key = 'heads.signed'")
    note, problem = await compared(database, anchor)
    assert note == "The note that every row of this store is signed was there, and is gone."
    assert "Run 'sick' was put back" in problem


@pytest.mark.parametrize("change", ["ticks", "half", "none", "key"])
async def test_an_anchor_that_was_changed_is_none(database: Database, change: str) -> None:
    from loom.runtime.verification import BadAnchor

    anchor = await anchored(database, f"{K1},{K2}")
    keys = K2 if change == "key" else K1
    if change == "key":
        database.execute("DELETE FROM entries WHERE kind = 'keyring'")
    changed = {
        "ticks": anchor.replace(b'"sick",', b'"sack",'),
        "half": anchor[: len(anchor) // 2],
        "none": b"",
        "key": anchor,
    }
    with pytest.raises(BadAnchor):
        await compared(database, changed[change], keys)

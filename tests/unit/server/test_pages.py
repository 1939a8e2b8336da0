"""Pages of lists: what they weigh, and rows that cannot be shown."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_serving import Served

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.server import pages as server_pages
from loom.server.settings import ServerSettings
from loom.store.records import RunQuery, RunRow

ENDLESS = 10**6000
MIB = 1024 * 1024


class Ends(Workflow):
    """Ends as it is told to."""

    @step
    async def end(self, ctx: Context, ev: StartEvent) -> StopEvent:
        match ev.how:
            case "endless":
                return StopEvent(result={"deep": [ENDLESS]})
            case "typed":
                return Counted(number=ENDLESS)
            case "streamed":
                ctx.write_event_to_stream(Count(number=ENDLESS))
            case "kept":
                await ctx.store.set("number", ENDLESS)
            case "raised":
                raise RuntimeError("x" * ev.size)
            case _:
                pass
        return StopEvent(result="x" * ev.size)


class Count(Event):
    number: int


class Counted(StopEvent):
    number: int


@pytest.fixture
async def ends(served: Served) -> Served:
    served.runtime.register(Ends(), name="ends")
    return served


async def ended(served: Served, run_id: str, how: str = "", size: int = 1) -> None:
    handle = await served.runtime.start("ends", {"how": how, "size": size}, run_id=run_id)
    await asyncio.gather(handle, return_exceptions=True)


@pytest.mark.parametrize("how", ["endless", "typed", "streamed", "kept"])
async def test_an_integer_that_cannot_be_shown_fails_its_attempt(
    ends: Served, client: httpx2.AsyncClient, how: str
) -> None:
    await ended(ends, "fine")
    await ended(ends, "bad", how)
    found = (await client.get("/v1/runs/bad")).json()
    assert (found["status"], found["error"]["step"]) == ("failed", "end")
    assert "cannot be stored" in found["error"]["message"]
    assert "cannot be shown" in found["error"]["message"] or "4300 digits" in found["error"]["message"]
    listed = (await client.get("/v1/runs?include=result")).json()["items"]
    assert [item["run_id"] for item in listed] == ["bad", "fine"]


async def test_digits_in_a_text_are_no_number(ends: Served, client: httpx2.AsyncClient) -> None:
    class Digits(Workflow):
        @step
        async def end(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=["7" * 5000, 'a"' + "8" * 5000, 10**4000])

    ends.runtime.register(Digits(), name="digits")
    assert (await (await ends.runtime.start("digits", run_id="d")))[0] == "7" * 5000
    assert (await client.get("/v1/runs/d")).json()["status"] == "completed"


async def test_a_row_that_cannot_be_shown_says_so_and_the_list_goes_on(
    ends: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "bad", "two"):
        await ended(ends, name)
    for place, name in (("loom.runtime.render", "rendered_run"), ("loom.server.compat_handlers", "result_of")):
        real = getattr(__import__(place, fromlist=[name]), name)

        async def broken(runtime: Any, row: Any, *, _real: Any = real, **options: Any) -> Any:
            if row.run_id == "bad":
                raise RecursionError("it has no end")
            return await _real(runtime, row, **options)

        monkeypatch.setattr(f"{place}.{name}", broken)
    items = (await client.get("/v1/runs?include=result")).json()["items"]
    assert [(item["run_id"], item["status"]) for item in items] == [
        ("two", "completed"), ("bad", "completed"), ("one", "completed"),
    ]  # fmt: skip
    assert items[0].keys() == items[1].keys()
    assert (items[0]["error"], items[0]["result"]["value"]) == (None, {"result": "x"})
    assert items[1]["error"]["message"] == "The run cannot be shown: RecursionError: it has no end"
    handlers = (await client.get("/handlers")).json()["handlers"]
    assert [item["error"] for item in handlers] == [
        None, "The run cannot be shown: RecursionError: it has no end", None,
    ]  # fmt: skip
    assert handlers[0].keys() == handlers[1].keys()
    assert (handlers[1]["result"], handlers[1]["result_unreadable"]) == (None, True)
    assert len([record for record in caplog.records if "Run bad cannot be shown" in record.message]) == 2


async def test_results_come_to_lists_when_asked_for(ends: Served, client: httpx2.AsyncClient) -> None:
    await ended(ends, "r", size=3)
    [item] = (await client.get("/v1/runs")).json()["items"]
    assert (item["status"], item["result"]) == ("completed", None)
    [item] = (await client.get("/v1/runs?include=result")).json()["items"]
    assert item["result"] == (await client.get("/v1/runs/r")).json()["result"]
    assert item["result"]["value"] == {"result": "xxx"}
    answer = await client.get("/v1/runs?include=errors")
    assert (answer.status_code, "use result" in answer.json()["detail"]) == (400, True)
    transport = httpx2.ASGITransport(app=ends.app, client=("127.0.0.1", 1))
    async with loom.Client("http://127.0.0.1", transport=transport) as found:
        assert [run.result async for run in found.list()] == [None]
        assert [run.result async for run in found.list(include="result")] == [item["result"]]


async def test_texts_of_errors_are_cut_in_lists(ends: Served, client: httpx2.AsyncClient) -> None:
    await ended(ends, "r", "raised", MIB)
    [item] = (await client.get("/v1/runs")).json()["items"]
    message = item["error"]["message"]
    assert (len(message.encode()), message[-1]) == (16 * 1024, "…")
    assert len((await client.get("/v1/runs/r")).json()["error"]["message"]) >= MIB


async def test_pages_of_handlers_are_cut_and_the_log_says_so(
    ends: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert server_pages.PAGE_BYTES == 8 * MIB
    for place in ("loom.server.compat_handlers.PAGE_BYTES", "loom.server.v1.runs.PAGE_BYTES"):
        monkeypatch.setattr(place, 50_000)
    sizes = {"a": 20_000, "b": 20_000, "c": 20_000, "d": 120_000, "e": 1, "f": 1}
    for name, size in sizes.items():
        await ended(ends, name, size=size)
    for path, key, items, runs in (
        ("/handlers?", "handler_id", "handlers", "/handlers"),
        ("/v1/runs?include=result&", "run_id", "items", "/v1/runs"),
    ):
        pages: list[list[str]] = []
        cursor: str | None = ""
        while cursor is not None:
            answer = await client.get(f"{path}cursor={cursor}" if cursor else path[:-1])
            page = answer.json()
            assert len(answer.content) < 60_000 or len(page[items]) == 1
            assert all(item["result"] is not None for item in page[items])
            pages.append([item[key] for item in page[items]])
            cursor = page["next_cursor"]
        assert pages == [["f", "e"], ["d"], ["c", "b"], ["a"]], runs
    cuts = [record for record in caplog.records if record.message.startswith("GET /handlers gave")]
    assert [record.levelno for record in cuts] == [logging.WARNING] * 3
    assert (await client.get("/v1/runs")).json()["next_cursor"] is None


WAITS_FOR_MUCH = {
    "actions": {"w": {"type": "waitForEvent", "inputs": {"event": "Go", "requirements": {"a": "@triggerBody()"}}}}
}


async def test_a_page_reads_little_more_than_it_shows(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run waits for stands in its row, and may be as large as a request."""
    monkeypatch.setattr(server_pages, "PAGE_BYTES", 8000)
    monkeypatch.setattr("loom.server.v1.runs.PAGE_BYTES", 8000)
    monkeypatch.setattr("loom.server.compat_handlers.PAGE_BYTES", 8000)
    served.runtime.register(loom.load(WAITS_FOR_MUCH), name="much")
    for number in range(40):
        await served.runtime.start("much", "x" * 2000, run_id=f"r{number:02}")
        await served.until_waiting(f"r{number:02}")
    read: list[int] = []
    find = served.runtime.store.find

    async def counted(query: RunQuery) -> list[RunRow]:
        rows = await find(query)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(served.runtime.store, "find", counted)
    for path, name in (("/v1/runs?limit=500", "items"), ("/handlers", "handlers")):
        read.clear()
        seen: list[str] = []
        cursor = None
        while cursor is not None or not seen:
            joined = "&" if "?" in path else "?"
            answer = await client.get(path if cursor is None else f"{path}{joined}cursor={cursor}")
            seen += [item["run_id"] for item in answer.json()[name]]
            cursor = answer.json()["next_cursor"]
        assert seen == [f"r{number:02}" for number in reversed(range(40))]
        assert max(read) <= 20
    monkeypatch.setattr("loom.server.v1.runs.PAGE_BYTES", 8 * MIB)
    for limit in (1, 19, 20, 21, 39, 40, 41):
        page = (await client.get(f"/v1/runs?limit={limit}")).json()
        assert len(page["items"]) == min(limit, 40)
        assert (page["next_cursor"] is None) == (limit >= 40)


# -- damaged rows -----------------------------------------------------------------------------------------------------


DAMAGE = {
    "a chunk": "UPDATE chunks SET data = x'00ff' WHERE run = (SELECT id FROM runs WHERE run_id = 'bad')",
    "waiters": "waiters = '[1]'",
    "waiters without fields": "waiters = '[{}]'",
    "waiters that are none": "waiters = 'x'",
    "a time beyond all calendars": "created_at = 9e300",
    "an endless time": "updated_at = -9e999",
    "a time that is a text": "updated_at = 'x'",
    "an end that is a text": "ended_at = 'x'",
    "idle for ages": "idle_since = -9e300",
    "no UTF-8 as its error": "error = CAST(x'ff' AS TEXT)",
    "no UTF-8 as its workflow": "workflow = CAST(x'77ff' AS TEXT)",
    "bytes as its error": "error = x'ff'",
    "no number of ticks": "ticks = 'x'",
    "a number as its reason": "parked = 5",
    "tags": "tags = 'x'",
}


RUNS = 3


class Answer(HumanResponseEvent):
    pass


class Waits(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result="done")


@pytest.fixture
async def damaged(tmp_path: Path) -> AsyncIterator[Served]:
    """A server on three runs that wait, to which nothing has happened yet."""
    path = tmp_path / "runs.db"
    async with loom.connect(f"sqlite:///{path}") as runtime:
        runtime.register(Waits(timeout=None), name="waits")
        for run_id in ("old", "bad", "new"):
            await runtime.start("waits", run_id=run_id)
        async with asyncio.timeout(60):
            while len([1 async for info in runtime.list() if info.active_waiters]) < RUNS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    # Nobody works on them here: whatever is found was read from the file.
    async with loom.connect(f"sqlite:///{path}") as runtime:
        yield Served(runtime, ServerSettings())


@pytest.mark.parametrize("how", DAMAGE)
async def test_a_damaged_row_does_not_hide_the_others(damaged: Served, tmp_path: Path, how: str) -> None:
    change = DAMAGE[how]
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as database:
        database.execute(change if change.startswith("UPDATE") else f"UPDATE runs SET {change} WHERE run_id = 'bad'")
    async with damaged.client() as client:
        for path, name in (("/v1/runs", "items"), ("/v1/runs?include=result", "items"), ("/handlers", "handlers")):
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert {item["run_id"] for item in answer.json()[name]} == {"old", "bad", "new"}
    assert {info.run_id async for info in damaged.runtime.list()} == {"old", "bad", "new"}


class Demands(Workflow):
    """Waits for an answer with fields that no answer has."""

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Answer, waiter_id="\ud800", requirements={"\ud800": "\ud800", 5: 1}, timeout=None)
        return StopEvent()


async def test_no_name_that_a_run_waits_by_makes_its_row_unreadable(tmp_path: Path) -> None:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(Demands(timeout=None), name="demands")
        await runtime.start("demands", run_id="r")
        served = Served(runtime, ServerSettings())
        await served.until_waiting("r")
        async with served.client() as client:
            [waiter] = (await client.get("/v1/runs/r")).json()["active_waiters"]
            assert waiter["requirements"] == {"\ufffd": "\ufffd", "5": 1}
            assert (await client.post("/v1/runs/r/cancel")).status_code == 202

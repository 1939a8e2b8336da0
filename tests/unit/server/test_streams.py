"""Streams over both faces: cursors, filters, ends, heartbeats, limits, and how they break."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.server.app import create_app
from loom.server.auth import new_key
from loom.server.settings import ServerSettings
from loom.steps.events import WorkflowIdleEvent

NEXT_LINE = "a\u0085b\u2028c\u2029d\ne"


class Said(Event):
    n: int
    text: str = NEXT_LINE


class Answer(HumanResponseEvent):
    word: str


class Finished(StopEvent):
    word: str


class Talker(Workflow):
    @step
    async def talk(self, ev: StartEvent, ctx: Context) -> Finished:
        for n in range(3):
            ctx.write_event_to_stream(Said(n=n))
        answer = await ctx.wait_for_event(Answer)
        return Finished(word=answer.word)


class Broken(Workflow):
    is_broken = True

    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        if Broken.is_broken:
            raise ValueError("broken")
        return StopEvent(result="mended")


class Unsteady(Workflow):
    """Says something else each time that its body runs."""

    times = 0

    @step
    async def talk(self, ev: StartEvent, ctx: Context) -> Finished:
        self.times += 1
        for n in (1, 10 * self.times):
            ctx.write_event_to_stream(Said(n=n))
        answer = await ctx.wait_for_event(Answer)
        return Finished(word=answer.word)


class Reader:
    """A reader at the ASGI interface: sees each message as it is sent, and may leave or stop taking any."""

    def __init__(self, app: Starlette, path: str, headers: dict[str, str] | None = None) -> None:
        path, _, query = path.partition("?")
        raw = [(b"host", b"localhost"), *((k.lower().encode(), v.encode()) for k, v in (headers or {}).items())]
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": raw, "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        }  # fmt: skip
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.takes = asyncio.Event()
        self.takes.set()
        self.is_asked = asyncio.Event()
        self._received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.task = asyncio.create_task(app(self.scope, self._received.get, self._send))  # type: ignore[arg-type]

    async def _send(self, message: Any) -> None:
        self.is_asked.set()
        await self.takes.wait()
        self.sent.put_nowait(message)

    async def status(self) -> int:
        async with asyncio.timeout(60):
            return int((await self.sent.get())["status"])

    async def text(self) -> str:
        """The next piece that is not empty."""
        async with asyncio.timeout(60):
            while not (body := (await self.sent.get())["body"]):
                pass
        return str(body.decode())

    def leave(self) -> None:
        self._received.put_nowait({"type": "http.disconnect"})

    async def ended(self) -> bool:
        """Whether the answer was finished, and not broken, once it is over."""
        async with asyncio.timeout(60):
            await self.task
        last = {"more_body": True}
        while not self.sent.empty():
            last = self.sent.get_nowait()
        return not last.get("more_body", True)


@pytest.fixture(params=["memory://", "sqlite"])
async def runtime(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Any]:
    url = request.param if request.param == "memory://" else f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as runtime:
        runtime.register(Talker(), name="talker")
        runtime.register(Broken(), name="broken")
        yield runtime


def client_of(app: Starlette) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


async def waiting(runtime: Any, run_id: str = "r") -> None:
    """Until the run waits for its answer."""
    handler = await runtime.handler(run_id)
    async with asyncio.timeout(60):
        async for event in handler.stream_events(expose_internal=True):
            if isinstance(event, WorkflowIdleEvent):
                return


async def finished(runtime: Any) -> None:
    handler = await runtime.start("talker", run_id="r")
    await waiting(runtime)
    await runtime.send_event("r", Answer(word="yes"))
    await handler


def messages(text: str) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n")[:-1]:
        first, second = block.splitlines()
        found.append((int(first.removeprefix("id: ")), json.loads(second.removeprefix("data: "))))
    return found


async def test_the_whole_stream_of_the_compatible_face(runtime: Any) -> None:
    await finished(runtime)
    async with client_of(create_app(runtime)) as client:
        answer = await client.get("/events/r?after_sequence=-1")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = messages(answer.text)
        assert [data["type"] for _, data in found] == ["Said", "Said", "Said", "Finished"]
        assert found[0][1] == {
            "value": {"n": 0, "text": NEXT_LINE},
            "type": "Said",
            "types": None,
            "qualified_name": f"{Said.__module__}.Said",
        }
        assert found[-1][1]["types"] == ["StopEvent"]
        everything = messages((await client.get("/events/r?after_sequence=-1&include_internal=true")).text)
        assert [seq for seq, _ in everything] == list(range(len(everything)))
        assert set(dict(found)) < set(dict(everything))
        lines = (await client.get("/events/r?after_sequence=-1&sse=false&include_qualified_name=false")).text
        decoded = [json.loads(line) for line in lines.splitlines()]
        assert [line["value"].get("n") for line in decoded] == [0, 1, 2, None]
        assert {line["qualified_name"] for line in decoded} == {None}


async def test_entries_of_v1(runtime: Any) -> None:
    await finished(runtime)
    async with client_of(create_app(runtime)) as client:
        found = messages((await client.get("/v1/runs/r/stream")).text)
        assert [seq for seq, _ in found] == [data["seq"] for _, data in found]
        assert set(found[0][1]) == {"seq", "at", "type", "types", "value"}
        assert found[0][1]["at"].endswith("Z")
        lines = await client.get("/v1/runs/r/stream", headers={"Accept": "application/x-ndjson"})
        assert lines.headers["content-type"].startswith("application/x-ndjson")
        assert [json.loads(line) for line in lines.text.splitlines()] == [data for _, data in found]
        stops = messages((await client.get("/v1/runs/r/stream?type=StopEvent")).text)
        assert [data["type"] for _, data in stops] == ["Finished"]
        both = messages((await client.get("/v1/runs/r/stream?type=Said&type=Finished")).text)
        assert both == found


async def test_both_faces_tell_every_reader_what_is_superseded() -> None:
    async with loom.connect("memory://", idle_timeout=0) as runtime:
        runtime.register(Unsteady(timeout=None), name="unsteady")
        handler = await runtime.start("unsteady", run_id="r")
        async with asyncio.timeout(60):
            while runtime.figures["released"] < 1:  # noqa: ASYNC110 - a release has no event of its own
                await asyncio.sleep(0.01)
        await runtime.send_event("r", Answer(word="yes"))
        await handler
        async with client_of(create_app(runtime)) as client:
            found = messages((await client.get("/v1/runs/r/stream")).text)
            old = messages((await client.get("/events/r?after_sequence=-1")).text)
    said = {seq: data["value"]["n"] for seq, data in found if data["type"] == "Said"}
    assert list(said.values()) == [1, 10, 20]
    [superseded] = [data for _, data in found if data["type"] == "StreamSupersededEvent"]
    [[first, last]] = superseded["value"].pop("cursors")
    assert superseded["value"] == {"step_name": "talk", "execution": 1}
    assert (said[first], first) == (10, last)
    assert [(seq, data["type"], data["value"]) for seq, data in old if seq != superseded["seq"]] == [
        (seq, data["type"], data["value"]) for seq, data in found if seq != superseded["seq"]
    ]
    assert dict(old)[superseded["seq"]]["qualified_name"] == "loom.StreamSupersededEvent"


@pytest.mark.parametrize("path", ["/v1/runs/r/stream?after=", "/events/r?after_sequence="])
async def test_every_cursor_gives_what_is_behind_it(runtime: Any, path: str) -> None:
    await finished(runtime)
    async with client_of(create_app(runtime)) as client:
        all_of_it = messages((await client.get(f"{path}-1")).text)
        last = all_of_it[-1][0]
        for cursor in range(-1, last):
            expected = [(seq, data) for seq, data in all_of_it if seq > cursor]
            assert messages((await client.get(f"{path}{cursor}")).text) == expected
            resumed = await client.get(f"{path}now", headers={"Last-Event-ID": str(cursor)})
            assert messages(resumed.text) == expected
        for beyond in (last, last + 1, 10**12, "now"):
            over = await client.get(f"{path}{beyond}")
            assert (over.status_code, over.content) == (204, b"")
        assert (await client.get(f"{path}-1", headers={"Last-Event-ID": str(last)})).status_code == 204
        for wrong in ("-2", "x", "1.5", "9" * 30, "٣"):
            assert (await client.get(f"{path}{wrong}")).status_code == 400
        assert (await client.get(path + "1", headers={"Last-Event-ID": "x"})).status_code == 400


async def test_what_nobody_knows_is_refused(runtime: Any) -> None:
    async with client_of(create_app(runtime)) as client:
        assert (await client.get("/v1/runs/none/stream")).json()["code"] == "run-not-found"
        assert (await client.get("/events/none")).status_code == 404
        await runtime.start("talker", run_id="r")
        for query in ("nothing=1", "internal=perhaps", "type=", "after=1&after=2"):
            assert (await client.get(f"/v1/runs/r/stream?{query}")).json()["code"] == "invalid-request"


async def test_a_reader_that_begins_now_sees_only_what_comes(runtime: Any) -> None:
    await runtime.start("talker", run_id="r")
    await waiting(runtime)
    reader = Reader(create_app(runtime), "/events/r")
    assert await reader.status() == 200
    await runtime.send_event("r", Answer(word="go"))
    [(_, data)] = messages(await reader.text())
    assert data["value"] == {"word": "go"}
    assert await reader.ended()


async def test_heartbeats_keep_the_connection_and_move_the_cursor(runtime: Any) -> None:
    app = create_app(runtime, ServerSettings(heartbeat=0.05))
    await runtime.start("talker", run_id="r")
    await waiting(runtime)
    last = (await runtime.get("r")).events - 1
    own = Reader(app, "/v1/runs/r/stream?type=Finished")
    old = Reader(app, "/events/r")
    assert await own.status() == await old.status() == 200
    assert await own.text() == f"id: {last}\n\n"
    assert await old.text() == await old.text() == ": heartbeat\n\n"
    for reader in (own, old):
        reader.leave()
        assert not await reader.ended()
    assert len(app.state.server.open_streams) == 0


async def test_a_server_that_stops_breaks_streams_and_does_not_end_them(runtime: Any) -> None:
    app = create_app(runtime)
    await runtime.start("talker", run_id="r")
    await waiting(runtime)
    waits, stuck = Reader(app, "/v1/runs/r/stream?after=now"), Reader(app, "/v1/runs/r/stream")
    assert await waits.status() == await stuck.status() == 200
    stuck.takes.clear()
    app.state.server.open_streams.break_all()
    assert not await waits.ended()
    assert not await stuck.ended()
    assert not waits.task.cancelled()
    async with client_of(app) as client:
        refused = await client.get("/v1/runs/r/stream")
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert refused.headers["retry-after"]


async def test_a_key_has_only_so_many_streams(runtime: Any) -> None:
    app = create_app(runtime, ServerSettings(max_streams=2))
    await runtime.start("talker", run_id="r")
    readers = [Reader(app, "/v1/runs/r/stream"), Reader(app, "/events/r")]
    for reader in readers:
        assert await reader.status() == 200
    async with client_of(app) as client:
        refused = await client.get("/v1/runs/r/stream")
        assert (refused.status_code, refused.json()["code"]) == (429, "limited")
        assert refused.headers["retry-after"]
        assert (await client.get("/events/r")).status_code == 429
    readers[0].leave()
    assert not await readers[0].ended()
    again = Reader(app, "/events/r")
    assert await again.status() == 200
    for reader in (readers[1], again):
        reader.leave()
        await reader.ended()


async def test_behind_a_failure_the_stream_goes_on_if_the_run_does(runtime: Any) -> None:
    Broken.is_broken = True
    app = create_app(runtime)
    handler = await runtime.start("broken", run_id="r")
    with pytest.raises(ValueError, match="broken"):
        await handler
    async with client_of(app) as client:
        [(failed, data)] = messages((await client.get("/v1/runs/r/stream")).text)
        assert (data["type"], data["types"]) == ("WorkflowFailedEvent", ["StopEvent"])
        assert (await client.get(f"/v1/runs/r/stream?after={failed}")).status_code == 204
        Broken.is_broken = False
        await runtime.retry("r")
        await (await runtime.handler("r"))
        found = messages((await client.get(f"/v1/runs/r/stream?after={failed}")).text)
        assert [data["value"] for _, data in found] == [{"result": "mended"}]


async def test_a_run_that_is_purged_breaks_its_readers(runtime: Any) -> None:
    app = create_app(runtime)
    await runtime.start("talker", run_id="r")
    await waiting(runtime)
    reader = Reader(app, "/v1/runs/r/stream?after=now")
    reader.takes.clear()
    async with asyncio.timeout(60):
        await reader.is_asked.wait()
    await runtime.send_event("r", Answer(word="go"))
    await (await runtime.handler("r"))
    assert await runtime.purge("r")
    reader.takes.set()
    assert not await reader.ended()


async def test_keys_see_only_the_streams_of_their_workflows(runtime: Any) -> None:
    await finished(runtime)
    key, stored = new_key(("read",), workflows=("broken",))
    app = create_app(runtime)
    await app.state.server.keys.add(stored)
    async with client_of(app) as client:
        for path in ("/v1/runs/r/stream", "/events/r"):
            assert (await client.get(path)).status_code == 401
            assert (await client.get(path, headers={"X-API-Key": key})).status_code == 404


async def test_a_process_that_works_on_nothing_follows_the_run_of_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as worker, loom.connect(url) as other:
        worker.register(Talker(), name="talker")
        await worker.start("talker", run_id="r")
        await waiting(worker)
        reader = Reader(create_app(other), "/v1/runs/r/stream?after=now")
        assert await reader.status() == 200
        await worker.send_event("r", Answer(word="go"))
        [(_, data)] = messages(await reader.text())
        assert data["value"] == {"word": "go"}
        assert await reader.ended()


class Early(Workflow):
    @step
    async def talk(self, ev: StartEvent, ctx: Context) -> StopEvent:
        ctx.write_event_to_stream(Finished(word="early"))
        await ctx.wait_for_event(Answer)
        return StopEvent()


async def test_the_first_stop_event_ends_the_stream_whoever_wrote_it(runtime: Any) -> None:
    runtime.register(Early(), name="early")
    await runtime.start("early", run_id="r")
    reader = Reader(create_app(runtime), "/events/r?after_sequence=-1")
    assert await reader.status() == 200
    [(seq, data)] = messages(await reader.text())
    assert data["value"] == {"word": "early"}
    assert await reader.ended()
    async with client_of(create_app(runtime)) as client:
        assert (await client.get(f"/events/r?after_sequence={seq}")).status_code == 204

"""`GET /v1/changes`: what is told, to whom, from where on, and how a feed ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from server_serving import Approval, Served, serving

from loom.server.auth import new_key
from loom.store.errors import StoreUnavailable

Message = tuple[str, str, Any]
"""Event, id and data."""


class Feed:
    """One open feed, at the ASGI interface: sees each message, and may leave or stop taking any."""

    def __init__(self, served: Served, query: str = "", **headers: str) -> None:
        raw = [(b"host", b"127.0.0.1")]
        raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self._scope: Any = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": "/v1/changes", "raw_path": b"/v1/changes", "query_string": query.encode(), "root_path": "",
            "headers": raw, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self._received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._messages: list[Message] = []
        self.status = 0
        self.is_whole = False
        """Whether the answer was ended, and not broken."""
        self.takes = asyncio.Event()
        self.takes.set()
        self.last_id = ""
        self.task = asyncio.create_task(self._answer(served))

    async def _answer(self, served: Served) -> None:
        try:
            await served.app(self._scope, self._received.get, self._send)
        finally:
            self._sent.put_nowait(None)

    async def _send(self, message: Any) -> None:
        await self.takes.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.is_whole = not message.get("more_body", False)
        self._sent.put_nowait(message.get("body", b""))

    async def next(self) -> Message:
        """The next message; fails if the feed is over."""
        async with asyncio.timeout(30):
            while not self._messages:
                body = await self._sent.get()
                assert body is not None, "the feed is over"
                self._messages = list(self._read(body.decode()))
        return self._messages.pop(0)

    def _read(self, text: str) -> Iterator[Message]:
        for block in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                yield fields["event"], fields["id"], json.loads(fields["data"])

    async def until(self, event: str, run_id: str | None = None, **wanted: Any) -> Message:
        """The first message of this kind, about this run, with these fields."""
        while True:
            message = await self.next()
            data = message[2]
            if message[0] != event or (run_id is not None and data["run_id"] != run_id):
                continue
            if all(data[name] == value for name, value in wanted.items()):
                return message

    async def over(self) -> None:
        async with asyncio.timeout(30):
            await asyncio.wait([self.task])

    async def leave(self) -> None:
        self._received.put_nowait({"type": "http.disconnect"})
        await self.over()


@asynccontextmanager
async def feed(served: Served, query: str = "", **headers: str) -> AsyncIterator[Feed]:
    found = Feed(served, query, **headers)
    try:
        yield found
    finally:
        await found.leave()


async def begun(found: Feed) -> Message:
    """The first message: the feed looks from here on."""
    message = await found.next()
    assert message[0] == "counts"
    return message


async def ended(served: Served, run_id: str) -> None:
    await (await served.runtime.start("asks", {"topic": "now"}, run_id=run_id))


async def waiting(served: Served, run_id: str) -> None:
    await served.runtime.start("asks", {"topic": "x"}, run_id=run_id)
    async with asyncio.timeout(30):
        while (await served.runtime.get(run_id)).idle_since is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_runs_are_told_as_lists_show_them(served: Served, client: httpx2.AsyncClient) -> None:
    async with feed(served) as found:
        await begun(found)
        await waiting(served, "r")
        _, _, told = await found.until("run", "r")
        while told["idle_since"] is None:
            _, _, told = await found.until("run", "r")
        assert told == (await client.get("/v1/runs")).json()["items"][0]
        assert (await found.until("counts"))[2]["total"] == 1
        await served.runtime.send_event("r", Approval(by="ann"))
        assert (await found.until("run", "r", status="completed"))[2]["result"] is None


async def test_a_run_that_is_deleted_or_leaves_the_filter_is_gone(served: Served) -> None:
    async with feed(served, "status=running") as running, feed(served, "status=completed") as completed:
        await begun(running)
        await begun(completed)
        await waiting(served, "r")
        await running.until("run", "r")
        await served.runtime.send_event("r", Approval(by="ann"))
        assert (await running.until("gone"))[2] == {"run_id": "r"}
        await completed.until("run", "r", status="completed")
        await served.runtime.purge("r")
        assert (await completed.until("gone"))[2] == {"run_id": "r"}


async def test_filters_are_those_of_lists(served: Served, client: httpx2.AsyncClient) -> None:
    async with feed(served, "tag=team%3Dx&id_prefix=a") as found:
        await begun(found)
        await served.runtime.start("asks", {"topic": "now"}, run_id="b1", tags={"team": "x"})
        await served.runtime.start("asks", {"topic": "now"}, run_id="a1", tags={"team": "y"})
        await served.runtime.start("asks", {"topic": "now"}, run_id="a2", tags={"team": "x"})
        while (message := await found.next())[0] != "run":
            assert message[2].get("run_id") != "b1"
        assert message[2]["run_id"] == "a2"
        await served.runtime.set_tags("a2", {"team": "z"})
        assert (await found.until("gone", "a2"))[2] == {"run_id": "a2"}
    for query in ("order=created_at", "include=result", "idle_longer_than=5", "limit=3", "status=odd", "cursor=x"):
        assert (await client.get(f"/v1/changes?{query}")).status_code == 400


async def test_a_reader_goes_on_after_the_last_message(served: Served) -> None:
    async with feed(served) as first:
        await begun(first)
        await waiting(served, "r")
        await first.until("run", "r")
        for run_id in ("gone", "kept"):
            await ended(served, run_id)
            await first.until("run", run_id, status="completed")
    await served.runtime.send_event("r", Approval(by="ann"))
    await ended(served, "new")
    await served.runtime.purge("gone")
    for more in ({"query": f"after={first.last_id}"}, {"last_event_id": first.last_id, "query": "after=nonsense"}):
        async with feed(served, **more) as second:
            told: set[tuple[str, str]] = set()
            while not told >= {("run", "r"), ("run", "new"), ("gone", "gone")}:
                event, _, data = await second.next()
                assert event != "reset"
                told.add((event, data.get("run_id", "")))


async def test_readers_go_on_while_others_listen(served: Served) -> None:
    async with feed(served) as other:
        await begun(other)
        async with feed(served) as first:
            await begun(first)
            await ended(served, "old")
            await first.until("run", "old", status="completed")
            await other.until("run", "old", status="completed")
        await ended(served, "new")
        await other.until("run", "new", status="completed")
        async with feed(served, last_event_id=first.last_id) as second:
            assert (await second.next())[2]["run_id"] == "new"


@pytest.mark.parametrize("cursor", ["nonsense", "WyJhIiwxLCIiXQ", "WyJhIiwxLCI5OTk5OTk5OSJd", "e30", "-1"])
async def test_an_unknown_cursor_is_told_to_load_the_list_again(served: Served, cursor: str) -> None:
    async with feed(served, f"after={cursor}") as found:
        event, place, data = await found.next()
        assert (event, data) == ("reset", {})
        assert place
        await begun(found)
        await ended(served, "r")
        await found.until("run", "r")


async def test_lines_of_json(served: Served) -> None:
    async with feed(served, accept="application/x-ndjson") as found:
        async with asyncio.timeout(30):
            while not (line := await found._sent.get()):
                pass
        first = json.loads(line)
        assert (first["event"], sorted(first)) == ("counts", ["data", "event", "id"])


async def test_a_key_sees_the_runs_and_counts_of_its_workflows() -> None:
    async with serving() as served:
        key, stored = new_key(("read",), workflows=("flow",))
        await served.server.keys.add(stored)
        async with feed(served, authorization=f"Bearer {key}") as limited:
            assert (await begun(limited))[2]["total"] == 0
            await ended(served, "hidden")
            await served.runtime.purge("hidden")
            await served.runtime.start("flow", {"pin": "1"}, run_id="seen")
            told = []
            while not told or told[-1][0] != "counts":
                told.append(await limited.next())
            assert {data["run_id"] for event, _, data in told if event != "counts"} == {"seen"}
            assert [each["workflow"] for each in told[-1][2]["workflows"]] == ["flow"]


async def test_a_revoked_key_ends_its_feed() -> None:
    async with serving() as served:
        key, stored = new_key(("read",))
        await served.server.keys.add(stored)
        found = Feed(served, authorization=f"Bearer {key}")
        await begun(found)
        await served.server.keys.revoke(stored.id)
        await found.over()
        assert not found.is_whole
        assert not served.runtime.change_feed._tasks


async def test_limits_of_open_streams_hold() -> None:
    async with serving(max_streams=2) as served:
        async with feed(served) as one, feed(served) as two:
            await begun(one)
            await begun(two)
            async with served.client() as client:
                assert (await client.get("/v1/changes")).status_code == 429
        async with feed(served) as three:
            await begun(three)


async def test_a_server_that_stops_breaks_its_feeds(served: Served) -> None:
    found = Feed(served)
    await begun(found)
    served.server.open_streams.break_all()
    await found.over()
    assert not found.is_whole


async def test_nothing_looks_while_nobody_listens(served: Served) -> None:
    assert not served.runtime.change_feed._tasks
    async with feed(served) as found:
        await begun(found)
        assert served.runtime.change_feed._tasks
    assert not served.runtime.change_feed._tasks
    assert served.runtime.watchers.on_any is None


async def test_a_slow_reader_gets_the_newest_state_only(served: Served) -> None:
    async with feed(served) as slow, feed(served) as quick:
        await begun(slow)
        await begun(quick)
        await ended(served, "first")
        await slow.until("run", "first", status="completed")
        slow.takes.clear()
        for number in range(5):
            run_id = f"r{number}"
            await waiting(served, run_id)
            await served.runtime.set_tags(run_id, {"n": str(number)})
            await served.runtime.send_event(run_id, Approval(by="ann"))
            await quick.until("run", run_id, status="completed")
        slow.takes.set()
        told: dict[str, int] = {}
        done: set[str] = set()
        while len(done) < 5:
            event, _, data = await slow.next()
            if event == "run" and data["run_id"] != "first":
                told[data["run_id"]] = told.get(data["run_id"], 0) + 1
                done |= {data["run_id"]} if data["status"] == "completed" else set()
        # One may have been on its way when the reader stopped.
        assert sum(told.values()) <= 6


async def test_a_quiet_feed_gives_signs_of_life_with_its_place() -> None:
    async with serving(heartbeat=0.05) as served, feed(served) as found:
        await begun(found)
        async with asyncio.timeout(30):
            while b": heartbeat" not in (body := (await found._sent.get() or b"")):
                pass
        assert b"\nid: " in body


async def test_a_store_that_fails_breaks_the_feeds_and_a_new_one_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Feed(served)
    await begun(found)

    class Broken:
        pause = 0.0

        async def look(self) -> Any:
            raise StoreUnavailable("The disk is gone.")

    with monkeypatch.context() as patched:
        patched.setattr(type(served.runtime.store), "change_reader", lambda _self, _after=None: Broken())
        served.runtime.change_feed._fail(StoreUnavailable("The disk is gone."))
        await found.over()
        assert not found.is_whole
        async with served.client() as client:
            assert (await client.get("/v1/changes")).status_code == 503
    await ended(served, "r")
    async with feed(served, last_event_id=found.last_id) as again:
        await again.until("run", "r")


async def test_python_readers_share_the_looks(served: Served) -> None:
    changes = served.runtime.changes(workflow="asks")
    first = await anext(changes)
    assert (first.event, first.counts is not None and first.counts.total) == ("counts", 0)
    await ended(served, "r")
    async with asyncio.timeout(30):
        async for change in changes:
            if change.run is not None and change.run.finished:
                assert change.run_id == "r"
                break
    await changes.aclose()  # type: ignore[attr-defined] # it is a generator
    with pytest.raises(TypeError, match="order"):
        await anext(served.runtime.changes(order="created_at"))

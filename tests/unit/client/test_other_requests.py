"""Routes that have no method of their own, and replays."""

from __future__ import annotations

import httpx2
from client_rig import Script, ok


async def test_any_route_as_plain_data() -> None:
    script = Script(ok({"items": [1]}), httpx2.ReadError("cut"), ok({"status": "new"}, 202), httpx2.Response(204))
    async with script.client() as client:
        assert await client.request("GET", "/v1/x", params={"tag": ["a=b", "c=d"], "none": None}) == {"items": [1]}
        assert await client.request("POST", "/v1/x", {"a": 1}) == {"status": "new"}
        assert await client.request("DELETE", "/v1/x/y") is None
    read, first, again, gone = script.requests
    assert (read.url.params.get_list("tag"), "none" in read.url.params) == (["a=b", "c=d"], False)
    assert script.keys[1] is not None
    assert script.keys[1] == script.keys[2], "the same request, sent again"
    assert (first.content, again.content) == (b'{"a":1}', b'{"a":1}')
    assert (gone.method, script.keys[3]) == ("DELETE", None)


async def test_a_replay() -> None:
    found = {"run_id": "r", "replay": "different", "ticks": 3, "events": 2, "differences": ["The row says …"]}
    script = Script(ok(found))
    async with script.client() as client:
        replayed = await client.replay("r")
    assert (replayed.replay, replayed.ticks, replayed.differences) == ("different", 3, ["The row says …"])
    assert script.requests[0].url.path == "/v1/runs/r/replay"


async def test_attempts_are_read_from_the_state() -> None:
    failed = {"step": "work", "attempt": 1, "max_attempts": 3, "type": "ValueError", "message": "no", "traceback": "t"}
    executing = {"step": "other", "attempt": 2, "max_attempts": None, "since": "2026-01-02T03:04:05Z"}
    script = Script(ok({"run_id": "r", "steps": [], "executing": [executing], "failed_attempts": [failed]}))
    async with script.client() as client:
        attempts = await client.attempts("r")
    assert script.requests[0].url.path == "/v1/runs/r/state"
    assert (attempts.failed[0].of, attempts.failed[0].traceback) == ("1 of 3", "t")
    assert (attempts.executing[0].of, attempts.executing[0].since.year) == ("2", 2026)  # type: ignore[union-attr]

"""Streams across broken connections: no gap, no repeat, and an end only when the run is over."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from client_rig import QUICK, URL, Journal, Pieces, Script, ok, problem, run
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom.client import Client, ClientError, Retries, StreamEvent

EVENTS = 12


async def seen(transport: httpx2.AsyncBaseTransport, **options: object) -> list[int]:
    patient = Retries(stream_attempts=50, first_delay=0.0, max_delay=0.0)
    async with Client(URL, transport=transport, retries=patient) as client:
        return [event.seq async for event in client.stream("r", **options)]  # type: ignore[arg-type]


def never(_: int) -> None:
    return None


@given(
    cuts=st.lists(st.tuples(st.integers(0, 1500), st.booleans()), max_size=20),
    size=st.integers(1, 300),
    after=st.integers(-1, EVENTS),
)
async def test_no_gap_and_no_repeat_wherever_connections_are_cut(
    cuts: list[tuple[int, bool]], size: int, after: int
) -> None:
    journal = Journal(EVENTS, lambda number: cuts[number] if number < len(cuts) else None, size)
    assert await seen(journal, after=after) == list(range(after + 1, EVENTS))


async def test_a_stream_goes_on_behind_the_last_event() -> None:
    first = Journal(4, never).message
    at = len(b": hello\n\n") + len(first(0)) + len(first(1))
    journal = Journal(4, lambda number: (at, True) if number == 0 else None)
    assert await seen(journal) == [0, 1, 2, 3]
    assert journal.cursors == [-1, 1]


async def test_events_are_typed() -> None:
    async with Client(URL, transport=Journal(1, never), retries=QUICK) as client:
        [event] = [event async for event in client.stream("r")]
    assert isinstance(event, StreamEvent)
    assert event.terminal
    assert event.value == {"text": "é\u2028x"}
    assert event.at is not None
    assert event.at.year == 2026


def sse(*texts: str, then: Exception | None = None) -> httpx2.Response:
    return httpx2.Response(200, stream=Pieces([text.encode() for text in texts], then))


def event(seq: int, kind: str = "Progress", types: str = "null") -> str:
    return f'id: {seq}\ndata: {{"seq": {seq}, "type": "{kind}", "types": {types}, "value": {{}}}}\n\n'


async def test_an_event_that_comes_again_is_not_given_again() -> None:
    script = Script(sse(event(0), event(1), then=httpx2.ReadError("")), sse(event(1), event(2, "StopEvent")))
    assert await seen(script) == [0, 1, 2]


async def test_heartbeats_move_the_cursor_across_filtered_events() -> None:
    script = Script(sse(event(0), "id: 7\n\n", then=httpx2.ReadError("")), sse(event(8, "Failed", '["StopEvent"]')))
    assert await seen(script, types=["Progress"], internal=True) == [0, 8]
    params = [request.url.params for request in script.requests]
    assert [(each["after"], each["type"], each["internal"]) for each in params] == [
        ("-1", "Progress", "true"),
        ("7", "Progress", "true"),
    ]


async def test_a_clean_end_of_a_running_run_is_not_its_end() -> None:
    script = Script(sse(event(0)), ok(run()), sse(event(1)), ok(run(status="completed")), sse(event(2)))
    assert await seen(script) == [0, 1, 2]


async def test_silence_breaks_a_stream() -> None:
    script = Script(sse(event(0), then=httpx2.ReadTimeout("silent")), sse(event(1, "StopEvent")))
    assert await seen(script, silence=3.0) == [0, 1]
    assert {request.extensions["timeout"]["read"] for request in script.requests} == {3.0}


async def test_a_server_that_has_no_room_is_asked_again() -> None:
    script = Script(problem("limited", 429, headers={"Retry-After": "0"}), sse(event(0, "StopEvent")))
    assert await seen(script) == [0]


async def test_a_missing_run_is_told() -> None:
    with pytest.raises(loom.RunNotFound):
        await seen(Script(problem("run-not-found", 404)))


@pytest.mark.parametrize("opened", [lambda: httpx2.ConnectError("refused"), lambda: sse(then=httpx2.ReadError("cut"))])
async def test_who_never_gets_anything_gives_up(opened: Callable[[], httpx2.Response | Exception]) -> None:
    script = Script(*(opened() for _ in range(20)))
    async with script.client() as client:
        with pytest.raises(loom.StoreUnavailable, match=r"http://server\.test gave no answer"):
            [event async for event in client.stream("r")]
    assert len(script.requests) == QUICK.stream_attempts


async def test_something_that_is_no_event_is_told() -> None:
    with pytest.raises(ClientError, match="no event") as caught:
        await seen(Script(sse("id: 0\ndata: hm\n\n")))
    assert caught.value.code == "unexpected-answer"


async def test_who_leaves_closes_the_connection() -> None:
    body = Pieces([event(0).encode(), event(1).encode()])
    async with Script(httpx2.Response(200, stream=body)).client() as client:
        events = client.stream("r")
        assert (await anext(events)).seq == 0
        await events.aclose()  # type: ignore[attr-defined]
    assert body.closed

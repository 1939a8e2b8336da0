"""The client for code that is not asynchronous: the same client, on a thread of its own."""

from __future__ import annotations

import inspect
import threading

import httpx2
import pytest
from client_rig import QUICK, URL, Journal, Pieces, Script, ok, problem, run

import loom
from loom.client import Client


def sync_client(transport: object) -> loom.SyncClient:
    return loom.SyncClient(URL, transport=transport, retries=QUICK)  # type: ignore[arg-type]


def test_calls_and_errors() -> None:
    with sync_client(Script(ok(run()), problem("run-not-found", 404))) as client:
        assert client.get("r").run_id == "r"
        with pytest.raises(loom.RunNotFound):
            client.get("r")


def test_lists_and_streams() -> None:
    with sync_client(Script(ok({"items": [run("a")], "next_cursor": "n"}), ok({"items": [run("b")]}))) as client:
        assert [each.run_id for each in client.list(status="running")] == ["a", "b"]
    with sync_client(Journal(5, lambda number: (300, True) if number < 3 else None)) as client:
        assert [event.seq for event in client.stream("r")] == [0, 1, 2, 3, 4]


def test_a_stream_may_be_left() -> None:
    with sync_client(Journal(5, lambda _: None)) as client:
        for event in client.stream("r"):
            assert event.seq == 0
            break


def test_closing_ends_what_was_begun(caplog: pytest.LogCaptureFixture) -> None:
    body = Pieces([Journal(9, lambda _: None).message(seq) for seq in range(5)])
    with sync_client(Script(httpx2.Response(200, stream=body))) as client:
        events = client.stream("r")
        assert next(events).seq == 0
    assert body.closed
    assert caplog.records == []
    with pytest.raises(RuntimeError, match="closed"):
        next(events)


def test_a_stream_that_is_forgotten_may_be_collected_by_the_clients_own_thread() -> None:
    body = Pieces([Journal(9, lambda _: None).message(0)] * 2)
    with sync_client(Script(httpx2.Response(200, stream=body), ok(run()))) as client:
        begun = [client.stream("r")]
        assert next(begun[0]).seq == 0
        client._loop_thread.loop.call_soon_threadsafe(begun.clear)
        assert client.get("r").run_id == "r"
    assert begun == []
    assert body.closed


async def test_it_may_be_used_within_a_running_loop() -> None:
    with sync_client(Script(ok(run()))) as client:
        assert client.get("r").status == "running"


def test_closing_ends_the_thread_and_what_comes_later() -> None:
    before = threading.active_count()
    client = sync_client(Script())
    client.close()
    client.close()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="closed"):
        client.get("r")
    assert repr(client) == f"SyncClient('{URL}')"


def test_it_has_every_call_of_the_client() -> None:
    calls = {name for name, _ in inspect.getmembers(Client, callable) if not name.startswith("_")}
    assert calls == {name for name, _ in inspect.getmembers(loom.SyncClient, callable) if not name.startswith("_")}
    assert inspect.signature(loom.SyncClient.start) == inspect.signature(Client.start)

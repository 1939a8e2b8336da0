"""The health port: small, deaf to what it does not know, and never held up by a visitor."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from loom.runtime.health_port import Answer, HealthPort
from loom.runtime.watchdog import watchdog


@pytest.fixture
def port() -> Iterator[HealthPort]:
    def answer(path: str, query: str) -> Answer | None:
        if path == "/broken":
            raise RuntimeError("on purpose")
        return Answer.json(200, {"path": path, "query": query}) if path == "/live" else None

    found = HealthPort("127.0.0.1", 0, answer)
    watchdog().open(found)
    yield found
    watchdog().close(found)


def connected(port: HealthPort) -> socket.socket:
    return socket.create_connection(port.socket.getsockname()[:2], timeout=30)


def asked(port: HealthPort, request: bytes) -> tuple[int, bytes]:
    """Status and body of an answer; status 0 if there is none."""
    with connected(port) as visitor:
        visitor.sendall(request)
        answer = b"".join(iter(lambda: visitor.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


def test_what_it_knows_and_what_not(port: HealthPort) -> None:
    status, body = asked(port, b"GET /live?a=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, json.loads(body)) == (200, {"path": "/live", "query": "a=1"})
    assert asked(port, b"HEAD /live HTTP/1.0\r\n\r\n") == (200, b"")
    assert asked(port, b"GET /else HTTP/1.1\r\n\r\n")[0] == 404
    assert asked(port, b"POST /live HTTP/1.1\r\n\r\n")[0] == 405
    assert asked(port, b"\x16\x03\x01 hello\r\n\r\n")[0] == 400
    assert asked(port, b"GET /" + b"x" * 9000)[0] in (0, 400)
    assert port.url.startswith("http://127.0.0.1:")


def test_a_failure_of_its_own_ends_one_visit_only(port: HealthPort, caplog: pytest.LogCaptureFixture) -> None:
    assert asked(port, b"GET /broken HTTP/1.1\r\n\r\n") == (0, b"")
    assert "A request to the health port has failed." in caplog.text
    assert asked(port, b"GET /live HTTP/1.1\r\n\r\n")[0] == 200


def test_visitors_who_say_nothing_hold_up_nobody(port: HealthPort) -> None:
    with ExitStack() as all_of_them:
        silent = [all_of_them.enter_context(connected(port)) for _ in range(60)]
        silent[-1].sendall(b"GET /live HTTP/1.1\r\n")
        for _ in range(3):
            assert asked(port, b"GET /live HTTP/1.1\r\n\r\n")[0] == 200
        # The first ones had to leave for others.
        assert silent[0].recv(1) == b""
        silent[-1].sendall(b"\r\n")
        assert silent[-1].recv(20).startswith(b"HTTP/1.1 200")


def test_a_port_that_is_closed_is_free_again() -> None:
    first = HealthPort("127.0.0.1", 0, lambda _path, _query: Answer.json(200, 1))
    place = first.socket.getsockname()
    watchdog().open(first)
    assert asked(first, b"GET / HTTP/1.1\r\n\r\n") == (200, b"1")
    watchdog().close(first)
    deadline = 30_000
    while first.socket.fileno() != -1 and deadline:
        deadline -= 1
        socket.create_server(("127.0.0.1", 0)).close()
    second = HealthPort("127.0.0.1", place[1], lambda _path, _query: None)
    second.socket.close()

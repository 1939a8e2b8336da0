"""A port beside the server's own that answers from the watchdog's thread, so also while the event loop stands still.

It knows three addresses, takes no body and keeps no connection: `GET /live`, `GET /ready` and `GET /metrics`. None of
its answers names a run. Nothing here waits for a client: all sockets are non-blocking, connections are few, and each
has a deadline.
"""

from __future__ import annotations

import json
import logging
import re
import selectors
import socket
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("loom.watchdog")

_MAX_VISITORS = 32
_VISIT_S = 5.0
_MAX_HEAD = 8192
_READ = 4096
_REQUEST = re.compile(rb"([A-Z]{1,10}) (/[!-~]{0,1000}) HTTP/1\.[01]\r\n")
_PHRASES = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


class Answer(NamedTuple):
    """What a visitor gets."""

    status: int
    body: bytes
    kind: str = "application/json"

    @classmethod
    def json(cls, status: int, content: Any) -> Answer:
        """An answer for programs."""
        return cls(status, json.dumps(content).encode())


class HealthPort:
    """A listening socket, and what is answered on it. `answer` gets path and query, and is called in a thread."""

    def __init__(self, host: str, port: int, answer: Callable[[str, str], Answer | None]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server((host, port), family=family, backlog=_MAX_VISITORS)
        self.socket.setblocking(False)
        self.answer = answer

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Visitor:
    """Somebody who has connected."""

    def __init__(self, connection: socket.socket, port: HealthPort) -> None:
        self.connection = connection
        self.until = monotonic() + _VISIT_S
        self._port = port
        self._head = b""

    def read(self) -> bool:
        """Take what has come, and answer once it is a request. Returns whether the visit is over."""
        try:
            data = self.connection.recv(_READ)
        except BlockingIOError:
            return False
        self._head += data
        if data and b"\r\n\r\n" not in self._head and len(self._head) < _MAX_HEAD:
            return False
        if self._head:
            self.connection.send(self._answer())
            self.connection.shutdown(socket.SHUT_WR)
        return True

    def _answer(self) -> bytes:
        found = _REQUEST.match(self._head)
        if found is None or b"\r\n\r\n" not in self._head:
            return _encoded(Answer.json(400, {"detail": "This is no request that is known here."}))
        if found[1] not in (b"GET", b"HEAD"):
            return _encoded(Answer.json(405, {"detail": "Only GET and HEAD are known here."}))
        path, _, query = found[2].decode().partition("?")
        answer = self._port.answer(path, query) or Answer.json(404, {"detail": "Use /live, /ready or /metrics."})
        return _encoded(answer, with_body=found[1] == b"GET")


def _encoded(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_PHRASES[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")


class Doors:
    """All that the thread waits for: health ports, their visitors, and a bell by which others wake it."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = socket.socketpair()
        for each in (self._bell, self._rope):
            each.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._wanted: list[HealthPort] = []
        self._open: list[HealthPort] = []
        self._visitors: list[_Visitor] = []

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, port: HealthPort) -> None:
        """Answer on a port, from any thread."""
        with self._lock:
            self._wanted = [*self._wanted, port]
        self.ring()

    def remove(self, port: HealthPort) -> None:
        """Close a port, from any thread."""
        with self._lock:
            self._wanted = [each for each in self._wanted if each is not port]
        self.ring()

    def ring(self) -> None:
        """Wake the thread."""
        with suppress(BlockingIOError):  # it has rung so often that it is heard anyway
            self._rope.send(b"\0")

    def attend(self, until: float | None) -> None:
        """Answer visitors until a moment; None: until somebody rings."""
        while True:
            self._arrange()
            left = None if until is None else max(0.0, until - monotonic())
            if self._visitors:
                soonest = max(0.0, self._visitors[0].until - monotonic())
                left = soonest if left is None else min(left, soonest)
            rang = False
            for key, _ in self._selector.select(left):
                rang = self._attend_to(key.data) or rang
            self._send_away()
            if rang if until is None else monotonic() >= until:
                return

    def _arrange(self) -> None:
        """Open and close what was asked for: only the thread itself touches the selector."""
        wanted = self._wanted
        for port in [each for each in self._open if each not in wanted]:
            self._open.remove(port)
            self._selector.unregister(port.socket)
            port.socket.close()
        for port in [each for each in wanted if each not in self._open]:
            self._open.append(port)
            self._selector.register(port.socket, selectors.EVENT_READ, port)

    def _attend_to(self, door: HealthPort | _Visitor | None) -> bool:
        if isinstance(door, HealthPort):
            self._let_in(door)
        elif door is not None:
            self._hear(door)
        else:
            with suppress(BlockingIOError):
                self._bell.recv(_READ)
            return True
        return False

    def _let_in(self, port: HealthPort) -> None:
        with suppress(OSError):  # it has left before it was let in
            connection, _ = port.socket.accept()
            connection.setblocking(False)
            visitor = _Visitor(connection, port)
            self._visitors.append(visitor)
            self._selector.register(connection, selectors.EVENT_READ, visitor)
        if len(self._visitors) > _MAX_VISITORS:
            self._leave(self._visitors[0])

    def _hear(self, visitor: _Visitor) -> None:
        try:
            is_over = visitor.read()
        except OSError:  # it has left
            is_over = True
        except Exception:  # noqa: BLE001 - whatever it is, the log tells it, and others are answered
            _log.exception("A request to the health port has failed.")
            is_over = True
        if is_over:
            self._leave(visitor)

    def _send_away(self) -> None:
        now = monotonic()
        for visitor in [each for each in self._visitors if each.until <= now]:
            self._leave(visitor)

    def _leave(self, visitor: _Visitor) -> None:
        if visitor in self._visitors:
            self._visitors.remove(visitor)
            self._selector.unregister(visitor.connection)
            visitor.connection.close()

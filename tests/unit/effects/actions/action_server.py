"""A server on the loopback for requests of actions: it remembers what it was asked and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


class ActionServer:
    """Answers with what `replies` has for the path: one reply, several in turn, or a function."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.replies: dict[str, Any] = {}
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reply_to(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        reply = self.replies.get(asked.path.partition("?")[0], Reply(404))
        if isinstance(reply, list):
            reply = reply.pop(0) if len(reply) > 1 else reply[0]
        return reply(asked) if isinstance(reply, Callable) else reply  # type: ignore[arg-type]


@contextmanager
def serving() -> Iterator[ActionServer]:
    server = ActionServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = server.reply_to(Asked(self.command, self.path, dict(self.headers.items()), body))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.content_type:
                self.send_header("Content-Type", reply.content_type)
            if "Content-Length" not in reply.headers:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that leave in mid-answer are part of the tests."""

    with Listener(("127.0.0.1", 0), Handler) as listener:
        server.port = listener.server_address[1]
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()

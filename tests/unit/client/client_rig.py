"""A server's answers by hand, for what a real one does not do on demand: broken connections, refusals, odd answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2

from loom.client import Client, Retries

URL = "http://server.test"
QUICK = Retries(attempts=4, stream_attempts=6, first_delay=0.001, max_delay=0.002)

Answer = httpx2.Response | Exception


class Script(httpx2.AsyncBaseTransport):
    """Gives one prepared answer after the other, and keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        self._answers: Iterator[Answer] = iter(answers)
        self.requests: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.requests]

    def client(self, **options: Any) -> Client:
        return Client(URL, **{"transport": self, "retries": QUICK, **options})


def run(run_id: str = "r", status: str = "running", **more: Any) -> dict[str, Any]:
    """A Run as the server writes it."""
    return {"run_id": run_id, "workflow": "my", "kind": "steps", "status": status, "tick": 1, **more}


def ok(body: Any, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, json=body, headers=headers)


def problem(code: str, status: int, detail: str = "No.", *, headers: Any = None, **more: Any) -> httpx2.Response:
    body = {"type": f"urn:loom:problem:{code}", "title": "No", "status": status, "detail": detail, "code": code}
    content = json.dumps({**body, "instance": "/v1", "request_id": "req-1", **more})
    return httpx2.Response(
        status, content=content, headers={"content-type": "application/problem+json", **(headers or {})}
    )


class Pieces(httpx2.AsyncByteStream):
    """A body that comes in pieces, and then ends or breaks."""

    def __init__(self, pieces: list[bytes], then: Exception | None = None) -> None:
        self._pieces = pieces
        self._then = then
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._then is not None:
            raise self._then

    async def aclose(self) -> None:
        self.closed = True


class Journal(httpx2.AsyncBaseTransport):
    """The stream of a run with so many events, of which the last one is its end.

    `cut` says for each connection after how many bytes it ends, and whether it breaks; None: it goes on to the end.
    """

    def __init__(self, events: int, cut: Callable[[int], tuple[int, bool] | None], size: int = 7) -> None:
        self.last = events - 1
        self._cut = cut
        self._size = size
        self.cursors: list[int] = []

    def message(self, seq: int) -> bytes:
        kind = "StopEvent" if seq == self.last else "Progress"
        data = {"seq": seq, "at": "2026-01-01T00:00:00Z", "type": kind, "types": None, "value": {"text": "é\u2028x"}}
        return f"id: {seq}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if not request.url.path.endswith("/stream"):
            return ok(run())
        cursor = int(request.headers.get("last-event-id", request.url.params["after"]))
        self.cursors.append(cursor)
        if cursor >= self.last:
            return httpx2.Response(204)
        text = b": hello\n\n" + b"".join(self.message(seq) for seq in range(cursor + 1, self.last + 1))
        cut = self._cut(len(self.cursors) - 1)
        then = httpx2.ReadError("cut") if cut is not None and cut[1] else None
        text = text if cut is None else text[: cut[0]]
        pieces = [text[at : at + self._size] for at in range(0, len(text), self._size)]
        return httpx2.Response(200, stream=Pieces(pieces, then), headers={"content-type": "text/event-stream"})

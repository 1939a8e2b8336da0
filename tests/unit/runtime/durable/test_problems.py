"""The webhook of problems: what it sends, how that is signed, and what it refuses."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.api.problems import Problem
from loom.effects.actions.exchange import AnswerRefused
from loom.runtime.durable.problems import SECRET_VARIABLE, Webhook, WebhookRefused, signature
from loom.runtime.durable.settings import Settings

SECRET = "s3cret-of-sixteen-characters"
PROBLEM = Problem(
    id="a:3:failed", kind="failed", run_id="a", workflow="w", message="no", at=datetime.now(tz=UTC), tick=3
)


class Receiver:
    """A service on loopback that answers with what it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((headers, body))
        status = self.answers.pop(0) if self.answers else "204 No Content"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with server:
        yield receiver


def is_signed(headers: dict[str, str], body: bytes, secret: str, now: float) -> bool:
    """As the page tells receivers to check it."""
    fields = [part.partition("=") for part in headers["loom-signature"].split(",")]
    at = next(value for name, _, value in fields if name == "t")
    wanted = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    known = any(hmac.compare_digest(value, wanted) for name, _, value in fields if name == "v1")
    return known and abs(now - int(at)) < 300


async def test_a_problem_is_sent_signed() -> None:
    async with receiving() as receiver:
        await Webhook(receiver.url, f"{SECRET}, another-secret-for-rotation").tell(PROBLEM)
    [(headers, body)] = receiver.requests
    assert json.loads(body) == {
        "id": "a:3:failed",
        "kind": "failed",
        "run_id": "a",
        "workflow": "w",
        "message": "no",
        "at": PROBLEM.at.isoformat().replace("+00:00", "Z"),
        "tick": 3,
        "tags": {},
    }
    assert is_signed(headers, body, SECRET, time.time())
    assert is_signed(headers, body, "another-secret-for-rotation", time.time())
    assert not is_signed(headers, body, "not-the-secret-at-all", time.time())
    assert not is_signed(headers, body + b" ", SECRET, time.time())


async def test_the_address_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Chats give out addresses whose path is the secret."""
    caplog.set_level("DEBUG")
    async with receiving() as receiver:
        await Webhook(f"{receiver.url}/T0/B0/XyZ", SECRET).tell(PROBLEM)
    assert len(receiver.requests) == 1
    assert "XyZ" not in caplog.text


async def test_credentials_in_an_error_are_masked_before_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Connects(Workflow):
        @step
        async def connect(self, ev: StartEvent) -> StopEvent:
            raise OSError("postgresql://ada:pw123@db/x refused password=hunter2")

    told: asyncio.Future[Problem] = asyncio.get_running_loop().create_future()

    async def tell(problem: Problem) -> None:
        told.set_result(problem)

    async with loom.connect("memory://", on_problem=tell) as runtime:
        runtime.register(Connects(), name="connects")
        await runtime.start("connects", run_id="a")
        problem = await asyncio.wait_for(told, 60)
    assert problem.message == "connect: OSError: postgresql://ada:***@db/x refused password=***"
    [line] = [record.getMessage() for record in caplog.records if "attempt 1" in record.getMessage()]
    assert "postgresql://ada:***@db/x refused password=***" in line


@pytest.mark.parametrize("answer", ["503 Busy", "302 Found\r\nLocation: http://127.0.0.1:1/", "404 Not Found"])
async def test_an_answer_that_is_no_yes_is_a_refusal(answer: str) -> None:
    async with receiving() as receiver:
        receiver.answers = [answer]
        with pytest.raises((WebhookRefused, AnswerRefused)) as raised:
            await Webhook(receiver.url, SECRET).tell(PROBLEM)
    assert SECRET not in str(raised.value)
    assert len(receiver.requests) == 1


def test_secrets_are_wanted_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=f"needs a secret .* set {SECRET_VARIABLE}"):
        Settings(problem_webhook="https://ops.example.com/x")
    with pytest.raises(ValueError, match="at least 16 characters"):
        Settings(problem_webhook="https://ops.example.com/x", problem_secret="short")
    with pytest.raises(ValueError, match="must be an address"):
        Settings(problem_webhook="ops.example.com", problem_secret=SECRET)
    with pytest.raises(TypeError, match="on_problem must be a function"):
        Settings(on_problem="print")
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    assert SECRET not in repr(Settings(problem_webhook="https://ops.example.com/x?key=k"))
    assert "key=k" not in repr(Settings(problem_webhook="https://ops.example.com/x?key=k"))
    assert signature((SECRET,), 1, b"x").startswith("t=1,v1=")


class Fails(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no good")


async def test_a_receiver_that_refuses_is_told_again_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with receiving() as receiver:
        receiver.answers = ["503 Busy"]
        async with loom.connect("memory://", problem_webhook=receiver.url, problem_secret=SECRET) as runtime:
            runtime.register(Fails(), name="fails")
            await runtime.start("fails", run_id="a")
            async with asyncio.timeout(60):
                while not receiver.requests:  # noqa: ASYNC110 - a server of the test
                    await asyncio.sleep(0.005)
                notices = [info async for info in runtime.list(workflow="loom.problems.webhook")]
                why = await runtime.why(notices[0].run_id)
                while len(receiver.requests) < 2:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.005)
    assert why.kind in ("backoff", "busy")
    assert {json.loads(body)["id"] for _, body in receiver.requests} == {"a:1:failed"}
    [line] = [record.getMessage() for record in caplog.records if "a:1:failed" in record.getMessage()]
    assert "Problem a:1:failed was not taken by webhook: WebhookRefused: " in line
    assert "the next attempt is at" in line

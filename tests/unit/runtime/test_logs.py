"""What logs say about the place they come from, and what they never say."""

from __future__ import annotations

import asyncio
import contextvars
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.runtime.logs import JsonLines, TextLines, configure_logs, open_request, without_secrets
from loom.store.memory import MemoryDatabase, MemoryStore

_KEY = "loom_0123456789ab_" + "s" * 43
_library = logging.getLogger("some.library")


class Said(Event):
    """For the second step."""


class Talks(Workflow):
    """Logs in a body, in a task of a body and in a thread."""

    @step
    async def speak(self, ctx: Context, ev: StartEvent) -> Said:
        _library.info("asked %s", "twice")
        await asyncio.create_task(self._aside())
        return Said()

    async def _aside(self) -> None:
        _library.info("aside")

    @step
    def whisper(self, ev: Said) -> StopEvent:
        try:
            raise ValueError("too loud")
        except ValueError:
            _library.exception("whispered")
        return StopEvent(result="ok")


class CountStart(StartEvent):
    """What `Counts` begins with."""

    upto: int


class Counts(Workflow):
    """Takes a number."""

    @step
    async def count(self, ev: CountStart) -> StopEvent:
        return StopEvent(result=ev.upto)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the program logs as JSON. Afterwards it logs as before."""
    root = logging.getLogger()
    level, stream = root.level, io.StringIO()
    handler = configure_logs("json", logging.DEBUG, stream)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def lines(stream: io.StringIO, logger: str = "") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if line["logger"].startswith(logger)]


async def test_all_that_is_logged_in_a_body_tells_its_run(written: io.StringIO) -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Talks(), name="talks")
        assert await (await runtime.start("talks", {}, run_id="a")) == "ok"
    _library.info("outside")
    asked, aside, whispered, outside = lines(written, "some.library")
    assert asked.pop("time").endswith("Z")
    place = {"run_id": "a", "workflow": "talks", "step": "speak"}
    assert asked == {"level": "INFO", "logger": "some.library", "message": "asked twice", **place}
    assert {name: aside[name] for name in place} == place
    assert (whispered["run_id"], whispered["step"]) == ("a", "whisper")
    assert "ValueError: too loud" in whispered["exception"]
    assert not place.keys() & outside.keys()


async def test_a_run_in_memory_tells_its_place_too(written: io.StringIO) -> None:
    await Talks().run(run_id="b")
    asked = lines(written, "some.library")[0]
    assert (asked["run_id"], asked["step"]) == ("b", "speak")
    assert asked["workflow"].endswith("Talks")


async def test_an_action_of_a_flow_tells_its_name(written: io.StringIO) -> None:
    async def heard(given: Any) -> None:
        _library.info("done")

    document = {"definition": {"actions": {"Do": {"type": "Activity", "inputs": {"activityType": "heard"}}}}}
    async with loom.connect("memory://") as runtime:
        runtime.services.handlers.activities["heard"] = heard
        try:
            runtime.register(loom.load(document), name="flow")
            await (await runtime.start("flow", {}, run_id="a"))
        finally:
            del runtime.services.handlers.activities["heard"]
    [line] = lines(written, "some.library")
    assert (line["run_id"], line["workflow"], line["step"]) == ("a", "flow", "Do")


async def test_lines_of_the_engine_name_the_run_that_they_are_about(written: io.StringIO) -> None:
    database = MemoryDatabase()
    waiting = {"definition": {"actions": {"Wait": {"type": "waitForEvent", "inputs": {"event": "Go"}}}}}
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(loom.load(waiting), name="talks")
        await runtime.start("talks", {}, run_id="c")
        async with asyncio.timeout(10):
            while not (await runtime.get("c")).idle_since:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.001)
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Talks(), name="talks")  # it is a flow in the store
        await runtime.send_event("c", Said())
        async with asyncio.timeout(10):
            while not runtime.measured.parked:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0.001)
    line = next(line for line in lines(written, "loom") if "parked" in line["message"])
    assert (line["run_id"], line["level"]) == ("c", "ERROR")
    assert "is a flow in the store" in line["exception"]


async def test_an_input_that_does_not_fit_is_told_in_one_line(written: io.StringIO) -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client, loom.connect(MemoryStore(database)) as worker:
        worker.register(Counts(), name="counts")
        await client.start("counts", {"upto": "many"}, run_id="c")
        async with asyncio.timeout(10):
            while not worker.measured.parked:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
    line = next(line for line in lines(written, "loom") if "parked" in line["message"])
    assert (line["run_id"], "valid integer" in line["message"]) == ("c", True)
    assert "exception" not in line


def test_a_request_is_named_until_it_is_answered(written: io.StringIO) -> None:
    def answer() -> contextvars.Context:
        request = open_request("r-1")
        _library.info("during")
        request.close()
        return contextvars.copy_context()

    left_behind = contextvars.copy_context().run(answer)
    left_behind.run(_library.info, "after")
    during, after = lines(written, "some.library")
    assert during["request_id"] == "r-1"
    assert "request_id" not in after


async def test_a_body_does_not_carry_the_request_that_started_its_run(written: io.StringIO) -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Talks(), name="talks")
        request = open_request("r-2")
        await (await runtime.start("talks", {}))
        request.close()
    assert all("request_id" not in line for line in lines(written, "some.library"))


@pytest.mark.parametrize(
    "text",
    [
        f"key {_KEY}",
        f"GET /x Authorization: Bearer {_KEY}",
        "headers {'authorization': 'Bearer t0p-token'}",
        "headers [(b'x-api-key', b't0p-token')]",
        "Authorization=t0p-token",
        "X-API-Key: t0p-token",
        "Proxy-Authorization: Basic t0p-token",
        "Cookie: session=t0p-token",
        "POST /v1/callbacks/a?x=1&sig=t0p-token 200",
        "connection to host=db password=t0p-token dbname=x failed",
        "user=ada,api_key=t0p-token, region=eu",
        'connect(password="it\'s-t0p")',
        'connect(password=f"t0p{x}", secret=r"t0p")',
        '{"password": "a\\"t0p"}',
        "Authorization: Token t0p",
        "AWS_SECRET_ACCESS_KEY=t0p secret_key=t0p",
        "Password: t0p, pwd = t0p",
        "{'password': 12345, 'passphrase': 't0p'}",
        'SECRET: str = """t0p\nt0p"""',
        'private_key="t0p',
    ],
)
def test_credentials_are_hidden_wherever_they_stand(text: str) -> None:
    for formatter in (JsonLines(), TextLines()):
        try:
            raise ValueError(text)
        except ValueError as error:
            failed = (ValueError, error, error.__traceback__)
        record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (text,), failed)
        line = formatter.format(record)
        assert "t0p" not in line
        assert "s" * 43 not in line
        assert "***" in line


def test_what_is_no_secret_stays() -> None:
    for text in (
        "the basic idea",
        "A bearer of news",
        "authorization failed for somebody",
        "cookie jar",
        "ask(max_tokens=512, n=1)",
        "token = get_token()",
        "def ask(token: str) -> None:",
    ):
        assert without_secrets(text) == text
    assert without_secrets(_KEY) == "loom_0123456789ab_***"


async def test_secure_data_is_not_logged(written: io.StringIO) -> None:
    async def failing(given: Any) -> None:
        raise LookupError(f"not found: {given}")

    action = {
        "type": "Activity",
        "inputs": {"activityType": "failing", "input": "@parameters('pin')"},
        "runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}},
    }
    document = {
        "definition": {
            "parameters": {"pin": {"type": "SecureString", "defaultValue": "0000"}},
            "actions": {"Do": action},
        }
    }
    async with loom.connect("memory://") as runtime:
        runtime.services.handlers.activities["failing"] = failing
        try:
            runtime.register(loom.load(document), name="flow")
            result = await (await runtime.start("flow", {}, parameters={"pin": "s3cret"}))
        finally:
            del runtime.services.handlers.activities["failing"]
    assert result.status == "Failed"
    assert "s3cret" not in written.getvalue()


def test_text_for_people_is_one_line_whatever_somebody_sent() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "name %s", ("a\n2026 ERROR x: forged\x1b[2J",), None)
    record.__dict__.update(run_id="r", step="s")
    line = TextLines().format(record)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert line.endswith("[run_id=r step=s]")


def test_logs_can_be_configured_again(written: io.StringIO) -> None:
    second = io.StringIO()
    root = logging.getLogger()
    before = len(root.handlers)
    handler = configure_logs("text", "warning", second)
    try:
        _library.info("quiet")
        _library.warning("loud")
        assert len(root.handlers) == before
    finally:
        root.removeHandler(handler)
    assert written.getvalue() == ""
    assert "WARNING some.library: loud" in second.getvalue()
    assert "quiet" not in second.getvalue()
    with pytest.raises(ValueError, match="text or json"):
        configure_logs("xml")  # type: ignore[arg-type]

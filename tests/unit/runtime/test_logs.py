"""Logs: what each line belongs to, and the life of runs in them."""

from __future__ import annotations

import asyncio
import contextvars
import io
import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.effects.actions.handlers import HANDLERS
from loom.effects.redaction import masks
from loom.runtime import logs
from loom.runtime.logs import JsonLines, TextLines, configure_logs, open_request, without_secrets
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

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
        async with asyncio.timeout(60):
            while not (await runtime.get("c")).idle_since:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.001)
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Talks(), name="talks")  # it is a flow in the store
        await runtime.send_event("c", Said())
        async with asyncio.timeout(60):
            while not runtime.metrics.parked:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0.001)
    line = next(line for line in lines(written, "loom") if "parked" in line["message"])
    assert (line["run_id"], line["level"]) == ("c", "ERROR")
    assert "is a flow in the store" in line["exception"]


async def test_an_input_that_does_not_fit_is_told_in_one_line(written: io.StringIO) -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client, loom.connect(MemoryStore(database)) as worker:
        worker.register(Counts(), name="counts")
        await client.start("counts", {"upto": "many"}, run_id="c")
        async with asyncio.timeout(60):
            while not worker.metrics.parked:  # noqa: ASYNC110 - as above
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


_WORDS = (
    "password", "PassWord", "passwd", "DB_PWD", "passphrase", "secret", "token", "tokens", "api_key", "private-key",
    "AccessKey", "x-api-key", "proxy-authorization", "Set-Cookie", "cookie", "bearer", "Basic", "postgresql://ada",
    "?sig", "&code", "loom_0123456789ab_", "api_\u212aey", "pa\u017f\u017fword", "\u017fecret", "coo\u212aie", "word",
)  # fmt: skip
_LINKS = ("=", ": ", ":", " ", "", "': b'", '=r"', "', '", ": str = '''")
_VALUES = ("value", "s" * 43, "value@host", "a b", "None", "", "***")


@pytest.mark.parametrize("word", _WORDS)
def test_a_mask_is_only_left_out_where_it_would_find_nothing(word: str) -> None:
    for link, value, tail in itertools.product(_LINKS, _VALUES, ("", "'", " failed", ", é")):
        text = by_all = f"at {word}{link}{value}{tail}"
        for mask in masks():
            by_all = mask.pattern.sub(mask.instead, by_all)
        assert without_secrets(text) == by_all


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


# -- the life of runs -------------------------------------------------------------------------------------------------


class Approval(HumanResponseEvent):
    """Lets the run go on."""


class Weak(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(2)))
    async def work(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no\nluck")


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Approval, timeout=None)
        return StopEvent(result="approved")


def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "loom.run"]


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "stored"])
def test_each_failed_attempt_is_logged_once_with_the_next_one(caplog: pytest.LogCaptureFixture, stored: bool) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        if stored:
            async with loom.connect("memory://") as runtime:
                runtime.register(Weak(timeout=None), name="weak")
                handler = await runtime.start("weak", run_id="a")
                with pytest.raises(ValueError, match="no"):
                    await handler
        else:
            with pytest.raises(ValueError, match="no"):
                await Weak(timeout=None).run()

    run_virtual(main())
    lines = _lines(caplog)
    assert [level for level, _ in lines] == ["INFO", "WARNING", "WARNING", "INFO"]
    started, first, second, ended = (line for _, line in lines)
    assert started.endswith(" started")
    assert "attempt 1 of 2 at work failed: ValueError: no luck (" in first
    assert f"{__file__}, line " in first
    assert ", in work); the next attempt is at 20" in first
    assert "attempt 2 of 2 at work failed" in second
    assert second.endswith("; no other attempt follows")
    assert ended.endswith(" ended: failed")
    failed = next(record for record in caplog.records if record.levelname == "WARNING")
    assert (failed.step, failed.run_id.startswith("a") or not stored) == ("work", True)
    assert not [record for record in caplog.records if "no luck" in record.getMessage() and record.name != "loom.run"]


def test_a_run_that_waits_is_idle_released_and_recovered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    database = MemoryDatabase()

    async def main() -> None:
        async with loom.connect(MemoryStore(database), idle_timeout=5) as runtime:
            runtime.register(Asks(timeout=None), name="asks")
            handler = await runtime.start("asks", run_id="a")
            await asyncio.sleep(60)
            await runtime.send_event("a", Approval())
            assert await handler == "approved"

    run_virtual(main())
    assert [line for _, line in _lines(caplog)] == [
        "Run a of asks started",
        "Run a of asks became idle, waiting for Approval",
        "Run a of asks was released from memory",
        "Run a of asks was recovered",
        "Run a of asks ended: completed",
    ]


def test_attempts_at_an_action_are_logged_with_the_next_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(given: Any) -> Any:
        return {}["zz"]

    monkeypatch.setitem(HANDLERS.activities, "look_up", look_up)
    policy = {"type": "fixed", "count": 1, "interval": "PT1M"}
    action = {"type": "activity", "inputs": {"activityType": "look_up"}, "retryPolicy": policy}
    flow = loom.load({"actions": {"look": action}}, name="looks")

    async def main() -> None:
        assert (await flow.run()).status == "Failed"

    run_virtual(main())
    first, second = (line for _, line in _lines(caplog))
    assert "of looks: attempt 1 of 2 at look failed: KeyError: 'zz' (" in first
    assert "in look_up); the next attempt is at 20" in first
    assert "attempt 2 of 2 at look failed" in second
    assert second.endswith("no other attempt follows")


def test_nothing_is_worked_out_for_a_level_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_given: Any) -> None:
        raise AssertionError("A line was made that nobody reads.")

    monkeypatch.setattr(logs.LifecycleLog, "__init__", never)
    monkeypatch.setattr(logs._log, "level", logging.ERROR)
    logs._log.manager._clear_cache()  # type: ignore[attr-defined]  # levels are remembered

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await Weak(timeout=None).run()

    try:
        run_virtual(main())
    finally:
        monkeypatch.undo()
        logs._log.manager._clear_cache()


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_the_life_of_runs_of_looms_own_is_told_at_debug(caplog: pytest.LogCaptureFixture, level: int) -> None:
    """A schedule wakes up and sleeps all day, and every notice is a run: neither is what an operator reads for."""
    caplog.set_level(level)

    async def main() -> None:
        async with loom.connect("memory://", idle_timeout=1.0) as runtime:
            runtime.register(Weak(timeout=None), name="weak")
            await runtime.schedule("weakly", "weak", every=600.0)
            await asyncio.sleep(650.0)

    run_virtual(main())
    own = {
        (level, line.partition(" of loom.schedule ")[2]) for level, line in _lines(caplog) if "loom.schedule" in line
    }
    told = {("DEBUG", "started"), ("DEBUG", "was released from memory"), ("DEBUG", "was recovered")}
    assert own == (told if level == logging.DEBUG else set())
    assert [line for _, line in _lines(caplog) if line.endswith("of weak started")]

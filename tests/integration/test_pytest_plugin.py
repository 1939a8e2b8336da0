"""The pytest plugin, in a process of its own: found by its entry point, beside other plugins and alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[2]
_SCOPE = ("-o", "asyncio_default_fixture_loop_scope=function")
HARBOUR = """
import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.testing import VIRTUAL_EPOCH

FLOW = {
    "ask": {
        "type": "http",
        "inputs": {"uri": "https://weather.example.com/now"},
        "retry": {"type": "fixed", "interval": "PT1H", "count": 3},
    }
}


class Reminder(Workflow):
    @step
    async def remind(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, timeout=None)
        await ctx.sleep(3600)
        return StopEvent(result=answer.response)


async def test_async(loom_runtime, loom_clock):
    loom_runtime.register(Reminder(timeout=None), name="reminder")
    handler = await loom_runtime.start("reminder", run_id="reminder-1")
    await loom_clock.sleep(30 * 3600)
    await handler.send_event(HumanResponseEvent(response="yes"))
    assert await handler == "yes"
    assert loom_clock.elapsed == 31 * 3600
    assert (await loom_runtime.get("reminder-1")).ended_at.timestamp() == VIRTUAL_EPOCH + 31 * 3600


def test_sync(loom_runtime, loom_clock):
    async def begin():
        loom_runtime.register(Reminder(timeout=None), name="reminder")
        return await loom_runtime.start("reminder")

    async def answer(handler):
        await handler.send_event(HumanResponseEvent(response="yes"))
        return await handler

    handler = loom_clock.run(begin())
    loom_clock.run(loom_clock.sleep(60))
    assert loom_clock.run(answer(handler)) == "yes"
    assert loom_clock.elapsed == 3660


class TestFlow:
    @pytest.mark.parametrize("wind", ["calm", "storm"])
    async def test_mocked(self, wind, loom_runtime, loom_handlers, loom_clock):
        http = loom_handlers.mock_action("http", in_turn=[{"statusCode": 503}, {"body": wind}])
        loom_runtime.register(loom.load(FLOW), name="watch")
        result = await (await loom_runtime.start("watch"))
        assert result.actions["ask"].outputs["body"] == wind
        assert http.times == [0, 3600]


async def test_a_handler_of_a_test(loom_runtime):
    loom.activity("of-a-test")(lambda: 1)


def test_that_ends_with_it(loom_handlers):
    from loom.effects.actions.handlers import HANDLERS

    assert "of-a-test" not in HANDLERS.activities
    assert "http" not in HANDLERS.actions


class TestOnSqlite:
    @pytest.fixture
    def loom_options(self, tmp_path):
        return {"url": f"sqlite:///{tmp_path}/runs.db", "idle_timeout": 60}

    async def test_runs_leave_memory(self, loom_runtime, loom_clock):
        loom_runtime.register(Reminder(timeout=None), name="reminder")
        handler = await loom_runtime.start("reminder")
        await loom_clock.sleep(3600)
        assert loom_runtime.figures["in_memory"] == 0
        await handler.send_event(HumanResponseEvent(response="yes"))
        assert await handler == "yes"
"""
BARE = """
import sys


def test_nothing_of_loom_is_loaded():
    assert "pytest_loom" in sys.modules
    assert [name for name in sys.modules if name.partition(".")[0] == "loom"] == []


def test_a_fixture_loads_it(loom_clock):
    assert "loom.testing" in sys.modules
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project in whose environment the plugin is installed."""
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    site = pytester.mkdir("site")
    installed = site / "an_install_of_loom-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: an-install-of-loom\nVersion: 1\n", "utf-8")
    lines = [f"{name} = {target}" for name, target in entry_points["pytest11"].items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]), "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT / 'src'}")
    return pytester


@pytest.mark.parametrize(
    "options",
    [
        ("-p", "no:asyncio", "-p", "no:anyio"),
        ("-o", "asyncio_mode=strict", *_SCOPE),
        ("-o", "asyncio_mode=auto", *_SCOPE),
    ],
    ids=["alone", "strict", "auto"],
)
def test_fixtures_work_beside_other_plugins(project: pytest.Pytester, options: tuple[str, ...]) -> None:
    project.makepyfile(HARBOUR)
    done = project.runpytest_subprocess("-W", "error", "-p", "no:xdist", "-p", "no:schemathesis", *options)
    done.assert_outcomes(passed=7)


def test_nothing_is_imported_before_a_fixture_is_used(project: pytest.Pytester) -> None:
    project.makepyfile(BARE)
    done = project.runpytest_subprocess("-p", "no:schemathesis", "-p", "no:xdist")
    done.assert_outcomes(passed=2)


def test_an_async_test_that_fails_is_reported_at_its_line(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        async def test_late(loom_clock):
            await loom_clock.sleep(5)
            assert loom_clock.elapsed == 4
        """
    )
    done = project.runpytest_subprocess("-p", "no:schemathesis", "-p", "no:xdist", "-p", "no:asyncio")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["E *assert 5.0 == 4*"])


def test_fixtures_are_listed_with_what_they_are_for(project: pytest.Pytester) -> None:
    done = project.runpytest_subprocess("--fixtures", "-p", "no:schemathesis", "-p", "no:xdist")
    done.stdout.fnmatch_lines(["loom_clock -- *", "loom_handlers -- *", "loom_runtime -- *"])

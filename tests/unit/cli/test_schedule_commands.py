from __future__ import annotations

import asyncio

import pytest
from cli_rig import STORE, data, failure, good, until_end

from loom.runtime.connect import connect

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture(autouse=True)
def database(shop: object) -> None:
    good("db", "upgrade")


def later(*asked: str) -> None:
    """Let a worker that knows nothing but schedules do what was asked of them."""

    async def work() -> None:
        from cli_rig import DOUBLE

        from loom.cli.targets import named_workflow

        async with asyncio.timeout(60), connect(STORE) as runtime:
            name, workflow = named_workflow(DOUBLE)
            runtime.register(workflow, name=name)
            for run_id in asked:
                while not (await runtime.get(run_id)).ticks or await runtime.store.inbox(run_id, 0):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    asyncio.run(work())


def test_creates_lists_and_shows_a_schedule() -> None:
    words = good("schedule", "create", "nightly", "Double", "--cron", "0 2 * * *", "--input", '{"number": 4}')
    assert words.startswith("The schedule nightly of Double is stored, and due next at 2")
    made = data("schedule", "create", "often", "Double", "--every", "5m", "--tag", "a=b", "--catch-up")
    assert made["recurrence"] == {"frequency": "Second", "interval": 300}
    assert (made["tags"], made["catch_up"], made["run_id"]) == ({"a": "b"}, True, "schedule:often")
    assert made["next_at"].endswith("Z")

    assert [each["name"] for each in data("schedule", "list")] == ["nightly", "often"]
    table = good("schedule", "list")
    assert "every 300 seconds" in table
    assert "0 2 * * *" in table

    shown = data("schedule", "show", "nightly")
    assert (shown["workflow"], shown["input"], shown["last_run_id"]) == ("Double", {"number": 4}, None)
    assert "workflow: Double\n" in good("schedule", "show", "nightly")


def test_a_recurrence_and_a_time_zone() -> None:
    when = '{"frequency": "Week", "schedule": {"weekDays": ["Monday"], "hours": [9]}}'
    made = data("schedule", "create", "mondays", "Double", "--recurrence", when, "--time-zone", "Europe/Berlin")
    assert made["recurrence"]["timeZone"] == "Europe/Berlin"
    words = "every week, schedule {'weekDays': ['Monday'], 'hours': [9]}, Europe/Berlin"
    assert words in good("schedule", "list")


def test_parameters_and_variables_are_for_flows() -> None:
    arguments = ["schedule", "create", "f", "flow", "--every", "1h", "--input", "[1]"]
    made = data(*arguments, "--parameter", "p=1", "--variable", "v=word")
    assert (made["input"], made["parameters"], made["variables"]) == ([1], {"p": "*** secure ***"}, {"v": "word"})


def test_what_is_given_wrongly_is_said() -> None:
    create = ["schedule", "create", "s", "Double"]
    assert "--every, --cron or --recurrence" in failure(2, *create)
    assert "--every, --cron or --recurrence" in failure(2, *create, "--every", "5m", "--cron", "* * * * *")
    assert "the minute '77' must be 0 to 59" in failure(2, *create, "--cron", "77 * * * *")
    assert "no time zone 'Mars'" in failure(2, *create, "--cron", "* * * * *", "--time-zone", "Mars")
    assert "whole number of seconds" in failure(2, *create, "--every", "0.5s")
    assert data("schedule", "list") == []
    assert good("schedule", "list") == "No schedules.\n"


def test_pauses_resumes_and_deletes_a_schedule() -> None:
    good("schedule", "create", "often", "Double", "--every", "1h")
    assert good("schedule", "pause", "often") == "The schedule often was asked to pause.\n"
    later("schedule:often")
    assert data("schedule", "show", "often")["paused"]
    assert "paused" in good("schedule", "list")
    assert data("schedule", "resume", "often") == {"name": "often", "run_id": "schedule:often", "asked": "resume"}
    later("schedule:often")
    assert not data("schedule", "show", "often")["paused"]
    assert good("schedule", "delete", "often") == "The schedule often is deleted.\n"
    assert data("schedule", "list") == []
    until_end("schedule:often")
    assert data("workflow", "status", "schedule:often")["status"] == "cancelled"


@pytest.mark.parametrize("what", ["show", "delete", "pause", "resume"])
def test_a_schedule_that_is_not_there_is_named(what: str) -> None:
    assert failure(1, "schedule", what, "never") == "There is no schedule 'never'."

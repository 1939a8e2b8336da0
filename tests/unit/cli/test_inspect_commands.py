from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from cli_rig import data, failure, good, loom, started, until_end, until_idle

from loom.store.records import RunHead, RunQuery, RunRow
from loom.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.usefixtures("shop")


def test_lists_runs_newest_first_with_what_they_wait_for() -> None:
    started("order-1")
    good("run", "shop.py:Double", "--run-id", "double-1")
    lines = good("workflow", "list").splitlines()
    rows = [line.split() for line in lines[2:]]
    assert [row[:3] for row in rows] == [["double-1", "Double", "completed"], ["order-1", "Order", "running"]]
    assert "(idle)" in lines[3]
    assert lines[3].rstrip().endswith("Approval")
    assert " ago " in lines[3]


def test_a_run_that_nobody_answers_for_is_not_said_to_be_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Temporal cluster without a worker, where nobody but the run itself knows how it is."""
    good("db", "upgrade")
    good("workflow", "start", "Order", "{}", "--run-id", "order-1")
    head = RunHead("running", 0, 0, 0.0, error="No worker answers: it is night.")

    async def unanswered(self: SqliteStore, run_id: str) -> RunRow:
        return RunRow(run_id, "Order", 0.0, head)

    async def all_unanswered(self: SqliteStore, query: RunQuery) -> list[RunRow]:
        return [await unanswered(self, "order-1")]

    monkeypatch.setattr(SqliteStore, "get", unanswered)
    monkeypatch.setattr(SqliteStore, "find", all_unanswered)
    assert " running (no worker answers) " in good("workflow", "list")
    assert data("workflow", "list")[0]["error"]["code"] == "unanswered"
    shown = good("workflow", "status", "order-1")
    assert "status:      running (no worker answers)\nerror:       No worker answers: it is night.\n" in shown
    assert "is not known. No worker answers: it is night." in failure(3, "workflow", "send", "order-1", "Approval")


def test_lists_have_results_on_request() -> None:
    good("run", "shop.py:Double", "--run-id", "double-1")
    (found,) = data("workflow", "list")
    assert (found["status"], found["result"]) == ("completed", None)
    (found,) = data("workflow", "list", "--results")
    assert found["result"] == data("workflow", "status", "double-1")["result"] is not None


def test_lists_runs_for_programs() -> None:
    started("order-1")
    (found,) = data("workflow", "list")
    assert found["run_id"] == "order-1"
    assert found["status"] == "running"
    assert found["active_waiters"][0]["event_type"] == "shop.Approval"
    for moment in (found["created_at"], found["idle_since"], found["active_waiters"][0]["since"]):
        assert datetime.fromisoformat(moment).tzinfo is not None


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--status", "running"], ["order-1"]),
        (["--status", "completed"], ["double-1"]),
        (["--workflow", "Order"], ["order-1"]),
        (["--idle"], ["order-1"]),
        (["--not-idle"], ["double-1"]),
        (["--idle-longer-than", "1h"], []),
        (["--waiting-for", "Approval"], ["order-1"]),
        (["--waiting-for", "shop.Question"], []),
        (["--tag", "size=big"], ["order-1"]),
        (["--tag", "size=big", "--tag", "colour=red"], []),
        (["--paused"], []),
        (["--parked"], []),
        (["--parent", "order-1"], []),
        (["--limit", "1"], ["double-1"]),
    ],
)
def test_filters(filters: list[str], expected: list[str]) -> None:
    started("order-1", "--tag", "size=big")
    good("run", "shop.py:Double", "--run-id", "double-1")
    assert [run["run_id"] for run in data("workflow", "list", *filters)] == expected


def test_says_when_there_are_more_runs_than_shown() -> None:
    started("order-1")
    good("run", "shop.py:Double")
    assert "There are more runs" in loom("workflow", "list", "--limit", "1").stderr
    assert loom("workflow", "list", "--limit", "2").stderr == ""


def test_an_empty_list() -> None:
    good("db", "upgrade")
    assert good("workflow", "list") == "No runs.\n"
    assert data("workflow", "list") == []


def test_status_for_people() -> None:
    started("order-1", "--tag", "size=big")
    text = good("workflow", "status", "order-1")
    assert "status:      running (idle)" in text
    assert "tags:        size=big" in text
    assert "idle since:  " in text
    for title in ("Steps under way", "Waits for", "Timers"):
        assert title in text
    waiter = next(line for line in text.splitlines() if "shop.Approval" in line)
    assert waiter.split()[0] == "place"
    assert "in 59m" in waiter


def test_status_for_programs() -> None:
    started("order-1")
    found = data("workflow", "status", "order-1")
    assert found["steps"] == [{"step": "place", "executing": 0, "waiting": 1, "queued": 0, "delayed": 0}]
    (timer,) = found["timers"]
    assert (timer["purpose"], timer["step"]) == ("waiter", "place")
    assert datetime.fromisoformat(timer["due"]) == datetime.fromisoformat(found["active_waiters"][0]["deadline"])
    assert found["kept"] == []


def test_status_of_a_run_that_nobody_has_recovered() -> None:
    good("db", "upgrade")
    good("workflow", "start", "Order", "--run-id", "order-1")
    assert "running (not taken up yet)" in good("workflow", "status", "order-1")
    assert data("workflow", "status", "order-1")["steps"] == []


def test_status_shows_what_holds_a_run_and_the_events_it_keeps() -> None:
    started("order-1")
    good("workflow", "pause", "order-1")
    good("workflow", "send", "order-1", "Question", '{"item": "?"}', "--target", "shop.py:Order")
    good("workflow", "send", "order-1", "HumanResponseEvent", "--target", "shop.py:Order")
    with_message = data("workflow", "status", "order-1")
    assert not with_message["paused"]  # nobody works, so it is in the mail
    until_idle("order-1")
    found = data("workflow", "status", "order-1")
    assert found["paused"]
    assert found["kept"] == [{"event_type": "workflows.events.HumanResponseEvent", "count": 1}]
    text = good("workflow", "status", "order-1")
    assert "running (paused" in text
    assert "Kept events" in text


def test_nothing_is_under_way_in_a_run_that_was_cancelled() -> None:
    started("order-1")
    good("workflow", "cancel", "order-1")
    assert "Steps under way" in good("workflow", "status", "order-1"), "nobody has done it yet"
    until_end("order-1")
    shown = good("workflow", "status", "order-1")
    assert "cancelled" in shown
    assert "Steps under way" not in shown


def test_status_of_a_failed_run_names_its_error() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": -1}')
    until_end("order-1")
    assert "error:       place: ValueError: -1 is negative" in good("workflow", "status", "order-1")


def test_status_as_it_was_after_a_tick() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    until_end("order-1")
    assert 'result:      {"amount": 5, "note": ""}\n' in good("workflow", "status", "order-1")
    assert data("workflow", "status", "order-1")["active_waiters"] is None
    assert data("workflow", "status", "order-1", "--tick", "1")["active_waiters"][0]["event_type"] == "shop.Approval"
    assert "there is no tick 99" in failure(1, "workflow", "status", "order-1", "--tick", "99")


def test_status_of_a_damaged_run_says_so_and_shows_the_rest() -> None:
    started("order-1")
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.execute("UPDATE chunks SET data = x'00'")
    found = data("workflow", "status", "order-1")
    assert "order-1" in found["damaged"]
    assert found["active_waiters"][0]["event_type"] == "shop.Approval"


def test_history_has_a_line_for_each_tick() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    until_end("order-1")
    lines = good("workflow", "history", "order-1").splitlines()
    assert [line.split()[0] for line in lines] == [str(seq) for seq in range(len(lines))]
    words = [line[32:] for line in lines]
    assert words[0] == 'started with StartEvent(item="tea")'
    assert words[1].startswith('place#1 waits for shop.Approval, asking Question(item="tea"), for 1h at most')
    assert "event Approval(amount=5) from outside" in words
    assert words[-1] == 'place#1 returned StopEvent(result={"amount": 5, "note": ""})'


def test_history_for_programs_and_in_part() -> None:
    started("order-1")
    first, *_ = entries = data("workflow", "history", "order-1")
    assert [entry["seq"] for entry in entries] == list(range(len(entries)))
    assert first["tick"]["type"] == "TickStartRun"
    assert first["tick"]["event"] == {"type": "workflows.events.StartEvent", "fields": {"item": "tea"}}
    assert first["tick"]["at"] == first["at"]
    assert data("workflow", "history", "order-1", "--start", "1", "--limit", "1") == entries[1:2]


def test_events_with_their_cursors() -> None:
    started("order-1")
    assert good("workflow", "events", "order-1").split(maxsplit=1) == ["1", 'Question(item="tea")\n']
    everything = data("workflow", "events", "order-1", "--all")
    assert [entry["seq"] for entry in everything] == list(range(len(everything)))
    assert (everything[1]["type"], everything[1]["value"]) == ("Question", {"item": "tea"})
    assert everything[1]["types"] == ["InputRequiredEvent"]
    assert (everything[-1]["type"], everything[-1]["types"]) == ("WorkflowIdleEvent", ["InternalDispatchEvent"])
    assert datetime.fromisoformat(everything[0]["at"]).tzinfo is not None
    assert data("workflow", "events", "order-1", "--all", "--after", "1") == everything[2:]


def test_following_a_run_that_has_ended_ends() -> None:
    good("run", "shop.py:Double", "--run-id", "double-1", "--input", '{"number": 4}')
    (line,) = good("workflow", "events", "double-1", "--follow", "--json").splitlines()
    assert '"value": {"result": 8}' in line


def test_text_of_runs_cannot_steer_the_terminal(shop: Path) -> None:
    good("db", "upgrade")
    good("workflow", "start", "Order", '{"item": "\\u001b[31mred\\u0007"}', "--run-id", "a\x1b[2Jb")
    until_idle("a\x1b[2Jb")
    for command in (["list"], ["status", "a\x1b[2Jb"], ["history", "a\x1b[2Jb"], ["events", "a\x1b[2Jb"]):
        text = good("workflow", *command)
        assert "\x1b" not in text
        assert "\x07" not in text

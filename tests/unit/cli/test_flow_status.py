from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_rig import data, failure, good, loom, wait_for, working
from flow_rig import status, until_rest

pytestmark = pytest.mark.usefixtures("flows")


def start(run_id: str, name: str, *arguments: str) -> None:
    """A run that has come to rest, started by a command and worked on by somebody else."""
    good("db", "upgrade")
    good("workflow", "start", f"{name}.json", "--run-id", run_id, *arguments)
    until_rest(run_id, f"{name}.json")


def answer(run_id: str, name: str, event: str, *arguments: str) -> None:
    good("workflow", "send", run_id, event, *arguments)
    until_rest(run_id, f"{name}.json")


def test_nested_loops_are_shown_one_in_the_other() -> None:
    start("n", "nested")
    answer("n", "nested", "Go", "--data", "1")
    shown = re.sub(r"(?<=Duration: )\d+m?s", "…", good("workflow", "status", "n"))
    assert shown == (
        "Workflow: nested\n"
        "Status: Running\n"
        "Current Action: outer (until)\n"
        "  Iteration: 1/5\n"
        "  Condition: @greaterOrEquals(variables('loopIndex'), 2)\n"
        "  Duration: …\n"
        "  Current Action: each (foreach)\n"
        "    Iteration: 1/3\n"
        "    Duration: …\n"
        '    Last Result: { ask: 1, note: { item: "a" } }\n'
        "    Current Action: ask (waitForEvent)\n"
        "      Duration: …\n"
        "      Waits For: Go, times out in 59m\n"
    )
    outer, each = status("n")["loops"]
    assert (outer["path"], outer["parent"], outer["type"]) == ("outer[0]", None, "until")
    assert (each["path"], each["parent"], each["iteration"], each["max_iterations"]) == (
        "outer[0]/each[1]",
        "outer[0]",
        1,
        3,
    )
    assert each["last_result"] == {"ask": 1, "note": {"item": "a"}}
    assert set(outer) == {
        *("name", "path", "type", "status", "condition", "condition_result", "iteration", "max_iterations"),
        *("timeout", "start_time", "duration", "last_result", "next_iteration_at", "parent"),
    }
    assert outer["condition_result"] is False
    assert outer["timeout"] == 3600.0
    assert outer["start_time"].endswith("Z")


def test_what_a_flow_has_given_is_shown(flows: Path) -> None:
    body = {"state": "done", "long": "x" * 5_000}
    answer = {"type": "response", "inputs": {"statusCode": 201, "body": body}}
    outputs = {"n": {"type": "int", "value": "@add(1, 1)"}, "who": {"type": "string", "value": "Ada"}}
    (flows / "gives.json").write_text(json.dumps({"actions": {"answer": answer}, "outputs": outputs}))
    good("run", "gives.json", "--run-id", "g")
    *_, response, first, second = good("workflow", "status", "g").splitlines()
    assert response.startswith('Response: 201 {"state": "done"')
    assert len(response) < 300
    assert (first, second) == ("Output n: 2", "Output who: Ada")


def test_an_outer_loop_goes_on_with_a_last_result_and_the_past_can_be_looked_at() -> None:
    start("n", "nested")
    for number in range(3):
        answer("n", "nested", "Go", "--data", str(number))
    outer, each = status("n")["loops"]
    assert (outer["path"], outer["iteration"], each["path"]) == ("outer[1]", 2, "outer[1]/each[0]")
    assert [part["note"]["item"] for part in outer["last_result"]["each"]] == ["a", "b", "c"]
    first = data("workflow", "status", "n", "--tick", "0")["loops"]
    assert [loop["path"] for loop in first] == ["outer[0]", "outer[0]/each[0]"]
    for number in range(3):
        answer("n", "nested", "Go", "--data", str(number))
    assert good("workflow", "status", "n").splitlines()[:2] == ["Workflow: nested", "Status: Succeeded"]
    actions = {action["name"]: action for action in status("n")["actions"]}
    assert status("n")["loops"] == []
    assert (actions["outer"]["iterations"], actions["ask"]["outputs"], actions["ask"]["path"]) == (
        2,
        2,
        "outer/each/ask",
    )
    table = good("workflow", "status", "n", "--actions")
    assert re.search(r"^outer +until +Succeeded \(2 iterations\) ", table, re.MULTILINE)


def test_a_retry_says_when_it_comes_and_why() -> None:
    start("r", "retried")
    lines = good("workflow", "status", "r").splitlines()
    assert lines[2] == "Current Action: try (activity)"
    assert re.fullmatch(r"  Attempt: 2 of 4, in (59m|1h)", lines[4])
    assert lines[5] == "  Last Error: ValueError: 1 is not good"
    (action,) = status("r")["under_way"]
    assert (action["status"], action["attempt"]) == ("retrying", 2)
    assert status("r")["actions"][0]["status"] == "Waiting"


def test_secrets_are_shown_nowhere() -> None:
    start("s", "secret", "--parameter", "key=hush", "--parameter", "open=seen too")
    answer("s", "secret", "Answer", '{"yes": true}')
    assert status("s")["status"] == "completed"
    shown = [
        good("workflow", *command, "s", *more)
        for command in (["status"], ["history"], ["events", "--all"])
        for more in ([], ["--json"])
    ]
    assert not [text for text in shown if "hush" in text]
    history = good("workflow", "history", "s").splitlines()
    assert 'started with parameters={ key: "*** secure ***", open: "seen too" }' in history[0]
    assert "Use#2 Succeeded: *** secure ***" in history[-1]
    use = next(action for action in status("s")["actions"] if action["name"] == "Use")
    assert (use["inputs"], use["outputs"]) == ("*** secure ***", "*** secure ***")
    assert json.loads(good("workflow", "export", "s"))["run"], "an export is for engines, and whole"


def test_history_and_events_are_readable() -> None:
    start("n", "nested", "--body", '{"who": "me"}')
    answer("n", "nested", "Go", "--data", "[1, 2]")
    history = [line.split("  ", 2)[2] for line in good("workflow", "history", "n").splitlines()]
    assert 'started with body={ who: "me" }' in history[0]
    assert any(line.endswith("ask#1 Succeeded: [1, 2]") for line in history)
    events = [line[7:] for line in good("workflow", "events", "n", "--all").splitlines()]
    assert "outer (until) Running" in events
    assert any(event.startswith("note [0, 0] (compose) Succeeded") for event in events)


def test_iterations_are_on_the_stream(flows: Path) -> None:
    good("run", "count.json", "--handlers", "flow_handlers.py", "--run-id", "c")
    events = [line[7:] for line in good("workflow", "events", "c").splitlines()]
    told = re.compile(r"count iteration 2/100 Succeeded, \d+m?s, condition false: \{ say: \{ n: 1 \} \}")
    assert [bool(told.fullmatch(event)) for event in events[:-1]] == [False, True, False]
    assert events[-1] == "ended Succeeded, outputs { twice: 6 }"
    entries = data("workflow", "events", "c")
    iteration = [entry for entry in entries if entry["type"] == "LoopIterationEvent"][1]
    assert iteration["value"]["path"] == "count[1]"
    assert iteration["value"]["timestamp"].endswith("Z")


def test_a_run_is_replayed_by_its_own_document(flows: Path) -> None:
    start("n", "nested")
    (flows / "nested.json").write_text('{"actions": {"other": {"type": "compose", "inputs": 1}}}')
    answer("n", "nested", "Go", "--data", "1")
    assert data("workflow", "replay", "n")["replay"] == "same"
    assert [loop["name"] for loop in status("n")["loops"]] == ["outer", "each"], "it keeps its version"
    moved = good("workflow", "export", "n")
    (flows / "moved.json").write_text(moved)
    there = ("--store", "sqlite:///other.db")
    good("db", "upgrade", *there)
    good("workflow", "import", "moved.json", *there)
    assert data("workflow", "status", "n", *there)["loops"][1]["iteration"] == 1


def test_a_fork_goes_on_from_the_past() -> None:
    start("n", "nested")
    answer("n", "nested", "Go", "--data", "1")
    answer("n", "nested", "Go", "--data", "2")
    assert status("n")["loops"][1]["iteration"] == 2
    tick = next(entry["seq"] for entry in data("workflow", "history", "n") if entry["tick"]["type"] == "TickStepResult")
    good("workflow", "fork", "n", "--tick", str(tick), "--run-id", "n2")
    assert status("n2")["loops"][1]["iteration"] == 1
    answer("n2", "nested", "Go", "--data", "7")
    assert status("n2")["loops"][1]["last_result"]["ask"] == 7


def test_a_failed_flow_can_be_retried(flows: Path) -> None:
    (flows / "once.json").write_text(
        json.dumps({"actions": {"a": {"type": "activity", "inputs": {"activityType": "later", "input": 1}}}})
    )
    start("o", "once")
    assert "has ended" not in good("workflow", "status", "o")
    assert status("o")["status"] == "failed"
    assert "Error: No activity is registered as 'later'." in good("workflow", "status", "o")
    (flows / "more_handlers.py").write_text("import loom\n\n@loom.activity('later')\ndef later(value):\n    return 5\n")
    good("workflow", "retry", "o")
    shown = good("run", "once.json", "--handlers", "more_handlers.py", "--run-id", "o")
    assert shown.splitlines()[-1] == "Status: Succeeded"


def test_events_may_come_before_somebody_waits_and_have_any_data() -> None:
    good("db", "upgrade")
    good("workflow", "start", "secret.json", "--run-id", "s", "--parameter", "key=k")
    assert "Answer is stored for run s." in good("workflow", "send", "s", "Answer", "--data", '"yes"')
    until_rest("s", "secret.json")
    actions = {action["name"]: action for action in status("s")["actions"]}
    assert actions["Ask"]["outputs"] == "yes"


def test_an_event_that_nobody_waits_for_yet_is_kept_and_told() -> None:
    good("db", "upgrade")
    good("workflow", "start", "secret.json", "--run-id", "s", "--parameter", "key=k")
    until_rest("s", "secret.json")
    assert good("workflow", "send", "s", "Anser") == "Anser is stored for run s. Now it waits for Answer.\n"
    assert good("workflow", "send", "s", "Answer") == "Answer is stored for run s.\n"


def test_an_event_reaches_a_class_that_only_the_engine_has(flows: Path) -> None:
    code = "from loom import HumanResponseEvent\n\nclass Signed(HumanResponseEvent):\n    by: str\n"
    (flows / "engine_events.py").write_text(code)
    wait = {"type": "waitForEvent", "inputs": {"event": "Signed"}}
    (flows / "signing.json").write_text(json.dumps({"actions": {"sign": wait}}))
    with working(flows, "signing.json", "--handlers", "engine_events.py"):
        good("workflow", "start", "signing", "--run-id", "s")
        wait_for("Signed")
        good("workflow", "send", "s", "Signed", '{"by": "me"}')
        good("workflow", "events", "s", "--follow")
    assert status("s")["actions"][0]["outputs"] == {"by": "me"}


def test_lists_know_flows() -> None:
    start("n", "nested")
    (run,) = data("workflow", "list", "--workflow", "nested", "--waiting-for", "Go")
    assert run["run_id"] == "n"
    good("workflow", "cancel", "n")
    until_rest("n", "nested.json")
    assert "Status: Cancelled" in good("workflow", "status", "n")


def test_a_start_is_checked_where_the_flow_is_at_hand() -> None:
    good("db", "upgrade")
    assert "There is no parameter 'nope'." in failure(2, "workflow", "start", "count.json", "--parameter", "nope=1")
    assert failure(2, "workflow", "start", "nowhere.json") == "File not found: nowhere.json"
    good("workflow", "start", "count", "--parameter", "to=1", "--run-id", "c")
    until_rest("c", "count.json")
    assert loom("workflow", "start", "count.json", "--parameter", "to=1", "--run-id", "d").exit_code == 0

"""The agents of llama-index-core, a package that knows nothing of Loom, run on Loom through `loom.compat`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 120


def run(engine: str) -> dict[str, Any]:
    command = [sys.executable, str(PROGRAMS / "launch.py"), engine, str(PROGRAMS / "agents.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program has seen on Loom. Of the processes that run tests, the first one runs it for all."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    begun, found = folder / "agents-begun", folder / "agents.json"
    try:
        begun.touch(exist_ok=False)
    except FileExistsError:
        until = time.monotonic() + PATIENCE_S
        while not found.exists() and time.monotonic() < until:
            time.sleep(0.1)
    if not found.exists():
        written = folder / f"agents-{os.getpid()}"
        written.write_text(json.dumps(run("loom")))
        written.replace(found)
    seen: dict[str, Any] = json.loads(found.read_text())
    return seen


def test_handler_is_looms(seen: dict[str, Any]) -> None:
    assert seen["tools_and_stream"]["handler"].startswith("loom.")


def test_tools_are_called_once_each_and_the_answer_streams_word_by_word(seen: dict[str, Any]) -> None:
    found = seen["tools_and_stream"]
    assert found["executed"] == ["add 1 2", "add 3 4"]
    assert sorted(found["stream"][2:4]) == ['call add {"a": 1, "b": 2}', 'call add {"a": 3, "b": 4}']
    assert sorted(found["stream"][4:6]) == ["result add 3", "result add 7"]
    words = ["'They'", "' are'", "' three'", "' and'", "' seven.'"]
    assert found["stream"][6:] == [*(f"stream solo {word}" for word in words), "output They are three and seven."]
    assert found["result"] == "They are three and seven."


def test_results_reach_the_model_in_one_set(seen: dict[str, Any]) -> None:
    found = seen["tools_and_stream"]
    assert found["tools"] == ["3", "7"]
    assert sorted(found["last_asked"]) == ["3", "7"]


def test_one_agent_hands_over_to_another(seen: dict[str, Any]) -> None:
    found = seen["handoff"]
    assert (found["agent"], found["result"]) == ("clerk", "It is 42.")
    speakers = [line.split()[1] for line in found["stream"] if line.startswith("stream")]
    assert speakers == ["desk", "clerk", "clerk", "clerk", "clerk"]
    assert "result add 42" in found["stream"]


def test_each_answer_of_a_human_finds_its_own_tool_call(seen: dict[str, Any]) -> None:
    found = seen["human"]
    assert found["asked"] == ["Delete a.txt?", "Delete b.txt?"]
    assert found["results"] == ["a.txt deleted", "b.txt kept"]


def test_waiting_for_a_human_does_not_call_the_tool_again(seen: dict[str, Any]) -> None:
    assert seen["human"]["executed"] == ["delete a.txt", "delete b.txt"]


def test_answer_may_come_after_the_context_went_through_json(seen: dict[str, Any]) -> None:
    assert seen["human_after_restart"] == {"stream": ["result delete_file a.txt deleted"], "result": "Done."}


def test_turns_share_a_context_that_can_go_through_json(seen: dict[str, Any]) -> None:
    found = seen["turns"]
    assert found["said"] == ["Hello Ada.", "Noted.", "You are Ada."]
    assert found["state"] == {"n": 1, "name": "Ada"}


def test_agent_runs_on_its_own(seen: dict[str, Any]) -> None:
    found = seen["alone"]
    assert found["result"] == "Eleven."
    assert found["stream"][2:4] == ['call add {"a": 5, "b": 6}', "result add 11"]


def test_react_agent_reasons_with_a_tool(seen: dict[str, Any]) -> None:
    found = seen["react"]
    assert found["result"] == "Seventeen."
    assert found["stream"][1:3] == ['call add {"a": 8, "b": 9}', "result add 17"]


def test_failing_tool_is_told_to_the_model(seen: dict[str, Any]) -> None:
    assert seen["failing_tool"]["stream"][1:] == ["call broken {}", "result broken no luck", "output It failed."]


def test_endless_agent_is_stopped_with_cores_own_error(seen: dict[str, Any]) -> None:
    assert seen["too_many_turns"] == {"error": "WorkflowRuntimeError", "text": "Max iterations of 2 reached! Ei"}


def test_original_sees_the_same_where_it_has_no_known_bug(seen: dict[str, Any]) -> None:
    original = run("original")
    assert original["tools_and_stream"]["handler"] == "workflows.handler"
    for name in ("handoff", "turns", "alone", "react", "failing_tool", "too_many_turns"):
        assert seen[name] == original[name], name
    assert seen["human"]["results"] == original["human"]["results"]

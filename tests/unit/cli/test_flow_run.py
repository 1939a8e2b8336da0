from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_rig import data, failure, good, loom

from loom.cli.run_to_end import event_words
from loom.steps.events import AnswerRefusedEvent

pytestmark = pytest.mark.usefixtures("flows")

HANDLERS = ("--handlers", "flow_handlers.py")


def test_a_flow_is_shown_line_by_line_and_its_outputs_at_the_end() -> None:
    lines = good("run", "count.json", *HANDLERS, "--parameter", "to=2", "--run-id", "c1").splitlines()
    assert lines[0] == "Run c1 of count"
    shown = [re.sub(r", \d+m?s$", "", line) for line in lines[1:]]
    assert shown == [
        "Succeeded  count[0]/say (compose)",
        "Iteration  count 1/100 Succeeded",
        "Succeeded  count[1]/say (compose)",
        "Iteration  count 2/100 Succeeded",
        "Succeeded  count (until)",
        "Succeeded  last (activity)",
        "Status: Succeeded",
        "Output twice: 4",
    ]


def test_a_quiet_run_tells_its_end_alone() -> None:
    assert good("run", "count.json", *HANDLERS, "--quiet") == "Status: Succeeded\nOutput twice: 6\n"


def test_json_is_the_whole_result() -> None:
    found = data("run", "count.json", *HANDLERS, "--run-id", "c1")
    assert (found["run_id"], found["workflow"], found["status"]) == ("c1", "count", "Succeeded")
    assert found["outputs"] == {"twice": 6}
    assert found["actions"]["count"]["iterations"] == 3
    # The same run again is the same result, and nothing runs.
    assert data("run", "count.json", "--run-id", "c1") == found


def test_what_a_flow_begins_with(flows: Path) -> None:
    (flows / "echo.yaml").write_text(
        "triggers: {manual: {type: Request}}\n"
        "parameters: {p: {type: Object}}\n"
        "actions:\n"
        "  Answer:\n"
        "    type: Response\n"
        "    inputs:\n"
        "      statusCode: 202\n"
        "      body:\n"
        "        body: '@triggerBody()'\n"
        "        header: \"@triggerOutputs()['headers']['X-Who']\"\n"
        "        p: \"@parameters('p')\"\n"
        "        v: \"@variables('v')\"\n"
    )
    (flows / "body.json").write_text('["from", "a file"]')
    given = ("--parameter", 'p={"a": 1}', "--variable", "v=some text", "--header", "X-Who=me")
    found = data("run", "echo.yaml", "--body", "@body.json", *given)
    body = {"body": ["from", "a file"], "header": "me", "p": {"a": 1}, "v": "some text"}
    assert (found["response"]["statusCode"], found["response"]["body"]) == (202, body)
    told = good("run", "echo.yaml", "--body", "5", *given)
    assert told.splitlines()[-1] == f"Response: 202 {json.dumps({**body, 'body': 5})}"


def test_a_parameter_that_is_a_text_may_look_like_a_number(flows: Path) -> None:
    types = {"s": "string", "k": "securestring", "n": "int", "l": "array"}
    (flows / "typed.json").write_text(
        json.dumps(
            {
                "parameters": {name: {"type": kind} for name, kind in types.items()},
                "actions": {"all": {"type": "compose", "inputs": {n: f"@parameters('{n}')" for n in "snl"}}},
                "outputs": {"all": {"type": "object", "value": "@outputs('all')"}},
            }
        )
    )
    given = [part for pair in ("s=42", "k=true", "n=42", "l=[1]") for part in ("--parameter", pair)]
    assert data("run", "typed.json", *given)["outputs"]["all"] == {"s": "42", "n": 42, "l": [1]}


def test_a_flow_that_fails_says_why_with_exit_code_1(flows: Path) -> None:
    (flows / "bad.json").write_text(
        json.dumps({"actions": {"a": {"type": "activity", "inputs": {"activityType": "fail", "input": 3}}}})
    )
    result = loom("run", "bad.json", *HANDLERS, "--run-id", "b")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "Status: Failed"
    logged, told = result.stderr.splitlines()
    assert "Run b of bad: attempt 1 of 1 at a failed: ValueError: 3 is not good (" in logged
    assert "flow_handlers.py, line 14, in fail); no other attempt follows" in logged
    assert told == "Error: Run 'b' has ended Failed in 'a': 3 is not good (ValueError)"
    found = loom("run", "bad.json", *HANDLERS, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["error"] == {"code": "ValueError", "message": "3 is not good"}


def test_handlers_can_be_connectors(flows: Path) -> None:
    (flows / "api.json").write_text(json.dumps({"actions": {"a": {"type": "ApiConnection", "inputs": {"x": 1}}}}))
    found = data("run", "api.json", *HANDLERS, "--store", "memory://")
    assert found["actions"]["a"]["outputs"]["body"] == {"x": 1}
    assert not (flows / "loom.db").exists(), "nothing is kept of a run in memory"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("count.json", "--input", "{}"), "count is a flow: it begins with --body, not with --input."),
        (("shop.py:Double", "--body", "{}"), "Double is a workflow in Python: it takes --input."),
        (("count.json", "--parameter", "to=many"), "The parameter 'to' is of type int"),
        (("count.json", "--parameter", "too=5"), "There is no parameter 'too'. Did you mean 'to'?"),
        (("count.json", "--handlers", "nowhere.py"), "File not found: nowhere.py"),
        (("nowhere.json",), "File not found: nowhere.json"),
        ((".",), "4 flows: name the file of one."),
    ],
)
def test_wrong_use_has_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    assert message in failure(2, "run", *arguments)


def test_a_definition_that_cannot_be_loaded_is_told_with_all_its_problems(flows: Path) -> None:
    (flows / "bad.json").write_text(
        '{"actions": {\n"a": {"inputs": 1},\n"b": {"type": "compose", "inputs": "@nope("}}}'
    )
    result = loom("run", "bad.json")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["bad.json:2:1:", "bad.json:3:26:", "Error:"]
    assert lines[-1] == "Error: bad.json cannot be loaded: it has 2 problems."


def test_the_operator_can_raise_the_limits(flows: Path) -> None:
    (flows / "long.json").write_text((flows / "count.json").read_text().replace('"count": 100', '"count": 1500'))
    assert loom("run", "long.json", *HANDLERS).exit_code == 2
    found = data("run", "long.json", *HANDLERS, "--max-iterations", "2000", "--parameter", "to=1200")
    assert found["actions"]["count"]["iterations"] == 1200


def test_hosts_that_are_not_public_must_be_allowed(flows: Path) -> None:
    uri = "http://127.0.0.1:9/"
    (flows / "call.json").write_text(json.dumps({"actions": {"get": {"type": "http", "inputs": {"uri": uri}}}}))
    refused = loom("run", "call.json", "--json")
    assert "are refused: it is a loopback address" in json.loads(refused.stdout)["error"]["message"]
    allowed = json.loads(loom("run", "call.json", "--json", "--allow-host", "127.0.0.1").stdout)
    assert "are refused" not in allowed["error"]["message"], "it was tried"


def test_a_terminal_sees_the_top_level_and_what_is_under_way(flows: Path) -> None:
    slow = json.loads((flows / "count.json").read_text())
    slow["actions"]["count"]["delay"] = {"interval": {"count": 0.3, "unit": "second"}}
    (flows / "slow.json").write_text(json.dumps(slow))
    main, side = pty.openpty()
    command = [sys.executable, "-m", "loom", "run", "slow.json", *HANDLERS, "--parameter", "to=3"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, stdout=side, env=env, cwd=flows) as process:
        os.close(side)
        seen = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:  # on Linux, the end of a terminal whose program is gone
                break
            if not part:
                break
            seen += part
    os.close(main)
    assert process.returncode == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"count \(until\)  [123]/100  \d+m?s  next in \d+ms", shown), shown
    assert "✓ count (until)" in shown
    assert "✓ last (activity)" in shown
    assert "say" not in shown, "what is done in iterations is counted, not listed"
    assert shown.splitlines()[-2:] == ["Status: Succeeded", "Output twice: 6"]


@pytest.mark.parametrize(
    "text",
    [
        '{"to": 2, "of-another-flow": 1}',
        '{"To": {"type": "Int", "value": 2}, "other": {"type": "String", "value": "x"}}',
        '{"$schema": "x", "parameters": {"to": {"value": 2}}}',
        "to: 2",
    ],
)
def test_parameters_may_come_from_a_file(flows: Path, text: str) -> None:
    (flows / "parameters.json").write_text(text)
    found = data("run", "count.json", *HANDLERS, "--store", "memory://", "--parameters", "parameters.json")
    assert found["actions"]["count"]["iterations"] == 2
    beside = ("--parameters", "parameters.json", "--parameter", "to=1")
    found = data("run", "count.json", *HANDLERS, "--store", "memory://", *beside)
    assert found["actions"]["count"]["iterations"] == 1


def test_a_file_of_parameters_must_hold_some(flows: Path) -> None:
    (flows / "parameters.json").write_text("[1]")
    assert "an object" in failure(2, "run", "count.json", "--parameters", "parameters.json")
    assert "cannot be read" in failure(2, "run", "count.json", "--parameters", "nowhere.json")
    (flows / "parameters.json").write_text('{"to": "many"}')
    assert "count.json cannot be loaded" in failure(2, "run", "count.json", "--parameters", "parameters.json")
    wrong = (
        "--parameters: error: to: The parameter 'to' is of type int, and the value is String in the workflow 'count'"
    )
    assert wrong in loom("run", "count.json", "--parameters", "parameters.json").stderr
    assert "it takes --input" in failure(2, "run", "shop.py:Double", "--parameters", "parameters.json")


def test_an_answer_that_was_refused_is_shown() -> None:
    event = AnswerRefusedEvent(action="ask", reason="ok: 1 is no boolean")
    assert event_words(event) == "Refused    an answer to ask: ok: 1 is no boolean"


def test_doubts_about_a_flow_are_told_when_it_begins(flows: Path) -> None:
    (flows / "doubtful.json").write_text(
        '{"parameters": {"key": {"type": "securestring"}, "n": {"type": "int", "defaultValue": 1}},'
        ' "actions": {"a": {"type": "compose", "inputs": "@parameters(\'key\')"}, "b": {"type": "noSuchType"}}}'
    )
    doubts = [
        "Note: no value and no default for the parameters 'key'.",
        "Note: doubtful has a warning: see `loom validate doubtful.json`.",
    ]
    result = loom("run", "doubtful.json", "--run-id", "d")
    assert result.stderr.splitlines()[:2] == doubts
    assert "Note" not in loom("run", "doubtful.json", "--run-id", "d").stderr, "it has begun before"
    assert "Note" not in loom("run", "doubtful.json", "--quiet").stderr
    given = loom("run", "doubtful.json", "--parameter", "KEY=x", "--run-id", "e")
    assert given.stderr.splitlines()[0] == doubts[1]


def test_a_flow_and_what_it_calls_run_together(flows: Path) -> None:
    project = flows / "project"
    child = {"actions": {"answer": {"type": "response", "inputs": {"body": "@mul(triggerBody(), 2)"}}}}
    call = {"type": "Workflow", "inputs": {"host": {"workflow": {"id": "double"}}, "body": "@triggerBody()"}}
    parent = {"actions": {"call": call}, "outputs": {"answer": {"value": "@body('call')"}}}
    for name, definition in (("double", child), ("parent", parent)):
        (project / name).mkdir(parents=True)
        (project / name / "workflow.json").write_text(json.dumps({"definition": definition, "kind": "Stateful"}))
    found = loom("run", "project/parent", "--also", "project", "--body", "21", "--store", "memory://")
    assert found.exit_code == 0
    assert found.stdout.splitlines()[-1] == "Output answer: 42"
    assert found.stderr == ""


def test_a_child_that_nobody_works_for_is_told(flows: Path) -> None:
    limited = {"type": "workflow", "inputs": {"workflow": "nobody"}, "limit": {"timeout": "PT0.1S"}}
    inner = {"type": "scope", "actions": {"call": limited}}
    other = {"type": "workflow", "inputs": {"workflow": "@triggerBody()"}, "limit": {"timeout": "PT0.1S"}}
    (flows / "lonely.json").write_text(json.dumps({"actions": {"inner": inner, "other": other}}))
    note = loom("run", "lonely.json", "--store", "memory://").stderr.splitlines()[0]
    assert note == "Note: it calls 'nobody', which nobody here works for: name the file with --also."

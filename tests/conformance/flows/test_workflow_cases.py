"""Tiny definitions and what they must lead to: on the reducer, in memory, in a database, and read again from a journal.

`workflow_cases.json` holds the facts: the definition, the trigger's body and what is expected. Where the sources
contradict each other (`dubious`), `expect` is the answer that Loom has taken.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flow_player import play

import loom
from loom.core.reducer import replay
from loom.effects.event_codec import read_field
from loom.effects.flow_events import ActionEvent
from loom.effects.flow_result import FlowResult
from loom.flows.planner import FlowPlanner
from loom.store import codec
from loom.store.sqlite import SqliteStore
from loom.testing import run_virtual

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "workflow_cases.json").read_text(encoding="utf-8"))
_ENDED = ("Succeeded", "Failed", "TimedOut")


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What Loom does, which is what the case says unless it is one of those that the sources disagree about."""
    answer: dict[str, Any] = case.get("loom") or case["expect"]
    return answer.get("expect", answer)


REFUSED = [case for case in CASES if expected(case).get("definitionError")]
RUNNING = [case for case in CASES if not expected(case).get("definitionError")]


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: f"{case['id']} {case['name']}")


def differences(case: dict[str, Any], result: FlowResult, executions: Counter[str]) -> list[str]:
    """Everything in which a run is not what the case expects."""
    want = expected(case)
    unknown = set(want) - {"runStatus", "statuses", "outputs", "variables", "errors", "executions"}
    found: list[tuple[str, Any, Any]] = [("", key, "an expectation that nobody looks at") for key in unknown]
    if "runStatus" in want:
        found.append(("run", result.status, want["runStatus"]))
    for name, status in want.get("statuses", {}).items():
        found.append((name, result.actions[name].status, status))
    for name, outputs in want.get("outputs", {}).items():
        found.append((f"outputs of {name}", typed(result.actions[name].outputs), typed(outputs)))
    for name, value in want.get("variables", {}).items():
        found.append((f"variable {name}", typed(result.variables[name]), typed(value)))
    for name, count in want.get("executions", {}).items():
        found.append((f"executions of {name}", executions[name], count))
    texts = [f"{what}: {got!r}, not {wanted!r}" for what, got, wanted in found if got != wanted]
    for name, text in want.get("errors", {}).items():
        error = result.actions[name].error or {}
        if text not in error.get("message", ""):
            texts.append(f"error of {name}: {error}, not {text!r}")
    return texts


def typed(value: Any) -> str:
    """A value as JSON: there a boolean is no number, 3 is not 3.0, and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True)


def test_all_cases_are_here(record_property: Any) -> None:
    assert len(CASES) == len({case["id"] for case in CASES}) == 42
    record_property("workflow cases", len(CASES))


@named(REFUSED)
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(loom.DefinitionError):
        loom.load(case["definition"])


@named(RUNNING)
@pytest.mark.parametrize("recover_always", [False, True], ids=["at once", "taken up after every batch"])
def test_on_the_reducer(case: dict[str, Any], recover_always: bool) -> None:
    played = play(case["definition"], case.get("triggerBody"), recover_always=recover_always)
    executions = Counter(played.ends())
    assert differences(case, played.result, executions) == []


async def watched(handler: Any) -> tuple[FlowResult, Counter[str]]:
    """The result of a run, and how often each action has come to an end of its own."""
    executions: Counter[str] = Counter()
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, ActionEvent) and event.status in _ENDED:
            executions[event.name] += 1
    return await handler, executions


@named(RUNNING)
def test_in_memory(case: dict[str, Any]) -> None:
    async def main() -> tuple[FlowResult, Counter[str]]:
        return await watched(loom.load(case["definition"]).run(case.get("triggerBody")))

    assert differences(case, *run_virtual(main())) == []


@named(RUNNING)
def test_in_a_database_and_after_a_replay(case: dict[str, Any], tmp_path: Path) -> None:
    async def main() -> None:
        async with loom.connect(SqliteStore(tmp_path / "runs.db")) as runtime:
            flow = loom.load(case["definition"], name="case")
            runtime.register(flow, name="case")
            handler = await runtime.start("case", case.get("triggerBody"), run_id="run-1")
            result, executions = await watched(handler)
            assert differences(case, result, executions) == []
            stored = await runtime.state_at("run-1")  # by the document that is stored with the run
            ticks = [entry.tick async for entry in runtime.history("run-1")]
            again = replay(ticks, FlowPlanner(flow.program), None, read_field)
            assert codec.encode_state(again) == codec.encode_state(stored)
        async with loom.connect(SqliteStore(tmp_path / "runs.db")) as runtime:
            later = await runtime.handler("run-1")
            assert differences(case, await later, executions) == []

    run_virtual(main())


async def test_all_cases_side_by_side_in_one_database(tmp_path: Path) -> None:
    """In real time: none of them waits for anything."""
    async with loom.connect(f"sqlite:///{tmp_path / 'runs.db'}") as runtime:
        for case in RUNNING:
            runtime.register(loom.load(case["definition"], name=case["id"]), name=case["id"])
        started = [(case, await runtime.start(case["id"], case.get("triggerBody"))) for case in RUNNING]
        found = [(case["id"], differences(case, *await watched(handler))) for case, handler in started]
    assert [one for one in found if one[1]] == []

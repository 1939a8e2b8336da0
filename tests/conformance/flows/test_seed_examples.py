"""The examples of the design of loops: each complete one loads unchanged and ends as its text implies.

HTTP, activities, actors and the AI are stubs; waits pass on a virtual clock. Examples with `{ ... }` in them are not
complete: they are tried with something in that place.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.testing import VIRTUAL_EPOCH, run_virtual

EXAMPLES: dict[str, Any] = json.loads((Path(__file__).parent / "seed_examples.json").read_text(encoding="utf-8"))
DESIGN = Path(__file__).parents[3].parent / "shared" / "seeds" / "workflow-loops.md"


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("actions", "activities", "actors"):
        monkeypatch.setattr(HANDLERS, kind, {})


class Ran:
    """A run of an example: its result, its iterations and the virtual seconds that it took."""

    def __init__(self, source: Any, **start: Any) -> None:
        self.events: list[Any] = []

        async def main() -> loom.FlowResult:
            handler = loom.load(source).run(**start)
            self.events = [event async for event in handler.stream_events(expose_internal=True)]
            return await handler  # type: ignore[no-any-return]

        self.result = run_virtual(main())
        self.status = self.result.status
        self.seconds = max(action.ended_at or 0.0 for action in self.result.actions.values()) - VIRTUAL_EPOCH

    @property
    def iterations(self) -> list[loom.LoopIterationEvent]:
        return [event for event in self.events if isinstance(event, loom.LoopIterationEvent)]

    @property
    def loop(self) -> Any:
        """The one action of the document."""
        return next(iter(self.result.actions.values()))


def http(answer: Any) -> list[Any]:
    """Stub HTTP; the inputs of all requests come into the list."""
    asked: list[Any] = []

    @loom.action("http")
    async def request(inputs: Any) -> Any:
        asked.append(inputs)
        found = answer(len(asked)) if callable(answer) else answer
        return found if isinstance(found, dict) and "statusCode" in found else {"statusCode": 200, "body": found}

    return asked


@pytest.mark.parametrize("name", EXAMPLES)
def test_loads_unchanged(name: str) -> None:
    flow = loom.load(EXAMPLES[name])
    assert flow.program.nodes
    assert loom.load(json.dumps(EXAMPLES[name])).digest == flow.digest


def test_the_copies_are_those_of_the_design() -> None:
    if not DESIGN.exists():
        pytest.skip(f"there is no {DESIGN.name} beside the repository")
    text = DESIGN.read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```json\n")[1:]]
    complete = [json.loads(block) for block in blocks if "..." not in block.replace('"..."', "")]
    assert complete == list(EXAMPLES.values())


def test_a_while_that_never_sets_its_variable_ends_at_its_limit() -> None:
    asked = http({"status": "complete"})
    ran = Ran(EXAMPLES["retry until success"])
    assert ran.status == "Failed"
    assert ran.loop.error["message"] == "Loop exceeded maximum iterations: 10"
    assert ran.loop.iterations == len(asked) == len(ran.iterations) == 10
    assert ran.seconds == 50
    assert {event.loop_type for event in ran.iterations} == {"while"}
    assert {event.condition_result for event in ran.iterations} == {True}


def test_a_while_whose_condition_does_not_hold_runs_not_at_all() -> None:
    asked = http({})
    ran = Ran(EXAMPLES["retry until success"], variables={"status": "complete"})
    assert ran.status == "Succeeded"
    assert (ran.loop.iterations, asked) == (0, [])


def test_a_slow_while_ends_at_its_timeout() -> None:
    document = json.loads(json.dumps(EXAMPLES["retry until success"]))
    document["actions"]["wait"]["inputs"]["interval"]["count"] = 200
    http({})
    ran = Ran(document)
    assert ran.loop.error["message"] == "Loop timeout after 300000ms"
    assert ran.loop.iterations == 2


def test_a_queue_that_nobody_makes_shorter_ends_at_the_default_limit() -> None:
    processed: list[Any] = []

    @loom.actor("processor")
    async def process(message: Any) -> None:
        processed.append(message)

    ran = Ran(EXAMPLES["process queue until empty"], variables={"queue": ["a", "b", "c"]})
    assert ran.status == "Failed"
    assert ran.loop.error["message"] == "Loop exceeded maximum iterations: 60"
    assert processed == ["a"] * 60
    assert ran.result.actions["removeFromQueue"].outputs == ["b", "c"]


@pytest.mark.parametrize("start", [{}, {"variables": {"queue": []}}])
def test_an_empty_queue_is_done(start: dict[str, Any]) -> None:
    ran = Ran(EXAMPLES["process queue until empty"], **start)
    assert (ran.status, ran.loop.iterations) == ("Succeeded", 0)


def test_pages_whose_next_one_is_never_set_end_at_the_default_limit() -> None:
    asked = http({"nextPageUrl": "https://api.example.com/2"})
    ran = Ran(EXAMPLES["paginated api calls"], variables={"nextPage": "https://api.example.com/1"})
    assert ran.status == "Failed"
    assert ran.loop.error["message"] == "Loop exceeded maximum iterations: 60"
    assert [inputs["uri"] for inputs in asked] == ["https://api.example.com/1"] * 60
    assert ran.result.actions["updateNextPage"].outputs == "https://api.example.com/2"


def test_an_agent_that_never_sets_its_status_ends_at_its_limit() -> None:
    loom.action("ai")(lambda _inputs: {"action": "look", "actionInput": {"where": "here"}})
    looked: list[Any] = []

    @loom.activity("look")
    async def look(where: Any) -> str:
        looked.append(where)
        return "nothing"

    ran = Ran(EXAMPLES["agent loop"])
    assert ran.loop.error["message"] == "Loop exceeded maximum iterations: 5"
    assert looked == [{"where": "here"}] * 5
    assert ran.loop.outputs["observe"] == "nothing"


@pytest.mark.parametrize(("done", "iterations"), [(True, 1), (False, 60)])
def test_the_until_of_azure_runs_its_body_first_and_does_not_mind_its_limit(done: bool, iterations: int) -> None:
    asked = http({})
    ran = Ran(EXAMPLES["azure until"], variables={"done": done})
    assert ran.status == "Succeeded"
    assert ran.loop.iterations == len(asked) == iterations


def test_the_retry_loop_doubles_its_delays() -> None:
    asked = http(lambda number: {"statusCode": 503} if number <= 4 else {"statusCode": 200, "body": "well"})
    ran = Ran(EXAMPLES["retry loop"])
    assert ran.status == "Succeeded"
    assert len(asked) == 5
    assert ran.loop.outputs["body"] == "well"
    assert 5 + 10 + 20 + 40 <= ran.seconds <= (5 + 10 + 20 + 40) * 1.1


def test_the_retry_loop_gives_up() -> None:
    asked = http({"statusCode": 500})
    ran = Ran(EXAMPLES["retry loop"])
    assert ran.status == "Failed"
    assert len(asked) == 6
    assert 5 + 10 + 20 + 40 + 60 <= ran.seconds <= (5 + 10 + 20 + 40) * 1.1 + 60


def test_loop_variables() -> None:
    ran = Ran(EXAMPLES["loop variables"], variables={"data": "d"})
    assert ran.status == "Succeeded"
    results = [event.result["process"] for event in ran.iterations]
    assert [result["index"] for result in results] == list(range(10))
    assert results[0] == {"index": 0, "previousResult": None, "item": "d"}
    assert all(late["previousResult"] == {"process": early} for early, late in pairwise(results))
    assert ran.loop.outputs == {"process": results[-1]}


@pytest.mark.parametrize(("status", "tries"), [(500, 6), (502, 6), (503, 6), (504, 6), (404, 1), (501, 1)])
def test_retry_of_any_action_only_on_what_it_names(status: int, tries: int) -> None:
    asked = http({"statusCode": status})
    ran = Ran(EXAMPLES["retry of any action"])
    assert ran.status == "Failed"
    assert len(asked) == tries
    assert set(ran.result.actions) == {"callAPI"}


def test_polling_until_complete() -> None:
    asked = http(lambda number: {"status": "running" if number < 4 else "complete"})
    ran = Ran(EXAMPLES["polling until complete"], variables={"jobId": "j1"})
    assert ran.status == "Succeeded"
    assert [inputs["uri"] for inputs in asked] == ["https://api.example.com/jobs/j1"] * 4
    assert ran.seconds == 40
    assert ran.loop.name == "waitForJob"
    assert [(event.iteration, event.condition_result) for event in ran.iterations] == [(n, False) for n in range(4)]
    assert all(event.action_name == "waitForJob" and event.max_iterations == 60 for event in ran.iterations)


def test_polling_what_never_completes_ends_at_the_first_limit_that_it_comes_to() -> None:
    asked = http({"status": "running"})
    ran = Ran(EXAMPLES["polling until complete"], variables={"jobId": "j1"})
    assert ran.status == "Failed"
    assert ran.loop.error["message"] == "Loop exceeded maximum iterations: 60"
    assert len(asked) == 60


def test_the_react_agent_finds_its_answer() -> None:
    thoughts = [("SEARCH", "capital"), ("CALCULATE", "6*7"), ("FINAL_ANSWER", "42")]
    prompts: list[str] = []

    @loom.action("ai")
    async def think(inputs: Any) -> Any:
        prompts.append(inputs["prompt"])
        action, given = thoughts[len(prompts) - 1]
        return {"action": action, "input": given}

    @loom.activity("search")
    async def search(inputs: Any) -> str:
        return f"found {inputs['query']}"

    @loom.activity("calculator")
    async def calculate(inputs: Any) -> str:
        return f"made {inputs['expression']}"

    ran = Ran(EXAMPLES["react agent loop"], variables={"observations": "none"})
    assert ran.status == "Succeeded"
    assert ran.loop.iterations == 3
    assert [event.result["act"] for event in ran.iterations] == ["found capital", "made 6*7", None]
    assert ran.iterations[0].result["observe"] == "none\nfound capital"
    assert set(prompts) == {"Based on observations: none, what should I do?"}


def test_pages_are_processed_to_the_last_one() -> None:
    pages = {"first": (["a", "b"], "second"), "second": ([], "third"), "third": (["c"], None)}
    processed: list[Any] = []

    @loom.action("http")
    async def fetch(inputs: Any) -> Any:
        items, token = pages[inputs["uri"].rpartition("=")[2]]
        return {"statusCode": 200, "body": {"items": items, "nextPageToken": token}}

    @loom.actor("processor")
    async def process(message: Any) -> None:
        processed.append(message)

    ran = Ran(EXAMPLES["batch processing with pagination"], variables={"nextPageToken": "first"})
    assert ran.status == "Succeeded"
    assert processed == ["a", "b", "c"]
    assert ran.result.variables == {"nextPageToken": None}
    assert ran.loop.iterations == 3


# -- the examples that are not complete, with something in the place of `{ ... }` --------------------------------------


def test_the_syntax_of_until() -> None:
    document = {
        "type": "until",
        "condition": "@equals(variables('status'), 'complete')",
        "actions": {
            "checkStatus": {"type": "compose", "inputs": "@if(equals(variables('loopCount'), 3), 'complete', 'busy')"},
            "processResult": {"type": "setVariable", "name": "status", "value": "@outputs('checkStatus')"},
        },
        "limit": {"count": 100, "timeout": "PT1H"},
        "delay": {"interval": {"count": 5, "unit": "second"}},
    }
    ran = Ran(document, variables={"status": "new"})
    assert (ran.status, ran.loop.iterations) == ("Succeeded", 3)


@pytest.mark.parametrize(("done", "iterations"), [(True, 0), (False, 1)])
def test_the_syntax_of_while(done: bool, iterations: int) -> None:
    document = {
        "type": "while",
        "condition": "@not(equals(variables('done'), true))",
        "actions": {"work": {"type": "setVariable", "inputs": {"name": "done", "value": True}}},
        "limit": {"count": 5},
    }
    ran = Ran(document, variables={"done": done})
    assert (ran.status, ran.loop.iterations) == ("Succeeded", iterations)


def test_the_syntax_of_do_until() -> None:
    document = {
        "type": "doUntil",
        "condition": "@equals(variables('result'), 'success')",
        "actions": {"attempt": {"type": "compose", "inputs": "tried"}},
        "limit": {"count": 5, "timeout": "PT1M"},
    }
    ran = Ran(document, variables={"result": "success"})
    assert (ran.status, ran.loop.iterations) == ("Succeeded", 1)
    assert ran.iterations[0].condition_result is True


def test_nested_loops_know_each_other_by_name() -> None:
    document = {
        "type": "until",
        "name": "outerLoop",
        "condition": "@equals(variables('page'), null)",
        "actions": {
            "fetchPage": {"type": "http", "inputs": {"uri": "@variables('page')"}},
            "processItems": {
                "type": "foreach",
                "foreach": "@body('fetchPage').items",
                "actions": {
                    "processItem": {
                        "type": "compose",
                        "inputs": "@concat(variables('outerLoop_loopIndex'), variables('loopIndex'), item())",
                    },
                },
            },
            "next": {"type": "setVariable", "name": "page", "value": "@body('fetchPage').next"},
        },
    }
    http(lambda number: {"items": ["x", "y"], "next": "2" if number == 1 else None})
    ran = Ran(document, variables={"page": "1"})
    assert ran.status == "Succeeded"
    seen = [[item["processItem"] for item in event.result["processItems"]] for event in ran.iterations]
    assert seen == [["00x", "01y"], ["10x", "11y"]]


def test_the_foreach_of_azure() -> None:
    document = {
        "For_each": {
            "type": "Foreach",
            "foreach": "@triggerBody()?['items']",
            "actions": {"Process": {"type": "Compose", "inputs": "@items('For_each')"}},
        }
    }
    ran = Ran(document, body={"items": [1, 2]})
    assert ran.status == "Succeeded"
    assert ran.loop.outputs == [{"Process": 1}, {"Process": 2}]

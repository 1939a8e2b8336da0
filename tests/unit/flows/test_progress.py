from __future__ import annotations

from typing import Any

from loom.core.records import EventRecord
from loom.core.state import WorkItem
from loom.flows.calls import OUTCOME_KIND, START_KIND, ActionOutcome, FlowStart
from loom.flows.compiler import load_program
from loom.flows.planner import FlowPlanner, flow_config
from loom.flows.progress import action_list, action_progress, loop_progress, preview
from loom.flows.state import FlowPlan

SECURE = {"runtimeConfiguration": {"secureData": {"properties": ["outputs"]}}}
CALL = {"type": "activity", "inputs": {"activityType": "x", "input": 1}}


class Flow:
    """A flow that is walked by hand."""

    def __init__(self, actions: dict[str, Any], at: float = 100.0) -> None:
        self.program = load_program({"actions": actions}, name="f")
        self.planner = FlowPlanner(self.program)
        self.config = flow_config(self.program)
        start = EventRecord(START_KIND, FlowStart())
        plan = self.planner.start(self.config, "run", 1)
        self.plan: FlowPlan
        self.plan, _, _ = self.planner.on_event(self.config, plan, start, None, None, frozenset(), at)

    def answer(self, at: float, outcome: ActionOutcome | None = None) -> None:
        """The call that was made first comes back."""
        mark = min(mark for mark, wait in self.plan.waits.items() if wait.purpose == "call")
        record = EventRecord(OUTCOME_KIND, outcome or ActionOutcome(outputs={"ok": True}))
        item = WorkItem(id=1, step="call", event=record, extra=mark)
        self.plan, _ = self.planner.on_returned(self.config, self.plan, item, (record,), False, at)

    def fire(self, at: float) -> None:
        """The timer that was set first is due."""
        mark = min(mark for mark, wait in self.plan.waits.items() if wait.due is not None)
        self.plan, _ = self.planner.on_timer(self.config, self.plan, mark, at)


def loop(**more: Any) -> dict[str, Any]:
    return {
        "type": "until",
        "condition": "@greaterOrEquals(variables('loopIndex'), 3)",
        "limit": {"count": 9, "timeout": "PT5M"},
        "actions": {"call": CALL},
        **more,
    }


def test_a_loop_counts_the_iterations_that_have_begun() -> None:
    flow = Flow({"loop": loop(delay={"interval": {"count": 30, "unit": "second"}})})
    (found,) = loop_progress(flow.program, flow.plan, 145.0)
    assert (found.path, found.iteration, found.max_iterations, found.status) == ("loop[0]", 1, 9, "running")
    assert (found.condition, found.condition_result) == ("@greaterOrEquals(variables('loopIndex'), 3)", False)
    assert (found.start_time, found.duration, found.timeout) == (100.0, 45.0, 300.0)
    assert (found.last_result, found.next_iteration_at) == (None, None)
    flow.answer(150.0)
    (found,) = loop_progress(flow.program, flow.plan, 160.0)
    assert (found.path, found.iteration, found.status) == ("loop[0]", 1, "running")
    assert (found.last_result, found.next_iteration_at) == ({"call": {"ok": True}}, 180.0)
    assert action_progress(flow.program, flow.plan) == [], "the loop waits, not an action"
    flow.fire(180.0)
    (found,) = loop_progress(flow.program, flow.plan, 181.0)
    assert (found.path, found.iteration, found.status) == ("loop[1]", 2, "running")


def test_the_iterations_of_a_parallel_loop_stand_under_it_in_their_order() -> None:
    inner = loop(actions={"call": CALL})
    each = {
        "type": "foreach",
        "foreach": "@createArray('a', 'b', 'c')",
        "runtimeConfiguration": {"concurrency": {"repetitions": 2}},
        "actions": {"inner": inner},
    }
    flow = Flow({"each": each})
    shown = [(found.path, found.parent, found.iteration) for found in loop_progress(flow.program, flow.plan, 100.0)]
    assert shown == [
        ("each[1]", None, 0),
        ("each[0]/inner[0]", "each[0]", 1),
        ("each[1]/inner[0]", "each[1]", 1),
    ]
    paths = [action.path for action in action_progress(flow.program, flow.plan)]
    assert paths == ["each[0]/inner[0]/call", "each[1]/inner[0]/call"]


def test_retries_say_which_attempt_comes_when_and_why() -> None:
    retry = {"type": "fixed", "count": 2, "interval": "PT10S"}
    flow = Flow({"call": {**CALL, "retry": retry}})
    (found,) = action_progress(flow.program, flow.plan)
    assert (found.status, found.attempt, found.since, found.due) == ("running", 1, 100.0, None)
    flow.answer(103.0, ActionOutcome("Failed", code="Bad", message="it broke"))
    (found,) = action_progress(flow.program, flow.plan)
    assert (found.status, found.attempt, found.since, found.due, found.error) == (
        "retrying",
        2,
        100.0,
        113.0,
        "it broke",
    )
    assert action_list(flow.program, flow.plan)[0].status == "Waiting"
    flow.fire(113.0)
    (found,) = action_progress(flow.program, flow.plan)
    assert (found.status, found.attempt, found.error) == ("running", 2, "it broke")


def test_actions_are_listed_as_they_stand() -> None:
    flow = Flow(
        {
            "first": {"type": "compose", "inputs": 5},
            "loop": loop(),
            "pause": {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}},
        }
    )
    flow.answer(101.0)
    found = {action.name: action for action in action_list(flow.program, flow.plan)}
    assert list(found) == ["first", "loop", "call", "pause"]
    assert (found["first"].status, found["first"].outputs, found["first"].code) == ("Succeeded", 5, "OK")
    assert (found["loop"].status, found["loop"].ended, found["loop"].started) == ("Running", None, 100.0)
    assert (found["call"].status, found["call"].path) == ("Running", "loop[1]/call")
    assert (found["pause"].status, found["pause"].path) == ("Pending", "pause")
    flow.answer(102.0)
    flow.answer(103.0)
    found = {action.name: action for action in action_list(flow.program, flow.plan)}
    assert (found["loop"].status, found["loop"].iterations) == ("Succeeded", 3)
    assert (found["call"].path, found["call"].status) == ("loop/call", "Succeeded")
    assert found["pause"].status == "Waiting"


def test_what_is_secure_is_masked() -> None:
    flow = Flow({"loop": loop(actions={"call": {**CALL, **SECURE}})})
    flow.answer(101.0, ActionOutcome(outputs="hush"))
    (found,) = loop_progress(flow.program, flow.plan, 102.0)
    assert found.last_result == "*** secure ***"
    retried = Flow({"call": {**CALL, **SECURE, "retry": {"type": "fixed", "count": 2, "interval": "PT10S"}}})
    retried.answer(101.0, ActionOutcome("Failed", message="hush"))
    assert [action.error for action in action_progress(retried.program, retried.plan)] == ["*** secure ***"]
    retried.fire(111.0)
    retried.answer(112.0, ActionOutcome(outputs="hush"))
    assert "hush" not in str(action_list(retried.program, retried.plan))


def test_large_values_are_cut() -> None:
    assert preview({"a": [1, None, True]}) == {"a": [1, None, True]}
    cut = preview({"a": "x" * 5000}, 100)
    assert cut.startswith('{"a": "xxx')
    assert len(cut) == 101
    assert preview("y" * 300, 100) == "y" * 100 + "…"
    assert preview(12) == 12

"""The retry action is a loop: the system limits hold for it, and a delay of zero does not spin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import loom
from loom import ActionContext, FlowResult
from loom.effects.actions.handlers import HANDLERS
from loom.flows.document import document_text, read_document
from loom.flows.limits import Limits
from loom.flows.lower import program_of
from loom.runtime.load import flow_of
from loom.testing import run_virtual

Data = dict[str, Any]


class Failing:
    """An activity that always fails and notes when it was called."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts_attempts = True

    async def __call__(self, _: Any, context: ActionContext) -> None:
        self.times.append(asyncio.get_running_loop().time())
        assert not self.counts_attempts or context.attempt == len(self.times) - 1
        raise ConnectionError(f"attempt {context.attempt}")

    @property
    def delays(self) -> list[float]:
        return [round(later - earlier, 3) for earlier, later in zip(self.times, self.times[1:], strict=False)]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    found = Failing()
    monkeypatch.setitem(HANDLERS.activities, "failing", found)
    return found


def again(**policy: Any) -> Data:
    action = {"type": "activity", "inputs": {"activityType": "failing"}}
    return {"actions": {"again": {"type": "retry", "action": action, "retryPolicy": policy}}}


def run(document: Data | loom.Flow, **options: Any) -> FlowResult:
    flow = document if isinstance(document, loom.Flow) else loom.load(document, **options)

    async def main() -> FlowResult:
        return await flow.run()

    return run_virtual(main())


def stored(document: Data, limits: Limits) -> str:
    """A document as it was stored before its count was an error."""
    return document_text(read_document(document, name="flow"), limits)


def test_a_fixed_delay_of_zero_does_not_spin(failing: Failing) -> None:
    result = run(again(type="fixed", count=3, interval="PT0S"))
    assert (result.status, failing.delays) == ("Failed", [1.0, 1.0, 1.0])
    assert result.error == {"code": "ConnectionError", "message": "attempt 3"}


def test_a_fixed_delay_is_no_shorter_than_the_minimum_that_is_given(failing: Failing) -> None:
    run(again(type="fixed", count=2, interval="PT0S", minimumInterval="PT0.25S"))
    assert failing.delays == [0.25, 0.25]


@pytest.mark.parametrize("kind", ["activity", "scope"])
def test_a_policy_on_any_action_has_the_limit_of_tries(failing: Failing, kind: str) -> None:
    call: Data = {"type": "activity", "inputs": {"activityType": "failing"}}
    policy = {"type": "exponential", "count": 1_000_000, "interval": "PT0S", "minimumInterval": "PT0S"}
    action = call if kind == "activity" else {"type": "scope", "actions": {"call": call}}
    flow = loom.load({"actions": {"again": {**action, "retryPolicy": policy}}}, limits=Limits(max_iterations=100))
    assert [warning.message for warning in flow.warnings] == ["Retry count exceeds system limit: 100"]
    if kind == "scope":
        failing.counts_attempts = False  # each try of the scope begins its action anew
    assert run(flow).status == "Failed"
    assert len(failing.times) == 101


def test_a_policy_on_an_action_respects_the_minimum_too(failing: Failing) -> None:
    action = {"type": "activity", "inputs": {"activityType": "failing"}}
    run({"actions": {"call": {**action, "retry": {"type": "fixed", "count": 2, "interval": "PT0S"}}}})
    assert failing.delays == [1.0, 1.0]


def test_the_retries_end_with_the_time_that_a_loop_may_take(failing: Failing) -> None:
    result = run(again(type="fixed", count=1_000, interval="PT3S"), limits={"max_duration_s": 10})
    assert (result.status, failing.delays) == ("Failed", [3.0, 3.0, 3.0])
    assert result.error == {"code": "ConnectionError", "message": "attempt 3"}


def test_a_count_above_the_limit_is_refused_in_a_new_document() -> None:
    with pytest.raises(loom.DefinitionError) as refused:
        loom.load(again(type="fixed", count=1_001))
    assert str(refused.value) == "actions.again.retryPolicy.count: Retry count exceeds system limit: 1000"
    inner = {"type": "activity", "inputs": {"activityType": "failing"}, "retry": {"count": 1_001}}
    with pytest.raises(loom.DefinitionError, match=r"actions\.again\.action\.retry\.count: Retry count exceeds"):
        loom.load({"actions": {"again": {"type": "retry", "action": inner}}})


def test_the_operator_may_raise_the_limit() -> None:
    assert loom.load(again(count=1_001), limits={"max_iterations": 2_000}).program.nodes[1].retry is not None


@pytest.mark.parametrize("compiled", [program_of, lambda text: flow_of(text).program], ids=["planner", "flow"])
def test_a_stored_document_with_a_higher_count_still_loads(compiled: Callable[[str], Any]) -> None:
    text = stored(again(type="fixed", count=5_000), Limits())
    policy = compiled(text).nodes[1].retry
    assert policy is not None


def test_the_count_of_a_stored_document_is_capped(failing: Failing) -> None:
    flow = flow_of(stored(again(type="fixed", count=50), Limits(max_iterations=4)))
    assert run(flow).status == "Failed"
    assert len(failing.times) == 5, "the first attempt, and as many more as a loop may have iterations"


def test_a_policy_on_an_action_is_no_loop(failing: Failing) -> None:
    call = {"type": "activity", "inputs": {"activityType": "failing"}}
    document = {"actions": {"call": {**call, "retry": {"type": "fixed", "count": 6, "interval": "PT1S"}}}}
    run(document, limits={"max_iterations": 2, "max_duration_s": 2})
    assert len(failing.times) == 7


def test_what_cannot_come_to_a_second_try_is_warned_of() -> None:
    text = json.dumps([str(problem) for problem in loom.load(again(type="fixed", interval="P2D")).warnings])
    assert "86400 seconds" in text
    text = json.dumps([str(problem) for problem in loom.load(again(type="fixed", interval="PT0S")).warnings])
    assert "minimumInterval" in text

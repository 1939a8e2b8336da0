"""Retries: failed flows that go on at the action that failed, and the limits of the retry action."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import loom
from loom import ActionContext, FlowResult
from loom.effects.actions.handlers import HANDLERS
from loom.flows import planner
from loom.flows.compiler import program_of
from loom.flows.document import document_text, read_document
from loom.flows.limits import Limits
from loom.flows.rules import AS_FIRST
from loom.flows.state import EachState, FlowPlan
from loom.runtime.flow import flow_of
from loom.store import codec
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

Data = dict[str, Any]


class Work:
    """An activity that fails at the places it is told to, as often as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.failing: dict[str, int] = {}

    async def __call__(self, place: Any, context: ActionContext) -> str:
        place = str(place)
        self.calls.append(place)
        self.keys.setdefault(place, set()).add(context.idempotency_key)
        if self.failing.get(place, 0) > 0:
            self.failing[place] -= 1
            raise ConnectionError(f"no line at {place}")
        return f"done {place}"


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    found = Work()
    monkeypatch.setitem(HANDLERS.activities, "work", found)
    return found


def at(place: Any, **more: Any) -> Data:
    return {"type": "activity", "inputs": {"activityType": "work", "input": place}, **more}


def until(count: int, actions: Data, kind: str = "until", **more: Any) -> Data:
    test = "less" if kind == "while" else "equals"
    return {"type": kind, "condition": f"@{test}(variables('loopIndex'), {count})", "actions": actions, **more}


def azure(actions: Data) -> Data:
    return {"triggers": {"manual": {"type": "Request", "kind": "Http"}}, "actions": actions}


def retried(document: Data, retries: int = 1) -> list[FlowResult]:
    """The results of a run and of its retries, each an hour later, in a process of its own."""

    async def run() -> list[FlowResult]:
        database = MemoryDatabase()
        results = []
        for number in range(retries + 1):
            await asyncio.sleep(3_600)  # nobody is alive
            async with loom.connect(MemoryStore(database)) as runtime:
                runtime.register(loom.load(document), name="flow")
                if number:
                    await runtime.retry("r")
                    results.append(await (await runtime.handler("r")))
                else:
                    results.append(await (await runtime.start("flow", run_id="r")))
        return results

    return run_virtual(run())


INDEX = "@{variables('loopIndex')}"


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
def test_a_loop_goes_on_at_the_failed_action_of_the_failed_iteration(work: Work, kind: str) -> None:
    work.failing["b2"] = 1
    body = {
        "a": at(f"a{INDEX}"),
        "b": at(f"b{INDEX}"),
        "c": {"type": "compose", "inputs": "@coalesce(variables('loopResult')?['b'], 'none')"},
    }
    failed, ended = retried({"actions": {"first": at("first"), "loop": until(4, body, kind), "last": at("last")}})
    assert (failed.status, failed.actions["loop"].iterations) == ("Failed", 3)
    assert (ended.status, ended.actions["loop"].iterations) == ("Succeeded", 4)
    assert work.calls == ["first", "a0", "b0", "a1", "b1", "a2", "b2", "b2", "a3", "b3", "last"]
    assert ended.actions["c"].outputs == "done b2", "the result of the iteration before"
    assert {len(keys) for keys in work.keys.values()} == {1}, "what is called again has the key that it had"


def test_the_failed_iteration_sees_the_result_of_the_one_before_it(work: Work) -> None:
    work.failing["b2"] = 1
    body = {
        "b": at(f"b{INDEX}"),
        "seen": {"type": "compose", "inputs": "@coalesce(variables('loopResult')?['b'], 'none')"},
    }
    note = {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": "@outputs('seen')"}}
    init = {"type": "initializeVariable", "inputs": {"variables": [{"name": "log", "type": "array"}]}}
    _, ended = retried({"actions": {"init": init, "loop": until(4, {**body, "note": note})}})
    assert ended.variables["log"] == ["none", "done b0", "done b1", "done b2"]


def test_an_until_of_logic_apps_goes_on_at_its_last_iteration(work: Work) -> None:
    work.failing |= {"0": 1, "2": 1}
    step = at("@string(iterationIndexes('Loop'))")
    loop = {"type": "Until", "expression": "@equals(iterationIndexes('Loop'), 2)", "actions": {"Step": step}}
    failed, ended = retried(azure({"Loop": loop}))
    # The first failure did not end the loop, and the last one counts.
    assert (failed.status, ended.status) == ("Failed", "Succeeded")
    assert work.calls == ["0", "1", "2", "2"]


def test_a_foreach_goes_on_at_the_failed_element_and_has_all_outputs(work: Work) -> None:
    work.failing["c"] = 1
    each = {"type": "foreach", "items": list("abcde"), "actions": {"one": at("@item()")}}
    failed, ended = retried({"actions": {"each": each, "sum": {"type": "compose", "inputs": "@outputs('each')"}}})
    assert (failed.actions["each"].iterations, ended.actions["each"].iterations) == (3, 5)
    assert work.calls == ["a", "b", "c", "c", "d", "e"]
    assert ended.actions["sum"].outputs == [{"one": f"done {letter}"} for letter in "abcde"]


def test_only_failed_iterations_of_a_parallel_foreach_run_again(work: Work) -> None:
    work.failing |= dict.fromkeys(("3", "11", "12", "18"), 1)
    body = {"Before": at("x@{item()}"), "One": at("@item()", runAfter={"Before": ["Succeeded"]})}
    each = {
        "type": "Foreach",
        "foreach": "@range(0, 20)",
        "actions": body,
        "runtimeConfiguration": {"concurrency": {"repetitions": 3}},
    }
    both = {"Each": each, "All": {"type": "Compose", "inputs": "@result('Each')", "runAfter": {"Each": ["Succeeded"]}}}
    for actions in ({"Each": each}, both):
        work.calls.clear()
        work.failing |= dict.fromkeys(("3", "11", "12", "18"), 1)
        failed, ended = retried(azure(actions))
        assert (failed.status, ended.status, ended.actions["Each"].iterations) == ("Failed", "Succeeded", 20)
        assert len(work.calls) == 44
        assert work.calls[40:] == ["3", "11", "12", "18"]
        expected = [{"Before": f"done x{number}", "One": f"done {number}"} for number in range(20)]
        assert ended.actions["Each"].outputs == expected
        assert ended.actions["One"].outputs == "done 19", "from outside it is the last iteration"
    [before, one] = ended.actions["All"].outputs
    assert [entry["outputs"] for entry in one["outputs"]] == [f"done {number}" for number in range(20)]
    assert len(before["outputs"]) == 20


def test_a_parallel_foreach_of_loom_goes_on_with_what_never_began(work: Work) -> None:
    work.failing |= {"b": 2, "c": 1, "e": 1}
    each = {
        "type": "foreach",
        "items": list("abcde"),
        "actions": {"one": at("@item()")},
        "runtimeConfiguration": {"concurrency": {"repetitions": 3}},
    }
    results = retried({"actions": {"each": each}}, retries=2)
    assert [result.status for result in results] == ["Failed", "Failed", "Succeeded"]
    assert work.calls == ["a", "b", "c", "d", "b", "c", "e", "b", "e"]
    assert [entry["one"] for entry in results[-1].actions["each"].outputs] == [f"done {x}" for x in "abcde"]


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
def test_a_loop_that_reached_its_count_gets_all_of_it_again(work: Work, kind: str) -> None:
    loop = until(5, {"a": at(f"a{INDEX}")}, kind, limit={"count": 2})
    first, second, third = retried({"actions": {"loop": loop}}, retries=2)
    assert first.error is not None
    assert first.error["code"] == "LoopLimitReached"
    assert [first.status, second.status, third.status] == ["Failed", "Failed", "Succeeded"]
    assert work.calls == ["a0", "a1", "a2", "a3", "a4"]
    assert third.actions["loop"].iterations == 5


def test_a_loop_that_was_out_of_time_gets_all_of_it_again(work: Work) -> None:
    rest = {"type": "wait", "inputs": {"interval": "PT20S"}}
    loop = until(5, {"a": at(f"a{INDEX}"), "rest": rest}, limit={"timeout": "PT30S"})
    results = retried({"actions": {"loop": loop}}, retries=2)
    assert [result.status for result in results] == ["Failed", "Failed", "Succeeded"]
    assert work.calls == ["a0", "a1", "a2", "a3", "a4"]


def test_the_time_until_a_retry_does_not_count_for_a_failed_loop(work: Work) -> None:
    work.failing["a1"] = 1
    _, ended = retried({"actions": {"loop": until(4, {"a": at(f"a{INDEX}")}, limit={"timeout": "PT10M"})}})
    assert (ended.status, work.calls) == ("Succeeded", ["a0", "a1", "a1", "a2", "a3"])


def test_the_limit_of_logic_apps_is_granted_anew(work: Work) -> None:
    loop = {
        "type": "Until",
        "expression": "@equals(iterationIndexes('Loop'), 4)",
        "limit": {"count": 3},
        "operationOptions": "FailWhenLimitsReached",
        "actions": {"Step": at("@string(iterationIndexes('Loop'))")},
    }
    failed, ended = retried(azure({"Loop": loop}))
    assert (failed.actions["Loop"].status, ended.status, work.calls) == ("TimedOut", "Succeeded", list("01234"))


CONTAINERS: dict[str, Callable[[Data], Data]] = {
    "scope": lambda inside: {"type": "scope", "actions": inside},
    "if": lambda inside: {"type": "if", "condition": "@false", "actions": {"no": at("no")}, "else": inside},
    "switch": lambda inside: {
        "type": "switch",
        "on": "@variables('loopIndex')",
        "cases": {"one": {"case": 1, "actions": inside}},
        "default": {"actions": {"other": at("other")}},
    },
    "parallel": lambda inside: {"type": "parallel", "actions": {"in": {"type": "scope", "actions": inside}}},
    "retry": lambda inside: {
        "type": "retry",
        "action": {"type": "scope", "actions": inside},
        "retryPolicy": {"type": "none"},
    },
    "loop": lambda inside: {"type": "doUntil", "condition": "@true", "actions": inside},
    "foreach": lambda inside: {"type": "foreach", "items": ["only"], "actions": inside},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_is_nested_in_a_loop_goes_on_inside(work: Work, name: str) -> None:
    work.failing["bad 1"] = 1
    loop_index = "@{variables('loop_loopIndex')}"
    inside = {"good": at(f"good {loop_index}"), "bad": at(f"bad {loop_index}"), "more": at(f"more {loop_index}")}
    body = {"before": at("before"), "inner": CONTAINERS[name](inside), "after": at("after")}
    failed, ended = retried({"actions": {"loop": until(3, body)}})
    assert (failed.status, ended.status) == ("Failed", "Succeeded")
    assert ended.actions["loop"].iterations == 3
    assert [call for call in work.calls if call.endswith("1")] == ["good 1", "bad 1", "bad 1", "more 1"]
    assert [work.calls.count(one) for one in ("before", "after", "no")] == [3, 3, 0]
    assert len(work.keys["bad 1"]) == 1


def test_a_loop_in_a_scope_at_the_top_level_goes_on_inside(work: Work) -> None:
    work.failing["1"] = 1
    inside = {"first": at("first"), "each": {"type": "foreach", "items": [0, 1, 2], "actions": {"one": at("@item()")}}}
    _, ended = retried({"actions": {"try": {"type": "scope", "actions": inside}, "last": at("last")}})
    assert (ended.status, work.calls) == ("Succeeded", ["first", "0", "1", "1", "2", "last"])


def test_loops_in_loops_go_on_at_the_innermost_iteration_again_and_again(work: Work) -> None:
    work.failing |= {"1.1.0": 1, "1.1.1": 1, "2.0.1": 1}
    place = "@{variables('outer_loopIndex')}.@{variables('middle_loopIndex')}.@{variables('loopIndex')}"
    inner = {"type": "foreach", "items": [7, 8], "actions": {"one": at(place)}}
    document = {"actions": {"outer": until(3, {"middle": until(2, {"inner": inner}, "doUntil")})}}
    results = retried(document, retries=3)
    assert [result.status for result in results] == ["Failed"] * 3 + ["Succeeded"]
    every = [f"{a}.{b}.{c}" for a in range(3) for b in range(2) for c in range(2)]
    assert [call for number, call in enumerate(work.calls) if call not in work.calls[:number]] == every
    assert len(work.calls) == len(every) + 3


def test_the_tries_of_a_failed_action_begin_anew(work: Work) -> None:
    work.failing["1"] = 3
    again = {"type": "retry", "action": at(INDEX), "retryPolicy": {"type": "fixed", "count": 1, "interval": "PT5S"}}
    failed, ended = retried({"actions": {"loop": until(3, {"again": again})}})
    assert (failed.status, ended.status, work.calls) == ("Failed", "Succeeded", ["0", "1", "1", "1", "1", "2"])


def test_what_ran_because_of_the_failure_is_reconsidered(work: Work) -> None:
    work.failing["b1"] = 1
    body = {
        "b": at(f"b{INDEX}"),
        "sorry": at(f"sorry {INDEX}", runAfter={"b": ["Failed"]}),
        "stop": {"type": "terminate", "inputs": {"runStatus": "Failed"}, "runAfter": {"sorry": ["Succeeded"]}},
        "then": at(f"then {INDEX}", runAfter={"b": ["Succeeded"]}),
    }
    failed, ended = retried({"actions": {"loop": until(3, body)}})
    assert (failed.error, ended.status) == ({"code": "Terminated", "message": "The run was terminated."}, "Succeeded")
    assert work.calls == ["b0", "then 0", "b1", "sorry 1", "b1", "then 1", "b2", "then 2"]
    assert ended.actions["sorry"].status == "Skipped"


def test_what_was_under_way_when_the_run_was_terminated_goes_on(work: Work) -> None:
    work.failing["stop"] = 1
    slow = {"a": at(f"a{INDEX}"), "rest": {"type": "wait", "inputs": {"interval": "PT1M"}}}
    branches = {
        "slow": {"type": "scope", "actions": {"loop": until(4, slow, "doUntil")}},
        "each": {"type": "foreach", "items": [0, 1, 2], "actions": {"e": at("e@{item()}"), "nap": slow["rest"]}},
        "stop": {
            "type": "scope",
            "actions": {
                "wait": {"type": "wait", "inputs": {"interval": "PT90S"}},
                "check": at("stop", runAfter={"wait": ["Succeeded"]}),
                "end": {
                    "type": "terminate",
                    "inputs": {"runStatus": "Failed"},
                    "runAfter": {"check": ["Failed"]},
                },
            },
        },
    }
    failed, ended = retried({"actions": {"all": {"type": "parallel", "actions": branches}}})
    assert (failed.actions["loop"].status, ended.status) == ("Cancelled", "Succeeded")
    assert sorted(work.calls) == ["a0", "a1", "a2", "a3", "e0", "e1", "e2", "stop", "stop"]
    assert (ended.actions["loop"].iterations, ended.actions["each"].iterations) == (4, 3)


def _each_beside_a_stop(each: Data, wait: str, stop: str, minute: Any, half: Any) -> Data:
    """A parallel loop whose iterations take a minute, and beside it what ends the run after half of one."""
    body = {"one": at("@item()"), "nap": {"type": wait, "inputs": {"interval": minute}, "runAfter": _AFTER_ONE}}
    return {
        "each": {**each, "actions": body, "runtimeConfiguration": {"concurrency": {"repetitions": 2}}},
        "rest": {"type": wait, "inputs": {"interval": half}, "runAfter": {}},
        "check": at("stop", runAfter={"rest": ["Succeeded"]}),
        "end": {"type": stop, "inputs": {"runStatus": "Failed"}, "runAfter": {"check": ["Failed"]}},
    }


_AFTER_ONE = {"one": ["Succeeded"]}
_LOOM_EACH = _each_beside_a_stop({"type": "foreach", "items": [1, 2, 3, 4]}, "wait", "terminate", "PT1M", "PT30S")
_AZURE_EACH = _each_beside_a_stop(
    {"type": "Foreach", "foreach": [1, 2, 3, 4]},
    "Wait",
    "Terminate",
    {"count": 1, "unit": "Minute"},
    {"count": 30, "unit": "Second"},
)


@pytest.mark.parametrize(
    "document",
    [
        {"actions": {"all": {"type": "parallel", "actions": {
            "loop": {"type": "scope", "actions": {"each": _LOOM_EACH["each"]}},
            "stop": {"type": "scope", "actions": {k: v for k, v in _LOOM_EACH.items() if k != "each"}},
        }}}},
        azure(_AZURE_EACH),
    ],
    ids=["loom", "azure"],
)  # fmt: skip
def test_failed_iterations_of_a_foreach_that_was_under_way_run_again(work: Work, document: Data) -> None:
    work.failing |= {"1": 1, "stop": 1}
    failed, ended = retried(document)
    assert (failed.status, ended.status, ended.actions["each"].iterations) == ("Failed", "Succeeded", 4)
    assert work.calls.count("1") == 2
    assert all(work.calls.count(str(item)) == 1 for item in (2, 3, 4))


def test_a_terminate_that_was_skipped_stays_skipped(work: Work) -> None:
    work.failing["b"] = 1
    actions = {
        "a": at("a"),
        "stop": {"type": "terminate", "inputs": {"runStatus": "Cancelled"}, "runAfter": {"a": ["Failed"]}},
        "b": at("b", runAfter={"a": ["Succeeded"]}),
    }
    _, ended = retried({"actions": actions})
    assert (ended.status, ended.actions["stop"].status, work.calls) == ("Succeeded", "Skipped", ["a", "b", "b"])


def test_a_condition_that_cannot_be_evaluated_repeats_no_iteration(work: Work) -> None:
    test = "@if(less(variables('loopIndex'), 3), false, outputs('a').no.such)"
    loop = {"type": "until", "condition": test, "actions": {"a": at(f"a{INDEX}")}}
    results = retried({"actions": {"loop": loop}}, retries=2)
    assert [result.status for result in results] == ["Failed"] * 3
    assert work.calls == ["a0", "a1", "a2"]


def test_a_flow_whose_outputs_cannot_be_evaluated_ends_again(work: Work) -> None:
    outputs = {"out": {"type": "string", "value": "@outputs('a').no.such"}}
    first, second = retried({"actions": {"a": at("a")}, "outputs": outputs})
    assert (first.status, second.status, work.calls) == ("Failed", "Failed", ["a"])


def test_a_failed_foreach_keeps_the_records_of_what_failed_alone(work: Work) -> None:
    work.failing["7"] = 1
    each = {"type": "Foreach", "foreach": "@range(0, 50)", "actions": {"Text": _compose("x" * 999), "One": _late()}}

    async def run() -> Any:
        database = MemoryDatabase()
        async with loom.connect(MemoryStore(database)) as runtime:
            runtime.register(loom.load(azure({"Each": each})), name="flow")
            await (await runtime.start("flow", run_id="r"))
            return await runtime.state_at("r", (await runtime.get("r")).ticks - 1)

    state = run_virtual(run())
    plan = state.outcome.abandoned.plan
    assert isinstance(plan, FlowPlan)
    unfinished = plan.frames[1].records[0].unfinished
    assert unfinished is not None
    assert [frame.index for frame in unfinished.frames] == [7]
    assert isinstance(unfinished.each, EachState)
    assert list(unfinished.each.iterations) == [49]
    assert codec.encode_state(state).count(b"x" * 999) < 110, "outputs once in the loop's record, once in its result"


def test_a_run_of_an_earlier_version_begins_its_loop_anew(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    work.failing["1"] = 2
    monkeypatch.setattr(planner, "NEWEST", AS_FIRST)
    document = {"actions": {"loop": until(3, {"a": at(INDEX)})}}

    async def run() -> list[str]:
        database = MemoryDatabase()
        async with loom.connect(MemoryStore(database)) as runtime:
            runtime.register(loom.load(document), name="flow")
            await (await runtime.start("flow", run_id="old"))
        monkeypatch.undo()
        monkeypatch.setitem(HANDLERS.activities, "work", work)
        async with loom.connect(MemoryStore(database)) as runtime:
            runtime.register(loom.load(document), name="flow")
            ended = []
            for _ in range(2):
                await runtime.retry("old")
                ended.append((await (await runtime.handler("old"))).status)
            return ended

    assert run_virtual(run()) == ["Failed", "Succeeded"]
    assert work.calls == ["0", "1", "0", "1", "0", "1", "2"]


def test_a_large_foreach_that_fails_as_a_whole_can_be_retried() -> None:
    numbers = 1_000
    fail = {"type": "SetVariable", "inputs": {"name": "n", "value": "@div(1, variables('n'))"}}
    each = {"type": "Foreach", "foreach": f"@range(0, {numbers})", "actions": {"Fail": fail}}
    init = {"type": "InitializeVariable", "inputs": {"variables": [{"name": "n", "type": "integer", "value": 0}]}}
    result = retried(azure({"Init": init, "Each": {**each, "runAfter": {"Init": ["Succeeded"]}}}))[-1]
    assert (result.status, result.actions["Each"].iterations) == ("Failed", numbers)


def _compose(value: Any) -> Data:
    return {"type": "Compose", "inputs": value}


def _late() -> Data:
    return at("@item()", runAfter={"Text": ["Succeeded"]})


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


def stored_text(document: Data, limits: Limits) -> str:
    """A document as it was stored_text before its count was an error."""
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
    text = stored_text(again(type="fixed", count=5_000), Limits())
    policy = compiled(text).nodes[1].retry
    assert policy is not None


def test_the_count_of_a_stored_document_is_capped(failing: Failing) -> None:
    flow = flow_of(stored_text(again(type="fixed", count=50), Limits(max_iterations=4)))
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

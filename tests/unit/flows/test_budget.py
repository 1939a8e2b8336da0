"""Budgets of actions and bursts: counted in units, kept by the rules of a run, the same wherever a tick is reduced."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from loom.core.records import EventRecord
from loom.core.run import Patience, Run, TooCostly
from loom.core.state import BrokerState
from loom.core.ticks import TickStartRun, TickTimerFired
from loom.flows.calls import START_KIND, FlowStart
from loom.flows.compiler import load_program
from loom.flows.outcomes import OVER_BUDGET
from loom.flows.planner import FlowPlanner, flow_config
from loom.flows.rules import ACTIONS_HAVE_BUDGETS, RETRIES_GO_ON

LARGE = "@length(string(range(1, 100000)))"
"""About 8 million units."""


def flow(**actions: Any) -> FlowPlanner:
    return FlowPlanner(load_program({"actions": actions}, name="f"))


def compose(inputs: Any) -> dict[str, Any]:
    return {"type": "Compose", "inputs": inputs}


def start(planner: FlowPlanner, rules: int = ACTIONS_HAVE_BUDGETS) -> TickStartRun:
    config = flow_config(planner.program)
    config = replace(config, program=replace(config.program, rules=rules))
    return TickStartRun(at=1.0, run_id="r", config=config, event=EventRecord(START_KIND, FlowStart()))


def finished(planner: FlowPlanner, rules: int = ACTIONS_HAVE_BUDGETS) -> tuple[BrokerState, int]:
    """The state at the end, and how many ticks it took: the walk's own timers are fired."""
    run, ticks = Run(planner), 1
    run.feed(start(planner, rules))
    assert run.drain()
    while run.state.is_running and run.state.timers:
        ((number, timer),) = run.state.timers.items()
        run.feed(TickTimerFired(at=timer.due, timer=number))
        assert run.drain()
        ticks += 1
    return run.state, ticks


def end_of(state: BrokerState) -> Any:
    assert state.outcome is not None
    event = state.outcome.event
    assert event is not None
    return event.body


def test_the_templates_of_an_action_share_its_budget() -> None:
    state, _ = finished(flow(A=compose([LARGE] * 20)))
    record = end_of(state).actions["A"]
    assert record["code"] == record["error"]["code"] == OVER_BUDGET
    assert "actions.A.inputs[" in record["error"]["message"]


def test_actions_have_budgets_of_their_own_and_the_walk_yields_between_them() -> None:
    state, ticks = finished(flow(**{f"A{number}": compose(LARGE) for number in range(12)}))
    assert end_of(state).status == "Succeeded"
    assert ticks == 13  # the end of the flow comes with one of its own


def test_runs_from_before_have_neither() -> None:
    planner = flow(A=compose([LARGE] * 12), B=compose(LARGE))
    state, ticks = finished(planner, RETRIES_GO_ON)
    assert (end_of(state).status, ticks) == ("Succeeded", 1)


def test_the_conditions_of_loops_and_the_outputs_are_counted_too() -> None:
    many = "".join(f"@{{{LARGE[1:]}}}" for _ in range(20))
    loop = {"type": "Until", "expression": f"@equals('{{}}', concat({', '.join([LARGE[1:]] * 20)}))", "actions": {}}
    state, _ = finished(flow(L=loop))
    assert end_of(state).actions["L"]["error"]["code"] == OVER_BUDGET
    document = {"actions": {"A": compose(1)}, "outputs": {"o": {"type": "string", "value": many}}}
    state, _ = finished(FlowPlanner(load_program(document, name="f")))
    assert end_of(state).error["code"] == OVER_BUDGET


@pytest.mark.parametrize("kind", ["Select", "Query", "Table"])
def test_elements_are_counted_with_the_calls_for_each(kind: str) -> None:
    calls = "add(add(add(add(add(add(add(add(item(), 1), 1), 1), 1), 1), 1), 1), 1)"
    inputs = {
        "Select": {"from": "@range(1, 100000)", "select": f"@{calls}"},
        "Query": {"from": "@range(1, 100000)", "where": f"@greater({calls}, 0)"},
        "Table": {"from": "@range(1, 100000)", "format": "CSV", "columns": [{"header": "h", "value": f"@{calls}"}]},
    }[kind]
    state, _ = finished(flow(A={"type": kind, "inputs": inputs}))
    assert end_of(state).actions["A"]["error"]["code"] == OVER_BUDGET


def test_a_table_with_a_column_for_each_row() -> None:
    rows = [{f"k{number}": 1} for number in range(2_000)]
    state, _ = finished(flow(A={"type": "Table", "inputs": {"from": rows, "format": "CSV"}}))
    assert end_of(state).actions["A"]["error"]["code"] == OVER_BUDGET


# -- patience ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [RETRIES_GO_ON, ACTIONS_HAVE_BUDGETS])
def test_a_costly_tick_is_left_to_the_driver_and_gives_the_same_elsewhere(rules: int) -> None:
    planner = flow(A=compose(LARGE), B=compose([LARGE, LARGE]))
    patient, other = Run(planner), Run(planner)
    for run in (patient, other):
        run.feed(start(planner, rules))
    assert not patient.drain(1_000_000)
    assert patient.state == BrokerState()
    assert len(patient.pending) == 1
    patient.adopt(patient.detached()())
    assert other.drain()
    assert patient.state == other.state
    assert patient.flush() == other.flush()


def test_ticks_before_a_costly_one_are_reduced_once() -> None:
    wait = {"type": "wait", "inputs": {"interval": {"count": 5, "unit": "Second"}}}
    planner = flow(A=compose(1), W=wait, B=compose(LARGE))
    run, whole = Run(planner), Run(planner)
    for each in (run, whole):
        each.feed(start(planner))
        assert each.drain(1_000_000)
        ((number, timer),) = each.state.timers.items()
        each.feed(TickTimerFired(at=timer.due, timer=number))
    assert not run.drain(1_000_000)
    assert run.state.ticks == 1
    run.adopt(run.detached()())
    assert whole.drain()
    assert (run.state, run.flush()) == (whole.state, whole.flush())


def test_patience_is_for_all_ticks_of_a_drain() -> None:
    planner = flow(A=compose(LARGE))
    config = start(planner).config
    plan, event = planner.start(config, "r", 1), EventRecord(START_KIND, FlowStart())
    with Patience(100), pytest.raises(TooCostly):
        planner.on_event(config, plan, event, None, None, frozenset(), 1.0)

"""The rules of a flow's state: a sound one keeps them, and each kind of damage is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from loom.core.persistent import Map
from loom.core.records import EventRecord
from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import TickStartRun
from loom.flows.calls import START_KIND, FlowStart
from loom.flows.invariants import flow_violations, leftovers
from loom.flows.planner import FlowPlanner, flow_config
from loom.flows.state import FlowPlan, Frame
from loom.runtime.flow import load

REST = {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}}
CALL = {"type": "activity", "inputs": {"activityType": "work"}}
EACH = {"type": "foreach", "items": "@range(0, 3)", "actions": {"rest": REST}}
LOOP = {"type": "doUntil", "condition": "false", "actions": {"call": CALL, "behind": {"type": "compose", "inputs": 1}}}
PROGRAM = load({"actions": {"both": {"type": "parallel", "actions": {"each": EACH, "loop": LOOP}}}}, name="f").program


def under_way() -> BrokerState:
    """A flow in a loop, in a foreach, in a call and in a wait."""
    run = Run(FlowPlanner(PROGRAM))
    event = EventRecord(START_KIND, FlowStart())
    run.feed(TickStartRun(at=1.0, run_id="r", config=flow_config(PROGRAM), event=event))
    run.drain()
    return run.state


def test_a_sound_state_breaks_no_rule() -> None:
    state = under_way()
    assert len(state.plan.waits) == 2
    assert flow_violations(state, PROGRAM) == []
    assert flow_violations(BrokerState(), PROGRAM) == []


def _frame(plan: FlowPlan, **changes: object) -> FlowPlan:
    [inner] = [frame for frame in plan.frames.values() if frame.loop in plan.loops]
    return replace(plan, frames=plan.frames.set(inner.id, replace(inner, **changes)))


DAMAGE: dict[str, tuple[Callable[[FlowPlan], FlowPlan], str]] = {
    "a wait is lost": (lambda plan: replace(plan, waits=Map()), "can go on in 0 ways"),
    "a count is wrong": (lambda plan: _frame(plan, left=5), "left is 5, but 2 actions"),
    "a frame is lost": (lambda plan: replace(plan, frames=plan.frames.delete(1)), "a frame that is gone"),
    "a loop is lost": (lambda plan: replace(plan, loops=Map()), "belongs to loop"),
    "a foreach is lost": (lambda plan: replace(plan, eaches=Map()), "belongs to loop"),
    "inputs are lost": (lambda plan: _frame(plan, inputs=Map()), "their inputs do not match"),
    "something is done twice": (lambda plan: replace(plan, agenda=((0, 1, 0),), yielding=True), "in 2 ways"),
    "the agenda is forgotten": (lambda plan: replace(plan, agenda=((1, 1, 0),)), "nothing will work them off"),
    "the agenda is out of date": (lambda plan: replace(plan, agenda=((2, 99, 0),), yielding=True), "that is gone"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_told(what: str) -> None:
    damage, words = DAMAGE[what]
    state = under_way()
    found = flow_violations(replace(state, plan=damage(state.plan)), PROGRAM)
    assert any(words in problem for problem in found), found


def test_what_is_left_at_the_end_is_told() -> None:
    plan = under_way().plan
    found = leftovers(plan)
    assert {text.partition(" ")[0] for text in found} == {"frame", "loop", "foreach", "wait", "actions"}
    assert leftovers(FlowPlan(frames=Map({1: Frame(1, 0, -1, 1, 0, 0, 0.0)}))) == []

"""Invariants of a flow's state. Tests and simulations check them after every tick.

A flow hangs if an action is forgotten, and ends wrongly if one is remembered twice. So each unfinished action must have
exactly one way to go on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from loom.flows.state import ENDED, ENTER, NEXT, YIELD, FlowPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.state import BrokerState
    from loom.flows.program import Program


def flow_violations(state: BrokerState, program: Program) -> list[str]:
    """List every rule that the state of a flow's run breaks, in words; empty for a sound state."""
    plan = state.plan
    if not isinstance(plan, FlowPlan) or not state.is_running or not plan.ids:
        return []
    return [*_of_frames(plan, program), *_of_loops(plan), *_of_waits(plan, state), *_of_agenda(plan)]


def leftovers(plan: FlowPlan) -> list[str]:
    """List what is left when a flow has come to its end by itself. Only its top level should be."""
    found = [f"frame {number}" for number in sorted(plan.frames) if number != 1]
    for kind, states in (("loop", plan.loops), ("foreach", plan.eaches), ("wait", plan.waits)):
        found += [f"{kind} {number}" for number in sorted(states)]
    top = plan.frames.get(1)
    if top is not None and (top.left or top.entered or top.inputs):
        found.append("actions under way at the top level")
    return found


def _of_frames(plan: FlowPlan, program: Program) -> Iterator[str]:
    will_go_on = _continuations(plan, program)
    for frame in plan.frames.values():
        where = f"frame {frame.id}"
        if frame.scope not in plan.frames or (frame.parent >= 0 and frame.parent not in plan.frames):
            yield f"{where}: it stands in a frame that is gone"
            continue
        records = plan.frames[frame.scope].records
        nodes = program.blocks[frame.block].nodes
        unfinished = [index for index in nodes if index not in records]
        if len(unfinished) != frame.left:
            yield f"{where}: left is {frame.left}, but {len(unfinished)} actions have not ended"
        if set(frame.entered) != set(frame.inputs):
            yield f"{where}: the actions under way and their inputs do not match"
        if any(index in records for index in frame.entered):
            yield f"{where}: an action is under way that has ended"
        for index in unfinished:
            waits_for = any(before not in records for before, _ in program.nodes[index].after)
            ways = will_go_on[frame.id, index] + waits_for
            if ways != 1:
                yield f"{where}: '{program.nodes[index].name}' can go on in {ways} ways"
        if not unfinished and not any(kind == ENDED and first == frame.id for kind, first, _ in plan.agenda):
            yield f"{where}: all its actions have ended, but nobody will end it"


def _continuations(plan: FlowPlan, program: Program) -> Counter[tuple[int, int]]:
    """Count the ways in which each unfinished action will go on, by frame and action."""
    ways: Counter[tuple[int, int]] = Counter()
    for kind, first, second in plan.agenda:
        if kind == ENTER:
            ways[first, second] += 1
    for waiting in plan.waits.values():
        if waiting.purpose != "delay":
            ways[waiting.frame, waiting.node] += 1
    for frame in plan.frames.values():
        owner = program.blocks[frame.block].owner
        if owner >= 0 and frame.loop < 0:
            ways[frame.parent, owner] += 1
    for loop in (*plan.loops.values(), *plan.eaches.values()):
        ways[loop.frame, loop.node] += 1
    return ways


def _of_loops(plan: FlowPlan) -> Iterator[str]:
    iterations = Counter(frame.loop for frame in plan.frames.values() if frame.loop >= 0)
    delays = Counter(waiting.frame for waiting in plan.waits.values() if waiting.purpose == "delay")
    nexts = Counter(first for kind, first, _ in plan.agenda if kind == NEXT)
    for number in plan.loops:
        ways = iterations[number] + delays[number] + nexts[number]
        if ways != 1:
            yield f"loop {number} goes on in {ways} ways"
    for number, each in plan.eaches.items():
        if iterations[number] != each.running:
            yield f"foreach {number}: running is {each.running}, but {iterations[number]} iterations are under way"
        if not 0 < each.running <= each.width or each.next > len(each.items):
            yield f"foreach {number}: {each.running} of {each.width} run, the next is {each.next} of {len(each.items)}"
    known = {*plan.loops, *plan.eaches}
    for number in {*iterations, *delays, *nexts} - known:
        yield f"something belongs to loop {number}, which is gone"


def _of_waits(plan: FlowPlan, state: BrokerState) -> Iterator[str]:
    calls = {mark for mark, waiting in plan.waits.items() if waiting.purpose == "call"}
    items = [item.extra for worker in state.workers.values() for item in (*worker.queue, *worker.delayed.values())]
    for worker in state.workers.values():
        items += [e.item.extra for e in (*worker.in_progress.values(), *worker.suspended.values())]
    if Counter(items) != Counter(calls):
        yield f"calls under way are {sorted(items)}, but the flow waits for {sorted(calls)}"
    timed = [mark for mark, waiting in plan.waits.items() if waiting.due is not None] + [YIELD] * plan.yielding
    armed = [timer.ref for timer in state.timers.values() if timer.purpose == "plan"] + list(state.due)
    if Counter(armed) != Counter(timed):
        yield f"timers are set for {sorted(armed)}, but the flow waits for {sorted(timed)}"
    if any((waiting.purpose == "call") is not (waiting.due is None) for waiting in plan.waits.values()):
        yield "a wait has no end, or a call has one"


def _of_agenda(plan: FlowPlan) -> Iterator[str]:
    if plan.agenda and not plan.yielding:
        yield f"{len(plan.agenda)} entries are on the agenda, and nothing will work them off"
    if any(first not in (plan.loops if kind == NEXT else plan.frames) for kind, first, _ in plan.agenda):
        yield "the agenda names something that is gone"

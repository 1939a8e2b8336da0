"""Many children of one execution, and children that outlive the execution that began them: hand-made activations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_made import HandMade, WorkerStub, code_of, inbox_signal, kinds, task_of
from msgspec.structs import replace
from sewing import Piece, Sewing, child_started, resolved, source_of

from loom.core.ticks import TickCancelRun, TickChildEnded, TickLeaveStep, TickStartChild
from loom.temporal import names
from loom.temporal.payloads import StartArgument, value_of
from loom.temporal.workflow.flush import ended_from_outside
from loom.temporal.workflow.policy import POLICIES

WIDE = replace(POLICIES[-1], window=5_000)
NARROW = replace(POLICIES[-1], window=3)
SERVERS_LIMIT = 2_000
"""How many requests to cancel other executions a server takes before it has carried them out."""


@pytest.fixture
def code():
    return code_of(Sewing(timeout=None))


def begin_children(run, count, start="[1,{}]"):
    """Let the first body start children and leave; the commands that begin them."""
    (cut,) = run.start()
    work = task_of(cut).command
    starts = [
        TickStartChild(at=0.0, source=source_of(cut, n), occurrence=n, workflow="other", start=start)
        for n in range(count)
    ]
    pending = tuple(f"child:{n}" for n in range(count))
    leave = TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=pending)
    return run.activate(run.reported(cut, *starts, leave))


def first_child(run):
    """The number of the oldest child that the run knows."""
    return min(run.host.core.state.children)


def child_over(start):
    """The job of a child whose execution has closed. It has told its parent itself."""
    job = resolved("resolve_child_workflow_execution", start.start_child_workflow_execution.seq)
    job.resolve_child_workflow_execution.result.completed.SetInParent()
    return job


def next_execution(run, commands):
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    argument = value_of(commands[0].continue_as_new_workflow_execution.arguments[0], StartArgument)
    return HandMade(run.code, argument, around=run.around, continued_run_id="execution-1")


def ids(commands):
    """The children that are begun, or asked to end."""
    return [
        command.start_child_workflow_execution.workflow_id
        if command.HasField("start_child_workflow_execution")
        else command.request_cancel_external_workflow_execution.workflow_execution.workflow_id
        for command in commands
    ]


def heard(request, *, fails=False):
    number = request.request_cancel_external_workflow_execution.seq
    job = resolved("resolve_request_cancel_external_workflow", number)
    if fails:
        job.resolve_request_cancel_external_workflow.failure.message = "there is no such run"
    return job


# -- very many cancels ------------------------------------------------------------------------------------------------


def cancel_all(run, *jobs, fails=False):
    """Cancel the run, and let the server carry out its requests one by one, the oldest first.

    Gives the children that were asked, in order, how many requests were under way at most, and the last commands.
    """
    commands = run.activate(*jobs, inbox_signal(TickCancelRun(at=0.0)))
    under_way, asked, most = list(commands), ids(commands), len(commands)
    while under_way and set(kinds(commands)) <= {"request_cancel_external_workflow_execution"}:
        commands = run.activate(heard(under_way.pop(0), fails=fails))
        if "cancel_workflow_execution" in kinds(commands):
            break
        under_way += commands
        asked += ids(commands)
        most = max(most, len(under_way))
    return asked, most, commands


@pytest.mark.parametrize("count", [SERVERS_LIMIT, SERVERS_LIMIT + 1, SERVERS_LIMIT + 100])
def test_no_more_cancels_are_under_way_than_the_server_takes(code, count):
    run = HandMade(code, around=WorkerStub((WIDE,)))
    children = begin_children(run, count)
    run.activate(*(child_started(each) for each in children))
    asked, most, last = cancel_all(run)
    assert asked == ids(children), "each is asked once, in order"
    assert most == SERVERS_LIMIT
    assert kinds(last) == ["modify_workflow_properties", "cancel_workflow_execution"]


def test_as_many_cancels_as_the_server_takes_leave_with_one_task_as_ever(code):
    """Histories with so many in one task exist: they must not be split otherwise than they were."""
    run = HandMade(code, around=WorkerStub((WIDE,)))
    children = begin_children(run, SERVERS_LIMIT)
    run.activate(*(child_started(each) for each in children))
    assert len(run.activate(inbox_signal(TickCancelRun(at=0.0)))) == SERVERS_LIMIT


def test_children_that_are_asked_again_count_too(code):
    """The requests reach children that have not begun, so each of them is asked a second time."""
    run = HandMade(code, around=WorkerStub((WIDE,)))
    children = begin_children(run, SERVERS_LIMIT + 50)
    begun, late = children[:-40], children[-40:]
    run.activate(*(child_started(each) for each in begun))
    first = run.activate(inbox_signal(TickCancelRun(at=0.0)))
    assert len(first) == SERVERS_LIMIT
    under_way = list(first)
    for _ in range(60):  # the rest of the requests leave
        under_way += run.activate(heard(under_way.pop(0)))
    assert ids(under_way)[-40:] == ids(late)
    lost = under_way[-40:]
    del under_way[-40:]
    assert run.activate(*(heard(each, fails=True) for each in lost)) == []
    again = run.activate(*(child_started(each) for each in late))
    assert ids(again) == ids(late)
    assert len(under_way) + len(again) <= SERVERS_LIMIT


# -- children that had no room yet ------------------------------------------------------------------------------------


def test_children_that_wait_for_room_begin_in_the_next_execution(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    begun = begin_children(run, 5)
    assert len(begun) == 3
    run.suggested = True
    after = next_execution(run, run.activate(*(child_started(each) for each in begun)))
    others = after.start()
    assert kinds(others) == ["start_child_workflow_execution"] * 2
    known = {child.run_id for child in after.host.core.state.children.values()}
    assert set(ids(begun) + ids(others)) == known


def test_a_child_that_waits_for_room_and_is_not_wanted_any_more_never_begins(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    begun = begin_children(run, 5)
    run.suggested = True
    after = next_execution(run, run.activate(*(child_started(each) for each in begun)))
    asked = after.start(inbox_signal(TickCancelRun(at=0.0)))
    assert kinds(asked) == ["request_cancel_external_workflow_execution"] * 3
    assert ids(asked) == ids(begun)


def test_children_whose_inputs_are_too_much_to_be_carried_wait_here_and_hold_up_nothing(code):
    run = HandMade(code, around=WorkerStub((replace(NARROW, carried=20_000),)))
    begun = begin_children(run, 5, start="x" * 20_000)
    run.suggested = True
    assert run.activate(*(child_started(each) for each in begun)) == []
    ended = TickChildEnded(at=0.0, child=first_child(run), status="failed")
    commands = run.activate(inbox_signal(ended), child_over(begun[0]))
    assert kinds(commands) == ["start_child_workflow_execution"], "the one that has left makes room for another"


# -- children that began before ---------------------------------------------------------------------------------------


def gone_on(code, count=2):
    """An execution that has gone on from one with children, and the children that are begun."""
    run = HandMade(code)
    begun = begin_children(run, count)
    run.suggested = True
    return next_execution(run, run.activate(*(child_started(each) for each in begun))), begun


def test_children_of_an_earlier_execution_are_named_once_to_the_worker(code):
    after, begun = gone_on(code)
    after.start()
    after.activate(after.event(Piece()))
    [(parent, children)] = after.around.children
    assert parent == "run-1"
    assert list(children.values()) == ids(begun)
    assert set(children) == set(after.host.core.state.children)


def test_the_server_tells_of_children_of_this_execution_so_they_are_not_named(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    begun = begin_children(run, 5)
    run.suggested = True
    after = next_execution(run, run.activate(*(child_started(each) for each in begun)))
    assert run.around.children == []
    others = after.start()
    assert len(others) == 2
    [(_, children)] = after.around.children
    assert list(children.values()) == ids(begun)


def test_a_replay_names_nothing_and_a_query_after_it_does(code):
    after, begun = gone_on(code)
    after.replaying = True
    after.start()
    assert after.around.children == []
    after.ask(names.QUERY_ROW)
    [(_, children)] = after.around.children
    assert list(children.values()) == ids(begun)


def test_a_run_that_is_over_names_nothing(code):
    after, _ = gone_on(code)
    after.start(inbox_signal(TickCancelRun(at=0.0)))
    assert after.around.children == []


def test_a_parent_may_hear_of_the_end_of_a_child_more_than_once(code):
    """Several workers may tell it, and the child itself may have."""
    after, _ = gone_on(code, count=1)
    after.start()
    [(_, children)] = after.around.children
    [(number, run_id)] = children.items()
    ended = TickChildEnded(at=0.0, child=number, status="failed", failure=ended_from_outside(run_id, "by hand"))
    (again,) = after.activate(inbox_signal(ended), inbox_signal(ended))
    assert "by hand" in task_of(again).answers["child:0"].child.failure.message
    assert after.activate(inbox_signal(ended)) == []

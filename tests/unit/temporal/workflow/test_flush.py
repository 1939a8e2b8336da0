"""How a flush is split, and how a run goes on in a new execution: hand-made activations, budgets of a few bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_made import (
    START,
    HandMade,
    WorkerStub,
    argument_of,
    code_of,
    inbox_signal,
    kinds,
    step_result,
    task_of,
    timer_fired,
)
from msgspec.structs import replace

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.commands import CommandRunWorker
from loom.core.persistent import EMPTY_MAP
from loom.core.records import EventKind, EventRecord
from loom.core.state import WorkItem
from loom.core.ticks import Source, TickAddEvent, TickCancelRun, TickLeaveStep, TickParkRun, TickSleep, TickStartChild
from loom.store import codec
from loom.store.records import RunRow
from loom.temporal import names
from loom.temporal.bridge import activations, messages
from loom.temporal.payloads import (
    MAX_PAYLOAD,
    ChunkQuery,
    Chunks,
    Effects,
    Ending,
    StartArgument,
    StepTask,
    payload_of,
    value_of,
)
from loom.temporal.settings import ActivityOptions
from loom.temporal.workflow.commands import ExecutionPlace, OutgoingCommands
from loom.temporal.workflow.flush import rejected
from loom.temporal.workflow.policy import FLAG_BASE, POLICIES, Policy, flag_of, recorded_row

SMALL = Policy(budget=2_000, window=1_000, drain_events=1_000, force_events=2_000)
NARROW = Policy(budget=1_500_000, window=3, drain_events=1_000, force_events=2_000)
ROOMY = Policy(budget=1_500_000, window=1_000, drain_events=1_000, force_events=2_000, carried=1_500_000)


class Piece(Event):
    n: int
    text: str = ""


class Spread(Workflow):
    """Many pieces at once."""

    @step
    async def cut(self, ctx: Context, ev: StartEvent) -> Piece | None:
        return None

    @step(num_workers=10_000)
    async def sew(self, ev: Piece) -> StopEvent | None:
        return None


@pytest.fixture
def code():
    return code_of(Spread(timeout=None))


def spread(run, number, text="", begin=None):
    """The first step has sent so many pieces."""
    (cut,) = begin or run.start()
    work = task_of(cut).command
    record = run.code.codec.record
    sent = [
        TickAddEvent(at=0.0, event=record(Piece(n=n, text=text)), source=Source(work.step, work.item.id, work.seq, n))
        for n in range(number)
    ]
    return run.activate(run.reported(cut, *sent, step_result(task_of(cut))))


def numbers(commands):
    return [task_of(c).command.seq for c in commands if c.HasField("schedule_activity")]


def test_what_is_over_the_budget_waits_behind_a_fence_in_its_order(code):
    run = HandMade(code, around=WorkerStub((SMALL,)))
    seen, commands, fences = [], spread(run, 20), 0
    while True:
        steps = [c for c in commands if c.HasField("schedule_activity")]
        assert sum(c.ByteSize() + 64 for c in steps) <= SMALL.budget
        seen += numbers(commands)
        if not commands or not commands[-1].HasField("start_timer"):
            break
        fences += 1
        assert commands[-1].start_timer.start_to_fire_timeout.nanos == 1_000_000
        commands = run.activate(timer_fired(commands[-1]))
    assert seen == sorted(seen)
    assert len(seen) == 20
    assert fences >= 4


def test_one_command_always_passes(code):
    run = HandMade(code, around=WorkerStub((replace(SMALL, budget=10),)))
    commands = spread(run, 3, text="x" * 5_000)
    assert kinds(commands) == ["schedule_activity", "start_timer"]


def test_the_budget_is_that_of_a_task_and_not_of_an_activation(code):
    run = HandMade(code, around=WorkerStub((SMALL,)))
    commands = spread(run, 20)
    sent = len(numbers(commands))
    more = run.activate(timer_fired(commands[-1]), same_task=True)
    assert numbers(more) == [], "the task has no room left"
    assert kinds(more) == ["start_timer"]
    after = run.activate(timer_fired(more[-1]))
    assert len(numbers(after)) == sent


def test_nothing_leaves_while_the_fence_stands_but_answers_do(code):
    run = HandMade(code, around=WorkerStub((SMALL,)))
    commands = spread(run, 20)
    assert run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece(n=99))))) == []
    job = activations.WorkflowActivationJob()
    job.do_update.protocol_instance_id = "u"
    job.do_update.name = "unknown"
    assert kinds(run.activate(job)) == ["update_response"]
    assert numbers(run.activate(timer_fired(commands[-1])))


def test_the_borders_are_the_same_on_a_replay_and_with_another_table(code):
    def borders(around, **given):
        run = HandMade(code, around=around, **given)
        commands, found = spread(run, 12), []
        while commands and commands[-1].HasField("start_timer"):
            found.append(numbers(commands))
            commands = run.activate(timer_fired(commands[-1]))
        return [*found, numbers(commands)]

    live = borders(WorkerStub((SMALL,)))
    assert len(live) > 2
    newer = WorkerStub((SMALL, ROOMY))
    assert borders(newer, replaying=True, flags=(flag_of(0),)) == live
    assert borders(newer) != live, "a new run takes the newest row"


@pytest.mark.parametrize("budget", range(1_300, 2_100, 20))
def test_how_activities_are_configured_has_no_part_in_the_borders(code, budget):
    def borders(options):
        around = WorkerStub((replace(SMALL, budget=budget),))
        around.options = options
        run = HandMade(code, around=around)
        return numbers(spread(run, 12))

    slow = ActivityOptions(heartbeat_timeout=98_765.4321, retry_interval=0.123456)
    assert borders(slow) == borders(ActivityOptions(heartbeat_timeout=1.0))


def test_a_row_that_is_too_new_is_refused():
    assert recorded_row([1, 2, FLAG_BASE]) == 0
    assert recorded_row([1, 2]) is None
    with pytest.raises(ValueError, match="policy 9"):
        recorded_row([flag_of(9)])
    assert POLICIES[0].window <= 1_900


def test_the_window_holds_bodies_back_until_others_are_done(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    commands = spread(run, 8)
    assert kinds(commands) == ["schedule_activity"] * 3, "no fence: a result will wake it"
    done = [run.activate(run.reported(c, step_result(task_of(c)))) for c in commands]
    assert [len(numbers(each)) for each in done] == [1, 1, 1]


def test_an_end_drops_what_is_queued_and_closes_last(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    first, *_ = spread(run, 8)
    commands = run.finish(first, StopEvent(result=1))
    assert kinds(commands) == ["complete_workflow_execution"]


def test_the_result_is_built_after_all_ticks_of_its_activation(code):
    run = HandMade(code)
    first, *_ = spread(run, 2)
    job = run.returned(first, StopEvent(result=1))
    late = inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece(n=7))))
    (end,) = run.activate(job, late)
    ending = value_of(end.complete_workflow_execution.result, Ending)
    assert ending.row.head.ticks == run.host.core.state.ticks


def test_a_result_that_the_server_would_refuse_fails_the_run_and_says_why(code):
    run = HandMade(code)
    first, *_ = spread(run, 1)
    (end,) = run.finish(first, StopEvent(result="x" * 2_000_000))
    assert "2 MiB" in end.fail_workflow_execution.failure.message
    details = end.fail_workflow_execution.failure.application_failure_info.details.payloads[0]
    assert value_of(details, Ending).row.head.status == "failed"


# -- going on in a new execution --------------------------------------------------------------------------------------


def continued(commands):
    (argument,) = commands[-1].continue_as_new_workflow_execution.arguments
    return value_of(argument, StartArgument)


def next_execution(run, commands, **given):
    after = HandMade(run.code, continued(commands), around=run.around, continued_run_id="execution-1", **given)
    after.now = run.now + 1
    return after


def test_it_goes_on_elsewhere_when_that_is_suggested_and_nothing_is_under_way(code):
    run = HandMade(code)
    first, second = spread(run, 2)
    run.suggested = True
    assert run.finish(first) == [], "another body is at work"
    commands = run.finish(second)
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    assert commands[0].continue_as_new_workflow_execution.workflow_type == "made"


def test_what_was_queued_begins_in_the_next_execution_and_keeps_its_numbers(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    (cut,) = run.start()
    run.suggested = True
    opened = spread(run, 5, begin=[cut])
    assert kinds(opened) == ["continue_as_new_workflow_execution"]
    after = next_execution(run, opened)
    begun = after.start()
    assert [c.schedule_activity.activity_type for c in begun] == ["sew"] * 3
    assert min(numbers(begun)) > task_of(cut).command.seq
    assert [c.schedule_activity.seq for c in begun] == [1, 2, 3], "Temporal counts anew"


def test_bodies_still_begin_while_others_are_at_work(code):
    run = HandMade(code, around=WorkerStub((NARROW,)))
    first, *_ = spread(run, 5)
    run.suggested = True
    assert len(numbers(run.activate(run.reported(first, step_result(task_of(first)))))) == 1


def test_timers_are_armed_again_from_their_deadlines(code):
    run = HandMade(code)
    (cut,) = run.start()
    work = task_of(cut).command
    sleep = TickSleep(at=0.0, source=Source(work.step, work.item.id, work.seq, 0), occurrence=0, delay_s=100)
    leave = TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=("sleep:0",))
    run.suggested = True
    commands = run.activate(run.reported(cut, sleep, leave))
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    after = next_execution(run, commands)
    (timer,) = after.start()
    assert timer.start_timer.start_to_fire_timeout.seconds == 99
    (again,) = after.activate(timer_fired(timer))
    assert "sleep:0" in task_of(again).answers


def test_the_journal_of_the_next_execution_begins_where_the_last_one_ended(code):
    run = HandMade(code)
    first, *_ = spread(run, 1)
    run.suggested = True
    commands = run.finish(first)
    before = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery())
    after = next_execution(run, commands)
    after.start()
    then = after.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery())
    assert (then.first_tick, then.first_cursor) == (before.ticks, before.events)
    assert then.previous == "execution-1"
    row = after.answer(names.QUERY_ROW, RunRow)
    assert (row.created_at, row.head.ticks) == (START, before.ticks + 1)


def test_a_signal_in_the_closing_task_is_in_the_state_that_is_carried(code):
    run = HandMade(code)
    first, *_ = spread(run, 1)
    run.suggested = True
    event = inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece(n=42)), event_id="late"))
    commands = run.activate(event, run.returned(first))
    after = next_execution(run, commands)
    (again,) = after.start()
    assert code.codec.event(task_of(again).command.item.event).n == 42
    assert after.answer(names.QUERY_SEEN, bool, "late") is True


def test_a_child_run_leaves_before_and_its_start_is_waited_for(code):
    run = HandMade(code)
    (cut,) = run.start()
    work = task_of(cut).command
    child = TickStartChild(
        at=0.0, source=Source(work.step, work.item.id, work.seq, 0), occurrence=0, workflow="other", start="[1,{}]"
    )
    leave = TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=("child:0",))
    run.suggested = True
    (start,) = run.activate(run.reported(cut, child, leave))
    assert start.HasField("start_child_workflow_execution")
    job = activations.WorkflowActivationJob()
    job.resolve_child_workflow_execution_start.seq = start.start_child_workflow_execution.seq
    job.resolve_child_workflow_execution_start.succeeded.run_id = "x"
    commands = run.activate(job)
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    after = next_execution(run, commands)
    after.start()
    assert after.host.core.state.children, "it waits for its child still"


def test_a_parked_run_takes_along_what_it_could_not_take(code):
    run = HandMade(code)
    (cut,) = run.start()
    run.activate(run.reported(cut, TickParkRun(at=0.0, reason="no type")))
    run.suggested = True
    commands = run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece(n=5)))))
    assert len(continued(commands).carried.backlog) == 1
    begun = next_execution(run, commands).start()
    assert [c.schedule_activity.activity_type for c in begun] == ["cut", "sew"], "it is tried again"


def test_a_run_that_is_over_ends_and_does_not_go_on(code):
    run = HandMade(code)
    run.start()
    run.suggested = True
    commands = run.activate(inbox_signal(TickCancelRun(at=0.0)))
    assert kinds(commands) == ["modify_workflow_properties", "cancel_workflow_execution"]


def test_a_long_history_lets_nothing_new_begin_and_a_longer_one_waits_for_nobody(code):
    run = HandMade(code, around=WorkerStub((replace(NARROW, drain_events=100, force_events=200),)))
    first, second, third = spread(run, 8)
    run.history_length = 100
    assert run.activate(run.reported(first, step_result(task_of(first)))) == []
    run.history_length = 200
    commands = run.activate(run.reported(second, step_result(task_of(second))))
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    begun = next_execution(run, commands).start()
    executions = [task_of(c).command.execution for c in begun]
    assert task_of(third).command.execution in executions, "the body at work begins again, as the same execution"


def test_a_state_that_is_too_large_is_no_reason_to_stop_until_the_history_is_full(code):
    around = WorkerStub((Policy(1_500_000, 1_000, drain_events=100, force_events=200, carried=500),))
    run = HandMade(code, around=around)
    first, second = spread(run, 2, text="x" * 600)
    run.suggested = True
    run.finish(first)
    run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece(n=3)))))
    run.history_length = 150
    commands = run.finish(second)
    assert "continue_as_new_workflow_execution" not in kinds(commands)
    run.history_length = 900
    (end,) = run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece(n=3)))))
    assert "too large" in end.fail_workflow_execution.failure.message


def test_a_stored_run_is_recovered_with_its_past(code):
    run = HandMade(code)
    spread(run, 2)
    chunks = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery()).chunks
    row = run.answer(names.QUERY_ROW, RunRow)
    from loom.store.records import StoredRun

    stored = StoredRun(row, b"", None, chunks)
    after = HandMade(code, StartArgument(run.argument.metadata, stored=stored))
    begun = after.start()
    assert [c.schedule_activity.activity_type for c in begun] == ["sew", "sew"]
    whole = after.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery())
    assert whole.first_tick == 0
    assert whole.ticks == row.head.ticks + 1
    assert codec.decode_ticks("run-1", whole.chunks[0])


def test_payloads_have_the_same_bytes_every_time(code):
    argument = argument_of(code, metadata={"tags": {"b": "1", "a": "2"}})
    assert payload_of(argument) == payload_of(value_of(payload_of(argument), StartArgument))
    effects = Effects((TickCancelRun(at=1.0),))
    assert value_of(payload_of(effects), Effects) == effects


@pytest.mark.parametrize(
    ("length", "weight"), [(0, 503), (61, 564), (70, 573), (16_085, 16_588), (16_090, 16_593), (16_100, 16_604)]
)
def test_a_body_weighs_what_it_weighed_when_the_first_histories_were_recorded(length: int, weight: int) -> None:
    """Fields that were added since must not move the border of a flush: the weights are those of version 0.1."""
    item = WorkItem(1, "step", EventRecord(EventKind("m.E"), "x" * length))
    command = CommandRunWorker(5, "step", item, 0, 5, 1.0, EMPTY_MAP, EMPTY_MAP)
    out = OutgoingCommands(ExecutionPlace("ns", "q"), ActivityOptions(), {})
    task = StepTask(command, "run", "wf", {}, None, None, 1.0)
    assert out.weight(out.activity_message("step", "5", task)) == weight


@pytest.mark.parametrize(("more", "leaves"), [(0, True), (1, False)])
def test_what_a_body_begins_with_may_be_as_large_as_when_the_first_histories_were_recorded(
    more: int, leaves: bool
) -> None:
    """A history of version 0.1 may hold a body of just this size: a replay must schedule it too."""
    out = OutgoingCommands(ExecutionPlace("ns", "q"), ActivityOptions(), {})

    def built(length: int) -> tuple[CommandRunWorker, messages.WorkflowCommand]:
        item = WorkItem(1, "step", EventRecord(EventKind("m.E"), "x" * length))
        command = CommandRunWorker(5, "step", item, 0, 5, 1.0, EMPTY_MAP, EMPTY_MAP)
        task = StepTask(command, "run", "wf", {}, None, None, 1.0)
        return command, out.activity_message("step", "5", task)

    fields_since = len(",null,null,null")
    rest = built(1_000_000)[1].schedule_activity.arguments[0].ByteSize() - fields_since - 1_000_000
    command, message = built(MAX_PAYLOAD - rest + more)
    assert (rejected(command, message, 0.0) is None) is leaves

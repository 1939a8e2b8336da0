"""How a run goes on in another execution, and what has no part in a replay: hand-made activations."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_made import HandMade, WorkerStub, argument_of, code_of, inbox_signal, kinds, signal, step_result, task_of
from msgspec.structs import replace
from sewing import FORCED, Piece, Pressing, Sewing, child_of, child_started, effects, resolved, source_of

import loom
from loom.core.ticks import TickAddEvent, TickCancelRun, TickContinueRun, TickParkRun, TickPublishEvent
from loom.runtime.durable.registration import registration_of
from loom.store import codec
from loom.store.records import RunRow, Snapshot, StoredRun
from loom.temporal import names
from loom.temporal.payloads import ChunkQuery, Chunks, CodeView, NewCode, StartArgument, payload_of, value_of


@pytest.fixture
def code():
    return code_of(Sewing(timeout=None))


# -- going on in another execution ------------------------------------------------------------------------------------


def test_even_a_full_history_waits_for_what_other_runs_are_told(code):
    run = HandMade(code, around=WorkerStub((FORCED,)))
    (cut,) = run.start()
    run.history_length = 500
    (start,) = run.activate(run.reported(cut, *child_of(cut)))
    assert start.HasField("start_child_workflow_execution")
    assert kinds(run.activate(child_started(start))) == ["continue_as_new_workflow_execution"]


def test_what_was_held_back_to_go_on_elsewhere_begins_here_if_the_state_has_grown_too_large(code):
    run = HandMade(code, around=WorkerStub((replace(FORCED, drain_events=1_000, force_events=2_000, carried=9_000),)))
    (cut,) = run.start()
    run.suggested = True
    piece = TickAddEvent(at=0.0, event=code.codec.record(Piece(text="small")), source=source_of(cut, 1))
    child, leave = child_of(cut)
    (start,) = run.activate(run.reported(cut, child, piece, leave))
    assert start.HasField("start_child_workflow_execution"), "the step is held back: it would begin elsewhere"
    large = TickAddEvent(at=0.0, event=code.codec.record(Piece(text="x" * 10_000)))
    begun = run.activate(inbox_signal(large))
    assert [c.schedule_activity.activity_type for c in begun] == ["sew", "sew"]


def test_before_the_server_takes_no_more_signals_the_run_goes_on_elsewhere(code):
    run = HandMade(
        code, around=WorkerStub((replace(FORCED, drain_events=5_000, force_events=9_000, force_signals=20),))
    )
    (cut,) = run.start()
    commands = []
    for n in range(20):
        assert not commands
        tick = TickPublishEvent(at=0.0, event=code.codec.record(Piece()), source=source_of(cut, n))
        commands = run.activate(effects(tick))
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    argument = commands[0].continue_as_new_workflow_execution.arguments[0]
    (again,) = HandMade(code, value_of(argument, StartArgument), continued_run_id="execution-1").start()
    assert task_of(again).command.execution == task_of(cut).command.execution
    assert len(task_of(again).command.item.effects) == 20


def test_the_code_at_hand_has_no_part_in_what_goes_on_elsewhere(code):
    def last(at_hand):
        run = HandMade(at_hand, argument_of(code))
        (cut,) = run.start()
        run.suggested = True
        (end,) = run.activate(run.reported(cut, step_result(task_of(cut))))
        return end.continue_as_new_workflow_execution.arguments[0]

    assert last(code) == last(code_of(Pressing(timeout=None)))


def test_the_code_at_hand_has_no_part_in_how_a_stored_run_is_recovered(code):
    run = HandMade(code)
    (cut,) = run.start()
    run.finish(cut, Piece())
    chunks = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery()).chunks
    stored = StoredRun(run.answer(names.QUERY_ROW, RunRow), b"", None, chunks)
    for config in (None, code.config):
        argument = StartArgument(run.argument.metadata, stored=stored, config=config)
        states = []
        for at_hand in (code, code_of(Pressing(timeout=None))):
            after = HandMade(at_hand, argument)
            after.start()
            states.append(codec.encode_state(after.host.core.state))
        assert states[0] == states[1]


def test_a_run_that_was_nowhere_for_a_while_has_the_time_that_it_had_left():
    """A fork of an old run, or one from another store: what has passed since is not its time."""
    code = code_of(Sewing(timeout=60))
    run = HandMade(code)
    timer, _ = run.start()
    assert timer.start_timer.start_to_fire_timeout.seconds == 60
    chunks = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery()).chunks
    row = run.answer(names.QUERY_ROW, RunRow)
    stored = StoredRun(replace(row, head=replace(row.head, downtime=-3600.0)), b"", None, chunks)
    fork = HandMade(code, StartArgument(run.argument.metadata, stored=stored))
    fork.now += 3610.0
    timers = [each.start_timer.start_to_fire_timeout for each in fork.start() if each.HasField("start_timer")]
    assert [timer.seconds for timer in timers] == [50]


def test_code_that_has_not_come_in_goes_along(code):
    new = code_of(Pressing(timeout=None)).config
    run = HandMade(code, around=WorkerStub((FORCED,)))
    run.start()
    assert run.activate(signal(names.SIGNAL_CODE, NewCode(new, 1.0))) == [], "a body is at work"
    run.history_length = 500
    (end,) = run.activate(inbox_signal(TickContinueRun(at=0.0)))
    argument = end.continue_as_new_workflow_execution.arguments[0]
    after = HandMade(code, value_of(argument, StartArgument), continued_run_id="execution-1")
    after.start()
    assert after.host.core.state.config == new


@pytest.mark.parametrize("keeps_timeout", [True, False])
@pytest.mark.parametrize("goes_on", ["here", "elsewhere", "imported", "continued"])
def test_code_that_asks_for_no_timeout_leaves_a_run_its_own(goes_on, keeps_timeout):
    code, new = code_of(Sewing(timeout=60)), code_of(Pressing()).config
    assert new.timeout_s is None
    run = HandMade(code, around=WorkerStub((FORCED,)))
    _, cut = run.start()
    if goes_on == "imported":
        chunks = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery()).chunks
        stored = StoredRun(run.answer(names.QUERY_ROW, RunRow), b"", None, chunks)
        run = HandMade(
            code, StartArgument(run.argument.metadata, stored=stored, config=new, keeps_timeout=keeps_timeout)
        )
        run.start()
    elif goes_on == "continued":
        run.activate(run.reported(cut, TickParkRun(at=0.0, reason="no type")))
        run.activate(inbox_signal(TickContinueRun(at=0.0), config=new, keeps_timeout=keeps_timeout))
    else:
        run.activate(signal(names.SIGNAL_CODE, NewCode(new, 1.0, keeps_timeout)))
        if goes_on == "elsewhere":
            run.history_length = 500
            end = run.activate(inbox_signal(TickContinueRun(at=0.0)))[-1]
            argument = end.continue_as_new_workflow_execution.arguments[0]
            run = HandMade(code, value_of(argument, StartArgument), continued_run_id="execution-1")
            run.start()
        else:
            run.finish(cut, Piece())
    state = run.host.core.state
    assert state.config == replace(new, timeout_s=60.0 if keeps_timeout else None)
    assert state.deadline is not None, "it was armed when the run began"


def test_runs_are_counted_once_and_not_by_a_replay(code):
    for replaying in (False, True):
        run = HandMade(code, replaying=replaying)
        (cut,) = run.start()
        run.activate(run.reported(cut, TickParkRun(at=0.0, reason="no type")))
        run.activate(inbox_signal(TickContinueRun(at=0.0)))
        run.activate(inbox_signal(TickCancelRun(at=0.0)))
        assert run.around.counts == ([] if replaying else ["started", "parked", "cancelled"])


def test_a_flow_keeps_what_it_began_with_in_the_next_execution_too():
    shouts = {"type": "Activity", "inputs": {"activityType": "shout"}, "runAfter": {}}
    flow, other = (
        registration_of("made", loom.load({"definition": {"actions": {name: shouts}}}, name="made")) for name in "AB"
    )
    run = HandMade(flow, around=WorkerStub((FORCED,)))
    run.start()
    run.activate(signal(names.SIGNAL_CODE, NewCode(other.config, 1.0)))
    run.history_length = 500
    (end,) = run.activate(inbox_signal(TickContinueRun(at=0.0)))
    argument = end.continue_as_new_workflow_execution.arguments[0]
    after = HandMade(flow, value_of(argument, StartArgument), continued_run_id="execution-1")
    after.start()
    assert not after.host.is_parked
    assert after.host.core.state.config == flow.config


def test_poison_stays_parked_in_the_next_execution_until_it_is_continued(code):
    run = HandMade(code, around=WorkerStub((FORCED,)))
    (cut,) = run.start()
    run.activate(run.reported(cut, TickParkRun(at=0.0, reason="poison: 5 workers have died")))
    run.history_length = 500
    piece = TickAddEvent(at=0.0, event=code.codec.record(Piece()))
    (end,) = run.activate(inbox_signal(piece))
    argument = end.continue_as_new_workflow_execution.arguments[0]
    after = HandMade(code, value_of(argument, StartArgument), continued_run_id="execution-1")
    assert after.start() == []
    assert after.host.is_poison
    begun = after.activate(inbox_signal(TickContinueRun(at=0.0)))
    assert [c.schedule_activity.activity_type for c in begun] == ["cut", "sew"], "what came meanwhile is there too"


def test_whoever_continues_a_parked_run_without_code_does_not_keep_out_what_was_sent(code):
    new = code_of(Pressing(timeout=None)).config
    run = HandMade(code)
    (cut,) = run.start()
    (sew,) = run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece()))))
    run.activate(signal(names.SIGNAL_CODE, NewCode(new, 1.0)))
    run.activate(run.reported(cut, TickParkRun(at=0.0, reason="no type")))
    run.activate(inbox_signal(TickContinueRun(at=0.0)))
    run.finish(sew)
    assert run.host.core.state.config == new


def test_a_run_that_was_ended_from_outside_is_recovered_where_it_was(code):
    run = HandMade(code)
    (cut,) = run.start()
    state = codec.encode_state(run.host.core.state)
    row = run.answer(names.QUERY_ROW, RunRow)
    stored = StoredRun(replace(row, head=replace(row.head, status="failed")), b"", Snapshot(row.head.ticks, state), ())
    (again,) = HandMade(
        code, StartArgument(run.argument.metadata, config=code.config, stored=stored, retry=True)
    ).start()
    assert task_of(again).command.execution == task_of(cut).command.execution


# -- replay -----------------------------------------------------------------------------------------------------------


def test_what_was_said_on_a_replay_is_not_said_again_afterwards(code, caplog):
    run = HandMade(code, around=WorkerStub((replace(FORCED, carried=10, drain_events=10_000, force_events=20_000),)))
    run.replaying = True
    (cut,) = run.start()
    run.suggested = True
    run.finish(cut, Piece())
    (again,) = run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece()))))
    run.replaying = False
    caplog.clear()
    run.activate(run.returned(again))
    assert "bytes" not in caplog.text


def test_what_came_before_the_code_is_of_the_time_of_the_beginning(code):
    run = HandMade(code, argument_of(code, config=None))
    (ask,) = run.start(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece()))))
    run.now += 10
    job = resolved("resolve_activity", ask.schedule_activity.seq)
    job.resolve_activity.result.completed.result.CopyFrom(payload_of(CodeView(code.config)))
    run.activate(job)
    times = [
        tick.at
        for chunk in run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery()).chunks
        for tick in codec.decode_ticks("r", chunk)
    ]
    assert times == sorted(times)


def test_the_kind_of_an_activitys_failure_is_that_of_its_cause(code):
    run = HandMade(code)
    (cut,) = run.start()
    job = resolved("resolve_activity", cut.schedule_activity.seq)
    failure = job.resolve_activity.result.failed.failure
    failure.message = "Activity task failed"
    failure.activity_failure_info.SetInParent()
    failure.cause.message = "too much"
    failure.cause.application_failure_info.type = "PayloadsTooLarge"
    (end,) = run.activate(job)
    assert end.fail_workflow_execution.failure.application_failure_info.type == "temporal.PayloadsTooLarge"

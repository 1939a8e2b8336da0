"""What an execution does at the server's limits, and with what it was not made for: hand-made activations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_made import (
    HandMade,
    WorkerStub,
    argument_of,
    code_of,
    foreign_signal,
    inbox_signal,
    kinds,
    step_result,
    task_of,
)
from msgspec.structs import replace
from sewing import FORCED, LIMIT, Piece, Sewing, child_of, child_started, effects, resolved, source_of
from temporalio.api.enums.v1 import CommandType

from loom import Event, StopEvent
from loom.core.ticks import TickAddEvent, TickCancelRun, TickEditStore, TickPublishEvent
from loom.store import codec
from loom.store.records import RunRow
from loom.temporal import names
from loom.temporal.bridge import activations
from loom.temporal.payloads import (
    ChunkQuery,
    Chunks,
    CodeView,
    Ending,
    RunMessage,
    StartArgument,
    StoreView,
    payload_of,
    value_of,
)
from loom.temporal.workflow.policy import FLAG_BASE, KEEPS_MESSAGES


@pytest.fixture
def code():
    return code_of(Sewing(timeout=None))


# -- what is too large for one command --------------------------------------------------------------------------------


def test_a_step_whose_input_the_server_would_refuse_fails_and_is_not_sent(code):
    run = HandMade(code)
    (cut,) = run.start()
    (end,) = run.finish(cut, Piece(text="x" * LIMIT))
    ending = value_of(end.fail_workflow_execution.failure.application_failure_info.details.payloads[0], Ending)
    assert "sew" in ending.row.head.error
    assert "2 MiB" in ending.row.head.error


def test_a_child_whose_start_the_server_would_refuse_has_failed(code):
    run = HandMade(code)
    (cut,) = run.start()
    (again,) = run.activate(run.reported(cut, *child_of(cut, start='"' * (LIMIT // 2 + 1))))
    end = task_of(again).answers["child:0"].child
    assert end.status == "failed"
    assert "2 MiB" in end.failure.message


def test_a_refused_child_is_in_the_state_that_goes_on_elsewhere(code):
    run = HandMade(code)
    (cut,) = run.start()
    run.suggested = True
    commands = run.activate(run.reported(cut, *child_of(cut, start="x" * LIMIT)))
    assert kinds(commands) == ["continue_as_new_workflow_execution"]
    argument = commands[0].continue_as_new_workflow_execution.arguments[0]
    (again,) = HandMade(code, value_of(argument, StartArgument), continued_run_id="execution-1").start()
    assert task_of(again).answers["child:0"].child.status == "failed"


def test_a_child_whose_result_is_too_large_tells_its_parent_that_it_failed(code):
    argument = argument_of(code, metadata={"parent": "above", "parent_ref": 7})
    run = HandMade(code, argument)
    (cut,) = run.start()
    (told,) = run.finish(cut, StopEvent(result="x" * LIMIT))
    (payload,) = told.signal_external_workflow_execution.args
    tick = value_of(payload, RunMessage).tick
    assert (tick.status, tick.failure.type) == ("failed", "loom.ResultTooLarge")
    (end,) = run.activate(resolved("resolve_signal_external_workflow", 1))
    assert "2 MiB" in end.fail_workflow_execution.failure.message


def read_all(run, query):
    """The journal as a reader gets it, by tick or by cursor, each answer within the limit."""
    position, found = 0, []
    while True:
        asked = replace(query, first_tick=position) if query.cursor is None else replace(query, cursor=position)
        answer = run.ask(names.QUERY_CHUNKS, asked).succeeded.response
        assert answer.ByteSize() < LIMIT
        part = value_of(answer, Chunks)
        found += part.chunks
        last = part.chunks[-1]
        position = last.first_tick + last.ticks if query.cursor is None else last.first_cursor + last.events
        if position >= (part.ticks if query.cursor is None else part.events):
            return found


@pytest.mark.parametrize("query", [ChunkQuery(), ChunkQuery(cursor=0)])
def test_a_part_of_the_journal_that_is_too_large_for_an_answer_is_told_in_pieces(code, query):
    run = HandMade(code)
    (cut,) = run.start()
    record = code.codec.record
    run.activate(
        *(
            effects(TickPublishEvent(at=0.0, event=record(Piece(text=f"{n}" * 700_000)), source=source_of(cut, n)))
            for n in range(6)
        )
    )
    chunks = read_all(run, query)
    bodies = [event for chunk in chunks for event in codec.decode_published("run-1", chunk)]
    pieces = [event for event in bodies if getattr(event, "kind", None) == record(Piece()).kind]
    assert [code.codec.event(piece).text[0] for piece in pieces] == list("012345")
    for chunk in chunks[1:]:
        assert [tick.event for tick in codec.decode_ticks("run-1", chunk)] == codec.decode_published("run-1", chunk)


def test_events_are_in_the_chunk_of_their_tick_even_if_commands_have_to_wait(code):
    run = HandMade(code, around=WorkerStub((replace(FORCED, drain_events=1_000, force_events=2_000, window=2),)))
    (cut,) = run.start()
    sent = [
        TickAddEvent(at=0.0, event=code.codec.record(Piece()), source=source_of(cut, n), more=True) for n in range(5)
    ]
    assert len(run.activate(run.reported(cut, *sent, step_result(task_of(cut))))) == 2
    row = run.answer(names.QUERY_ROW, RunRow)
    assert sum(chunk.events for chunk in read_all(run, ChunkQuery())) == row.head.events


def test_a_store_that_is_too_large_to_be_told_says_so(code):
    run = HandMade(code)
    (cut,) = run.start()
    edits = [
        TickEditStore(at=0.0, base_version=n, changed={f"k{n}": '"' + "x" * 700_000 + '"'}, source=source_of(cut, n))
        for n in range(4)
    ]
    run.activate(*(effects(tick) for tick in edits))
    view = run.answer(names.QUERY_STORE, StoreView)
    assert view.too_large > LIMIT
    assert view.values == {}


# -- what nobody can read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [names.SIGNAL_MAIL, names.SIGNAL_EFFECTS, names.SIGNAL_LOCK, names.SIGNAL_CODE])
@pytest.mark.parametrize("values", [(), ("text",), ({"tick": {"type": "TickNonsense"}},), ({"seq": "one"},)])
def test_a_signal_of_our_own_that_cannot_be_read_is_noted_and_the_run_goes_on(code, name, values, caplog):
    run = HandMade(code)
    (cut,) = run.start()
    assert run.activate(foreign_signal(name, *values)) == []
    assert name in caplog.text
    assert kinds(run.finish(cut, Piece())) == ["schedule_activity"]


def test_a_signal_that_is_nested_without_end_is_noted_too(code, caplog):
    run = HandMade(code)
    (cut,) = run.start()
    for name in ("Unheard", names.SIGNAL_MAIL):
        job = foreign_signal(name, None)
        job.signal_workflow.input[0].data = b"[" * 100_000 + b"]" * 100_000
        run.activate(job)
        assert name in caplog.text
    assert kinds(run.finish(cut, Piece())) == ["schedule_activity"]


# -- ends that are no result ------------------------------------------------------------------------------------------


def test_a_run_that_has_outgrown_its_history_can_be_read_and_its_parent_is_told(code):
    around = WorkerStub((replace(FORCED, carried=500),))
    run = HandMade(code, argument_of(code, metadata={"parent": "above", "parent_ref": 7}), around=around)
    (cut,) = run.start()
    run.finish(cut, Piece(text="x" * 600))
    run.history_length = 900
    (told,) = run.activate(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Piece()))))
    tick = value_of(told.signal_external_workflow_execution.args[0], RunMessage).tick
    assert (tick.child, tick.failure.type) == (7, "loom.StateTooLarge")
    (end,) = run.activate(resolved("resolve_signal_external_workflow", 1))
    ending = value_of(end.fail_workflow_execution.failure.application_failure_info.details.payloads[0], Ending)
    assert ending.row.head.status == "failed"
    assert "too large" in ending.row.head.error
    assert ending.row.ended_at is not None
    assert ending.row.head.ticks == run.host.core.state.ticks == run.host.journal.ticks


def test_a_run_that_could_not_begin_ends_after_its_parent_has_heard_of_it(code):
    argument = argument_of(code, config=None, metadata={"parent": "above", "parent_ref": 7})
    run = HandMade(code, argument)
    (ask,) = run.start()
    job = resolved("resolve_activity", ask.schedule_activity.seq)
    job.resolve_activity.result.failed.failure.message = "no colour"
    assert kinds(run.activate(job)) == ["signal_external_workflow_execution"]
    assert run.activate(inbox_signal(TickCancelRun(at=0.0))) == []
    (end,) = run.activate(resolved("resolve_signal_external_workflow", 1))
    assert end.fail_workflow_execution.failure.message == "It could not begin: no colour"


def test_a_child_that_ended_without_a_word_has_failed(code):
    run = HandMade(code)
    (cut,) = run.start()
    (start,) = run.activate(run.reported(cut, *child_of(cut)))
    run.activate(child_started(start))
    job = resolved("resolve_child_workflow_execution", start.start_child_workflow_execution.seq)
    job.resolve_child_workflow_execution.result.failed.failure.cause.message = "It does not say how it ended."
    (again,) = run.activate(job)
    assert "does not say" in task_of(again).answers["child:0"].child.failure.message


# -- as many early events as a run keeps ------------------------------------------------------------------------------


class Unasked(Event):
    """Nothing takes it, so it is kept."""


@pytest.fixture
def full(code):
    """A run that keeps as many events as it may."""
    config = replace(code.config, keep_unclaimed=2)
    run = HandMade(code, argument_of(code, config=config))
    run.start(run.event(Unasked()), run.event(Unasked()))
    assert kept_by(run) == 2
    return run


def kept_by(run):
    return run.answer(names.QUERY_ROW, RunRow).head.kept


def told(run, event, *, validates=True):
    """The job of an update with an event."""
    job = activations.WorkflowActivationJob()
    job.do_update.id = job.do_update.protocol_instance_id = "u"
    job.do_update.name = names.UPDATE_TELL
    job.do_update.run_validator = validates
    job.do_update.input.append(payload_of(RunMessage(TickAddEvent(at=0.0, event=run.code.codec.record(event)))))
    return job


def test_what_was_acknowledged_at_the_limit_is_kept(full):
    """Senders look how many are kept, and then send: several at once may be one too many, and none is lost."""
    full.activate(*(full.event(Unasked()) for _ in range(3)))
    assert kept_by(full) == 5


def test_a_letter_of_any_client_is_kept_too(full):
    full.activate(inbox_signal(TickAddEvent(at=0.0, event=full.code.codec.record(Unasked()))))
    assert kept_by(full) == 3


@pytest.mark.parametrize(("flags", "kept"), [((FLAG_BASE,), 2), ((FLAG_BASE, KEEPS_MESSAGES), 3)])
def test_a_replay_keeps_a_letter_if_its_history_says_so(code, flags, kept):
    config = replace(code.config, keep_unclaimed=2)
    run = HandMade(code, argument_of(code, config=config), replaying=True, flags=flags)
    run.start(*(inbox_signal(TickAddEvent(at=0.0, event=code.codec.record(Unasked()))) for _ in range(3)))
    assert kept_by(run) == kept


def test_an_update_at_the_limit_is_refused_in_words(full):
    (refused,) = full.activate(told(full, Unasked()))
    assert "keeps 2 events that nothing has asked for" in refused.update_response.rejected.message
    assert kept_by(full) == 2


def test_what_comes_with_an_update_counts_for_the_next_one(code):
    config = replace(code.config, keep_unclaimed=2)
    run = HandMade(code, argument_of(code, config=config))
    run.start(run.event(Unasked()))
    answers = [each.update_response for each in run.activate(*(told(run, Unasked()) for _ in range(2)))]
    assert [answer.WhichOneof("response") for answer in answers[:2]] == ["accepted", "rejected"]
    assert kept_by(run) == 2


def test_an_update_at_the_limit_reaches_who_asks_for_it(full):
    commands = full.activate(told(full, Piece()))
    assert commands[0].update_response.HasField("accepted")
    assert "schedule_activity" in kinds(commands)


def test_an_update_that_was_accepted_is_not_judged_again(full):
    assert full.activate(told(full, Unasked(), validates=False))[0].update_response.HasField("accepted")


# -- codecs -----------------------------------------------------------------------------------------------------------


class CommandInfo(NamedTuple):
    """As the SDK says what a payload belongs to."""

    command_type: int
    command_seq: int


def test_a_payload_belongs_to_whoever_reads_it(code):
    run = HandMade(code, argument_of(code, config=None, metadata={"parent": "above", "parent_ref": 7}))
    (ask,) = run.start()
    activity = CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK
    asked = run.instance.get_serialization_context(CommandInfo(activity, ask.schedule_activity.seq))
    assert asked.activity_type == ask.schedule_activity.activity_type
    job = resolved("resolve_activity", ask.schedule_activity.seq)
    job.resolve_activity.result.completed.result.CopyFrom(payload_of(CodeView(code.config)))
    (cut,) = run.activate(job)
    sent = run.instance.get_serialization_context(CommandInfo(activity, cut.schedule_activity.seq))
    assert (sent.activity_type, sent.activity_id) == ("cut", cut.schedule_activity.activity_id)
    (start,) = run.activate(run.reported(cut, *child_of(cut)))
    begun = start.start_child_workflow_execution
    child = CommandInfo(CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION, begun.seq)
    assert run.instance.get_serialization_context(child).workflow_id == begun.workflow_id
    run.activate(child_started(start))
    told, *_ = run.activate(inbox_signal(TickCancelRun(at=0.0)))[-1:]
    number = told.signal_external_workflow_execution.seq
    letters = CommandInfo(CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION, number)
    assert run.instance.get_serialization_context(letters).workflow_id == "above"
    assert run.instance.get_serialization_context(None).workflow_id == "run-1"

"""Jobs become ticks, commands become Temporal's: hand-made activations, no server."""

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
    foreign_signal,
    inbox_signal,
    initialize,
    kinds,
    signal,
    step_result,
    task_of,
    timer_fired,
)

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.records import Failure
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickContinueRun,
    TickLeaveStep,
    TickParkRun,
    TickPublishEvent,
    TickSleep,
    TickStartChild,
)
from loom.store import codec
from loom.store.records import RunRow
from loom.temporal import names
from loom.temporal.bridge import activations
from loom.temporal.payloads import (
    ChunkQuery,
    Chunks,
    CodeRequest,
    CodeView,
    Effects,
    Ending,
    ExecutionQuery,
    ExecutionView,
    LockRequest,
    NewCode,
    RunMessage,
    StartArgument,
    StoreQuery,
    StoreView,
    payload_of,
    value_of,
)
from loom.temporal.workflow.policy import CANCELS_FIRST, DOUBTS_SIGNALS, FLAG_BASE, KEEPS_MESSAGES


class Dyed(Event):
    colour: str = "red"


class Approval(HumanResponseEvent):
    by: str = "nobody"


class Weaving(Workflow):
    """Two steps, and an event from outside."""

    @step
    async def dye(self, ev: StartEvent) -> Dyed:
        return Dyed()

    @step
    async def weave(self, ctx: Context, ev: Dyed) -> StopEvent:
        return StopEvent(result=ev.colour)

    @step
    async def approve(self, ev: Approval) -> StopEvent:
        return StopEvent(result=ev.by)


@pytest.fixture
def code():
    return code_of(Weaving(timeout=None))


def test_a_start_schedules_the_first_step_and_records_the_policy(code):
    run = HandMade(code)
    (command,) = run.start()
    scheduled = command.schedule_activity
    assert (scheduled.activity_type, scheduled.seq, scheduled.task_queue) == ("dye", 1, "loom")
    assert scheduled.activity_id == str(task_of(command).command.seq)
    assert scheduled.HasField("start_to_close_timeout")
    assert scheduled.heartbeat_timeout.seconds == 10
    flags = [FLAG_BASE, DOUBTS_SIGNALS, CANCELS_FIRST, KEEPS_MESSAGES]
    assert list(run.completion.successful.used_internal_flags) == flags
    assert task_of(command).run_id == "run-1"
    run.finish(command, Dyed())
    assert list(run.completion.successful.used_internal_flags) == []


def test_a_run_goes_from_step_to_step_to_its_result(code):
    run = HandMade(code)
    (dye,) = run.start()
    (weave,) = run.finish(dye, Dyed(colour="blue"))
    assert weave.schedule_activity.activity_type == "weave"
    assert weave.schedule_activity.seq == 2
    (end,) = run.finish(weave, StopEvent(result="cloth"))
    ending = value_of(end.complete_workflow_execution.result, Ending)
    assert (ending.row.head.status, ending.row.workflow, ending.row.ended_at) == ("completed", "made", START)
    (last,) = codec.decode_published("run-1", ending.last)
    assert code.codec.event(last).result == "cloth"


def test_time_is_that_of_the_activation(code):
    run = HandMade(code)
    (dye,) = run.start()
    run.now = START + 7.5
    run.finish(dye, Dyed())
    assert run.host.core.state.at == START + 7.5


def test_a_signal_of_the_same_task_comes_before_the_result_of_a_step(code):
    run = HandMade(code)
    (dye,) = run.start()
    commands = run.activate(run.event(Approval(by="Ada")), run.returned(dye, Dyed()))
    assert [command.schedule_activity.activity_type for command in commands] == ["approve", "weave"]


def test_an_event_with_an_id_counts_once(code):
    run = HandMade(code)
    run.start()
    assert kinds(run.activate(run.event(Approval(), "e1"))) == ["schedule_activity"]
    assert run.activate(run.event(Approval(), "e1")) == []
    assert run.answer(names.QUERY_SEEN, bool, "e1") is True
    assert run.answer(names.QUERY_SEEN, bool, "e2") is False


def test_a_failure_of_a_body_is_data_and_fails_the_run(code):
    run = HandMade(code)
    (dye,) = run.start()
    result = step_result(task_of(dye), failure=Failure("builtins.ValueError", "no dye left"))
    (end,) = run.activate(run.reported(dye, result))
    failure = end.fail_workflow_execution.failure
    assert failure.message == "dye: ValueError: no dye left"
    assert failure.application_failure_info.non_retryable
    ending = value_of(failure.application_failure_info.details.payloads[0], Ending)
    assert ending.row.head.status == "failed"


def test_an_activity_that_fails_by_itself_fails_its_step(code):
    run = HandMade(code)
    (dye,) = run.start()
    job = activations.WorkflowActivationJob()
    job.resolve_activity.seq = dye.schedule_activity.seq
    job.resolve_activity.result.failed.failure.message = "Activity task failed"
    job.resolve_activity.result.failed.failure.cause.message = "result too large"
    (end,) = run.activate(job)
    assert "result too large" in end.fail_workflow_execution.failure.message


def test_a_retry_verdict_becomes_a_timer_and_then_a_new_attempt(code):
    run = HandMade(code)
    (dye,) = run.start()
    result = step_result(task_of(dye), failure=Failure("builtins.ValueError", "wet"), retry_delay_s=2.0015)
    (timer,) = run.activate(run.reported(dye, result))
    delay = timer.start_timer.start_to_fire_timeout
    assert delay.seconds + delay.nanos / 1e9 >= 2.0015, "a timer never fires early"
    run.now += 2
    (again,) = run.activate(timer_fired(timer))
    assert again.schedule_activity.activity_type == "dye"
    assert task_of(again).command.item.attempts == 1
    assert again.schedule_activity.activity_id != dye.schedule_activity.activity_id


def test_the_timeout_of_a_run_is_a_timer_that_fails_it():
    run = HandMade(code_of(Weaving(timeout=60)))
    commands = run.start()
    assert sorted(kinds(commands)) == ["schedule_activity", "start_timer"]
    timer = next(command for command in commands if command.HasField("start_timer"))
    run.now += 60
    (end,) = run.activate(timer_fired(timer))
    assert "timed out after 60" in end.fail_workflow_execution.failure.message


@pytest.mark.parametrize("by", ["letter", "request"])
def test_a_cancelled_run_ends_as_cancelled_and_can_be_read_afterwards(code, by):
    run = HandMade(code)
    run.start()
    job = activations.WorkflowActivationJob()
    job.cancel_workflow.SetInParent()
    memo, end = run.activate(inbox_signal(TickCancelRun(at=0.0)) if by == "letter" else job)
    assert end.HasField("cancel_workflow_execution")
    ending = value_of(memo.modify_workflow_properties.upserted_memo.fields["loom.end"], Ending)
    assert ending.row.head.status == "cancelled"


def test_effects_of_a_running_body_come_by_signal_and_count_once(code):
    run = HandMade(code)
    (dye,) = run.start()
    command = task_of(dye).command
    source = Source(command.step, command.item.id, command.seq, 0)
    event = code.codec.record(Dyed(colour="green"))
    effects = signal(names.SIGNAL_EFFECTS, Effects((TickPublishEvent(at=0.0, event=event, source=source),)))
    before = run.host.core.state.published
    run.activate(effects)
    run.activate(effects)
    assert run.host.core.state.published == before + 1


# -- waiting ----------------------------------------------------------------------------------------------------------


def waiting(run, command, key="wait:0:w"):
    """The ticks of a body that waits for an approval, and leaves."""
    work = task_of(command).command
    source = Source(work.step, work.item.id, work.seq, 0)
    name = code_of(Weaving()).codec.record(Approval()).kind.name
    wait = TickAwaitEvent(at=0.0, source=source, waiter_id="w", occurrence=0, event_type=name)
    return wait, TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=(key,))


def test_a_waiting_body_leaves_and_begins_again_with_its_answer(code):
    run = HandMade(code)
    (dye,) = run.start()
    assert run.activate(run.reported(dye, *waiting(run, dye))) == []
    row = run.answer(names.QUERY_ROW, RunRow)
    assert row.head.idle_since == START
    assert any("Approval" in name for name in row.head.waiting_for)
    commands = run.activate(run.event(Approval(by="Ada")))
    again = next(c for c in commands if c.schedule_activity.activity_type == "dye")
    task = task_of(again)
    assert code.codec.event(task.answers["wait:0:w"].event).by == "Ada"
    assert task.command.item.effects[0] == "wait:0:w"
    assert task.command.seq != task_of(dye).command.seq


def test_a_body_that_left_too_late_for_its_answer_begins_again_at_once(code):
    run = HandMade(code)
    (dye,) = run.start()
    commands = run.activate(run.event(Approval()), run.reported(dye, *waiting(run, dye)))
    assert "approve" in [c.schedule_activity.activity_type for c in commands]
    run2 = HandMade(code_of(Weaving(timeout=None)))
    (dye,) = run2.start()
    wait, leave = waiting(run2, dye)
    run2.activate(signal(names.SIGNAL_EFFECTS, Effects((wait,))))
    answered = run2.activate(run2.event(Approval(by="Bo")))
    assert "dye" not in [c.schedule_activity.activity_type for c in answered], "its body is still at work"
    again = run2.activate(run2.reported(dye, leave))
    assert [c.schedule_activity.activity_type for c in again] == ["dye"]


def test_a_sleeping_body_is_a_timer(code):
    run = HandMade(code)
    (dye,) = run.start()
    work = task_of(dye).command
    source = Source(work.step, work.item.id, work.seq, 0)
    leave = TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=("sleep:0",))
    (timer,) = run.activate(run.reported(dye, TickSleep(at=0.0, source=source, occurrence=0, delay_s=3600), leave))
    assert timer.start_timer.start_to_fire_timeout.seconds == 3600
    run.now += 3600
    (again,) = run.activate(timer_fired(timer))
    assert "sleep:0" in task_of(again).answers


# -- child runs -------------------------------------------------------------------------------------------------------


def child_of(run, command):
    work = task_of(command).command
    source = Source(work.step, work.item.id, work.seq, 0)
    tick = TickStartChild(at=0.0, source=source, occurrence=0, workflow="other", start="[1,{}]")
    leave = TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=("child:0",))
    (start,) = run.activate(run.reported(command, tick, leave))
    return start


def started(start, how="succeeded"):
    job = activations.WorkflowActivationJob()
    job.resolve_child_workflow_execution_start.seq = start.start_child_workflow_execution.seq
    getattr(job.resolve_child_workflow_execution_start, how).SetInParent()
    return job


def arrived(number):
    job = activations.WorkflowActivationJob()
    job.resolve_signal_external_workflow.seq = number
    return job


def test_a_child_run_is_a_child_workflow_that_outlives_its_parents_execution(code):
    run = HandMade(code)
    (dye,) = run.start()
    start = child_of(run, dye).start_child_workflow_execution
    assert start.workflow_type == "other"
    assert start.parent_close_policy == 2, "abandon"
    metadata = value_of(start.input[0], StartArgument).metadata
    assert (metadata.parent, metadata.run_id) == ("run-1", start.workflow_id)


def test_a_child_that_cannot_be_started_has_failed(code):
    run = HandMade(code)
    (dye,) = run.start()
    start = child_of(run, dye)
    (again,) = run.activate(started(start, "failed"))
    assert task_of(again).answers["child:0"].child.status == "failed"


def test_a_child_tells_its_parent_how_it_ended(code):
    argument = argument_of(code, metadata={"parent": "parent-1", "parent_ref": 9})
    run = HandMade(code, argument)
    (dye,) = run.start()
    (weave,) = run.finish(dye, Dyed())
    (told,) = run.finish(weave, StopEvent(result=1))
    assert told.signal_external_workflow_execution.workflow_execution.workflow_id == "parent-1"
    tick = value_of(told.signal_external_workflow_execution.args[0], RunMessage).tick
    assert (tick.child, tick.status) == (9, "completed")
    (end,) = run.activate(arrived(told.signal_external_workflow_execution.seq))
    assert end.HasField("complete_workflow_execution"), "the server drops what a closed execution still had to tell"


def test_the_end_of_a_child_is_an_answer_and_a_terminated_one_has_failed(code):
    run = HandMade(code)
    (dye,) = run.start()
    start = child_of(run, dye)
    run.activate(started(start))
    job = activations.WorkflowActivationJob()
    job.resolve_child_workflow_execution.seq = start.start_child_workflow_execution.seq
    job.resolve_child_workflow_execution.result.failed.failure.cause.terminated_failure_info.SetInParent()
    (again,) = run.activate(job)
    assert task_of(again).answers["child:0"].child.failure.type == "loom.RunTerminated"


def test_a_cancelled_parent_cancels_its_children(code):
    run = HandMade(code)
    (dye,) = run.start()
    start = child_of(run, dye)
    run.activate(started(start))
    (request,) = run.activate(inbox_signal(TickCancelRun(at=0.0)))
    external = request.request_cancel_external_workflow_execution
    assert external.workflow_execution.workflow_id == start.start_child_workflow_execution.workflow_id
    job = activations.WorkflowActivationJob()
    job.resolve_request_cancel_external_workflow.seq = external.seq
    assert run.activate(job)[-1].HasField("cancel_workflow_execution")


def cancel_heard(request, *, fails=False):
    job = activations.WorkflowActivationJob()
    job.resolve_request_cancel_external_workflow.seq = request.request_cancel_external_workflow_execution.seq
    if fails:
        job.resolve_request_cancel_external_workflow.failure.message = "there is no such run"
    return job


@pytest.mark.parametrize("first", ["the child begins", "the request fails"])
def test_a_child_that_was_cancelled_before_it_had_begun_is_cancelled_once_it_has(code, first):
    run = HandMade(code)
    (dye,) = run.start()
    start = child_of(run, dye)
    (request,) = run.activate(inbox_signal(TickCancelRun(at=0.0)))
    news = [started(start), cancel_heard(request, fails=True)]
    if first == "the request fails":
        news.reverse()
    assert run.activate(news[0]) == [], "it does not end before the child has heard of it"
    (again,) = run.activate(news[1])
    asked = again.request_cancel_external_workflow_execution.workflow_execution.workflow_id
    assert asked == start.start_child_workflow_execution.workflow_id
    assert run.activate(cancel_heard(again, fails=True))[-1].HasField("cancel_workflow_execution"), "once is enough"


@pytest.mark.parametrize("how", ["succeeded", "failed"])
def test_a_child_that_has_heard_it_or_never_began_is_not_cancelled_again(code, how):
    run = HandMade(code)
    (dye,) = run.start()
    start = child_of(run, dye)
    (request,) = run.activate(inbox_signal(TickCancelRun(at=0.0)))
    jobs = [started(start, how), cancel_heard(request, fails=how == "failed")]
    assert kinds(run.activate(*jobs)) == ["modify_workflow_properties", "cancel_workflow_execution"]


# -- queries and updates ----------------------------------------------------------------------------------------------


def test_queries_change_nothing(code):
    run = HandMade(code)
    run.start()
    before = codec.encode_state(run.host.core.state)
    for name in (names.QUERY_ROW, names.QUERY_STATE, names.QUERY_STORE, names.QUERY_ORIGIN, "__stack_trace"):
        assert run.ask(name).HasField("succeeded")
    assert run.ask("nonsense").failed.application_failure_info.type == "UnknownQuery"
    assert codec.encode_state(run.host.core.state) == before
    assert kinds(run.activate(run.event(Approval()))) == ["schedule_activity"]


def test_a_query_on_a_run_that_has_ended_is_answered(code):
    run = HandMade(code)
    (dye,) = run.start()
    run.finish(dye, StopEvent(result=1))
    run.activate(inbox_signal(TickCancelRun(at=0.0)))
    assert run.answer(names.QUERY_ROW, RunRow).head.status in ("completed", "cancelled")


def test_the_journal_is_read_in_parts_by_tick_and_by_cursor(code):
    run = HandMade(code)
    (dye,) = run.start()
    (weave,) = run.finish(dye, Dyed())
    run.finish(weave, StopEvent(result=1))
    whole = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery())
    assert [chunk.first_tick for chunk in whole.chunks] == [0, 1, 2]
    assert (whole.ticks, whole.first_tick) == (3, 0)
    later = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery(first_tick=1, limit=1))
    assert [chunk.first_tick for chunk in later.chunks] == [1]
    position = whole.chunks[1].first_cursor
    streamed = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery(cursor=position))
    assert streamed.chunks[0].first_cursor <= position
    assert sum(chunk.events for chunk in whole.chunks) == whole.events
    small = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery(max_bytes=1))
    assert len(small.chunks) == 1, "one always passes"


def test_an_execution_can_be_looked_at_while_it_is_under_way(code):
    run = HandMade(code)
    (dye,) = run.start()
    work = task_of(dye).command
    query = ExecutionQuery(work.step, work.item.id, work.seq)
    assert run.answer(names.QUERY_EXECUTION, ExecutionView, query).execution.seq == work.seq
    run.finish(dye, Dyed())
    assert run.answer(names.QUERY_EXECUTION, ExecutionView, query).execution is None


def update(job_name, argument, number="u1"):
    job = activations.WorkflowActivationJob()
    job.do_update.id = job.do_update.protocol_instance_id = number
    job.do_update.name = job_name
    job.do_update.input.append(payload_of(argument))
    return job


def test_an_update_is_accepted_at_once_and_answered_when_the_run_rests(code):
    run = HandMade(code)
    run.start()
    job = update(names.UPDATE_TELL, RunMessage(TickCancelRun(at=0.0)))
    commands = run.activate(job)
    assert commands[0].update_response.HasField("accepted")
    row = value_of(commands[1].update_response.completed, RunRow)
    assert row.head.status == "cancelled"
    assert commands[-1].HasField("cancel_workflow_execution")


def test_an_update_waits_for_the_outcome(code):
    run = HandMade(code)
    run.start()
    record = code.codec.record(Approval(by="Ada"))
    commands = run.activate(update(names.UPDATE_TELL, RunMessage(TickAddEvent(at=0.0, event=record))))
    assert kinds(commands) == ["update_response", "schedule_activity"]
    ended = run.finish(commands[1], StopEvent(result="Ada"))
    assert value_of(ended[0].update_response.completed, RunRow).head.status == "completed"


@pytest.mark.parametrize("job", [update("other", 1), update(names.UPDATE_TELL, "no letter")])
def test_an_update_that_means_nothing_is_refused_and_the_run_is_unharmed(code, job):
    run = HandMade(code)
    run.start()
    (command,) = run.activate(job)
    assert command.update_response.rejected.message


# -- the store --------------------------------------------------------------------------------------------------------


def test_one_execution_at_a_time_may_write_the_store(code):
    run = HandMade(code)
    (dye,) = run.start()
    (approve,) = run.activate(run.event(Approval()))
    first, second = task_of(dye).command.seq, task_of(approve).command.seq
    run.activate(signal(names.SIGNAL_LOCK, LockRequest(first)), signal(names.SIGNAL_LOCK, LockRequest(second)))

    def granted(seq):
        return run.answer(names.QUERY_STORE, StoreView, StoreQuery(seq)).granted

    assert (granted(first), granted(second)) == (True, False)
    run.activate(signal(names.SIGNAL_EFFECTS, Effects((), unlocks=first)))
    assert (granted(first), granted(second)) == (False, True)
    run.finish(approve, StopEvent())
    assert run.host.lock.holder is None, "the end of an activity gives the store back"


def test_a_lock_that_nobody_at_work_asks_for_is_not_given(code):
    run = HandMade(code)
    run.start()
    run.activate(signal(names.SIGNAL_LOCK, LockRequest(77)))
    assert run.host.lock.holder is None


# -- code -------------------------------------------------------------------------------------------------------------


def test_a_run_that_was_started_without_code_asks_for_it_first(code):
    run = HandMade(code, argument_of(code, config=None))
    (ask,) = run.start(run.event(Approval(by="early")))
    assert ask.schedule_activity.activity_type == names.ACTIVITY_CODE
    assert value_of(ask.schedule_activity.arguments[0], CodeRequest).workflow == "made"
    job = activations.WorkflowActivationJob()
    job.resolve_activity.seq = ask.schedule_activity.seq
    job.resolve_activity.result.completed.result.CopyFrom(payload_of(CodeView(code.config)))
    commands = run.activate(job)
    assert [c.schedule_activity.activity_type for c in commands] == ["dye", "approve"]


def test_a_run_that_its_code_refuses_fails_and_tells_its_parent(code):
    argument = argument_of(code, config=None, metadata={"parent": "above", "parent_ref": 7})
    run = HandMade(code, argument)
    (ask,) = run.start()
    job = activations.WorkflowActivationJob()
    job.resolve_activity.seq = ask.schedule_activity.seq
    job.resolve_activity.result.failed.failure.message = "Activity task failed"
    job.resolve_activity.result.failed.failure.cause.message = "no colour"
    (told,) = run.activate(job)
    assert told.signal_external_workflow_execution.workflow_execution.workflow_id == "above"
    tick = value_of(told.signal_external_workflow_execution.args[0], RunMessage).tick
    assert (tick.child, tick.status, tick.failure.message) == (7, "failed", "It could not begin: no colour")
    (end,) = run.activate(arrived(told.signal_external_workflow_execution.seq))
    assert end.fail_workflow_execution.failure.message == "It could not begin: no colour"


class Later(Weaving):
    """The same with one more step."""

    @step
    async def trim(self, ev: Approval) -> StopEvent:
        return StopEvent()


def test_other_code_is_noticed_and_comes_in_when_no_body_is_at_work(code):
    around = WorkerStub()
    run = HandMade(code_of(Later(timeout=None)), argument_of(code), around=around)
    (dye,) = run.start()
    assert around.other_code == ["run-1"]
    new = run.code.config
    assert run.activate(signal(names.SIGNAL_CODE, NewCode(new))) == []
    assert run.host.core.state.config == code.config, "a body is at work"
    (weave,) = run.finish(dye, Dyed())
    assert run.host.core.state.config == new
    assert weave.schedule_activity.activity_type == "weave"


def test_older_code_does_not_come_back(code):
    run = HandMade(code_of(Later(timeout=None)), argument_of(code))
    (dye,) = run.start()
    run.activate(run.reported(dye, *waiting(run, dye)))
    run.activate(signal(names.SIGNAL_CODE, NewCode(run.code.config, since=2.0)))
    run.activate(signal(names.SIGNAL_CODE, NewCode(code.config, since=1.0)))
    assert run.host.core.state.config == run.code.config


def test_a_worker_whose_clock_is_ahead_does_not_keep_out_the_code_of_later_ones(code):
    run = HandMade(code_of(Later(timeout=None)), argument_of(code))
    (dye,) = run.start()
    run.activate(signal(names.SIGNAL_CODE, NewCode(run.code.config, since=run.now + 3600)))
    run.now += 60
    run.activate(signal(names.SIGNAL_CODE, NewCode(code.config, since=run.now - 30)))
    run.finish(dye, Dyed())
    assert run.host.core.state.config == code.config


def test_a_parked_run_stays_open_and_goes_on_when_it_is_continued(code):
    run = HandMade(code)
    (dye,) = run.start()
    assert run.activate(run.reported(dye, TickParkRun(at=0.0, reason="no such type"))) == []
    assert run.answer(names.QUERY_ROW, RunRow).head.parked == "no such type"
    assert run.activate(run.event(Approval())) == []
    commands = run.activate(inbox_signal(TickContinueRun(at=0.0)))
    assert [c.schedule_activity.activity_type for c in commands] == ["dye", "approve"]


def test_whoever_has_parked_a_run_does_not_try_it_again(code):
    lacking = code_of(Later(timeout=None))
    around = WorkerStub()
    run = HandMade(lacking, argument_of(code), around=around)
    (dye,) = run.start()
    run.activate(run.reported(dye, TickParkRun(at=0.0, reason="no such type")))
    run.activate(run.event(Approval()))
    run.ask(names.QUERY_ROW)
    assert around.other_code == ["run-1"], "whoever has parked it does not try it again"


@pytest.mark.parametrize("by", ["a query", "an event"])
def test_a_run_that_is_found_parked_is_tried_by_who_finds_it(code, by):
    run = HandMade(code, replaying=True)
    (dye,) = run.start()
    run.activate(run.reported(dye, TickParkRun(at=0.0, reason="no such type")))
    assert run.around.other_code == []
    if by == "an event":
        run.replaying = False
        run.activate(run.event(Approval()))
    for _ in range(3):
        run.ask(names.QUERY_ROW)
    assert run.around.other_code == ["run-1, parked"]
    commands = run.activate(signal(names.SIGNAL_CODE, NewCode(code.config)))
    assert "dye" in [c.schedule_activity.activity_type for c in commands]


def test_a_query_of_a_run_that_is_not_parked_says_nothing_of_its_code(code):
    run = HandMade(code_of(Later(timeout=None)), argument_of(code), replaying=True)
    run.start()
    run.ask(names.QUERY_ROW)
    assert run.around.other_code == []


# -- signals of others, and what goes wrong ---------------------------------------------------------------------------


def test_a_signal_of_any_client_is_an_event_by_its_name(code):
    run = HandMade(code)
    run.start()
    (approve,) = run.activate(foreign_signal("Approval", {"by": "a Go program"}))
    assert code.codec.event(task_of(approve).command.item.event).by == "a Go program"


@pytest.mark.parametrize(("flags", "checked"), [((FLAG_BASE,), None), ((FLAG_BASE, DOUBTS_SIGNALS), False)])
def test_a_replay_marks_what_came_by_a_signal_if_its_history_says_so(code, flags, checked):
    run = HandMade(code, replaying=True, flags=flags)
    run.start()
    (approve,) = run.activate(foreign_signal("Approval", {"by": "a Go program"}))
    assert task_of(approve).command.item.event.checked is checked


def test_a_signal_reaches_who_waits_for_its_type(code):
    run = HandMade(code)
    (dye,) = run.start()
    run.activate(run.reported(dye, *waiting(run, dye)))
    commands = run.activate(foreign_signal("Approval", {"by": "a Java program"}))
    again = next(c for c in commands if c.schedule_activity.activity_type == "dye")
    assert code.codec.event(task_of(again).answers["wait:0:w"].event).by == "a Java program"


@pytest.mark.parametrize("has_code", [True, False])
def test_a_signal_of_the_first_activation_is_understood_too(code, has_code):
    run = HandMade(code, argument_of(code) if has_code else argument_of(code, config=None))
    commands = run.start(foreign_signal("Approval", {"by": "early"}))
    if not has_code:
        job = activations.WorkflowActivationJob()
        job.resolve_activity.seq = commands[0].schedule_activity.seq
        job.resolve_activity.result.completed.result.CopyFrom(payload_of(CodeView(code.config)))
        commands = run.activate(job)
    assert [c.schedule_activity.activity_type for c in commands] == ["dye", "approve"]


def test_a_full_name_is_a_type_that_somebody_may_wait_for_later(code):
    run = HandMade(code)
    run.start()
    name = code.codec.record(Dyed()).kind.name.replace("Dyed", "Unknown")
    run.activate(foreign_signal(name, {"by": "early"}))
    assert name in run.host.core.state.waiting.kept


@pytest.mark.parametrize("values", [(), ({"by": ["not", "a", "name"]},), ("text",), (1, 2)])
def test_a_signal_that_fits_nothing_is_kept(code, values):
    run = HandMade(code)
    run.start()
    run.activate(foreign_signal("Unheard", *values))
    assert run.answer(names.QUERY_ROW, RunRow).head.kept == 1


def test_what_cannot_be_understood_fails_the_task_and_not_the_run(code):
    run = HandMade(code)
    (dye,) = run.start()
    broken = run.reported(dye)
    broken.resolve_activity.result.completed.result.data = b'{"ticks":[{"type":"TickOfTomorrow"}]}'
    with pytest.raises(AssertionError):
        run.activate(broken)
    assert run.completion.failed.failure.stack_trace


def test_a_start_by_hand_says_what_is_wrong(code):
    run = HandMade(code)
    job = activations.WorkflowActivationJob()
    job.initialize_workflow.workflow_id = "run-1"
    with pytest.raises(AssertionError, match=r"loom\.connect"):
        run.activate(job)


def test_an_eviction_is_answered_with_nothing(code):
    run = HandMade(code)
    run.start()
    job = activations.WorkflowActivationJob()
    job.remove_from_cache.message = "cache is full"
    assert run.activate(job) == []


def test_nobody_hears_of_a_replay(code):
    around = WorkerStub()
    run = HandMade(code, around=around, replaying=True, flags=(FLAG_BASE,))
    run.start()
    assert around.heard == []
    run.replaying = False
    run.activate(run.event(Approval()))
    assert around.heard == ["run-1"]


def test_headers_of_the_start_reach_the_bodies(code):
    from temporalio.api.common.v1 import Payload

    run = HandMade(code, headers={"trace": Payload(data=b"1")})
    (dye,) = run.start()
    assert dye.schedule_activity.headers["trace"].data == b"1"


def test_the_first_job_may_come_with_signals(code):
    run = HandMade(code)
    commands = run.activate(initialize(run.argument), run.event(Approval()))
    assert [c.schedule_activity.activity_type for c in commands] == ["dye", "approve"]


def test_no_two_flags_of_the_history_have_one_number() -> None:
    flags = [DOUBTS_SIGNALS, CANCELS_FIRST, KEEPS_MESSAGES]
    assert len(set(flags)) == len(flags)
    assert min(flags) >= FLAG_BASE + 0x10000

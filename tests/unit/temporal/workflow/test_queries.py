"""Queries that no task carries, on executions that may be ahead of their history: hand-made activations, no server."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_made import HandMade, code_of, info_of
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue

from loom import HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.store.records import RunRow
from loom.temporal import names
from loom.temporal.address import parse_address
from loom.temporal.client.cluster import Cluster, NoAnswer
from loom.temporal.names import ASK_AGAIN
from loom.temporal.payloads import payload_of
from loom.temporal.rpc import ClientLink
from loom.temporal.workflow.queries import AskAgain, Intake, RecordedHistory, has_recorded

BY_ITSELF = "legacy_query"
STARTED, COMPLETED, SCHEDULED = "WORKFLOW_TASK_STARTED", "WORKFLOW_TASK_COMPLETED", "WORKFLOW_TASK_SCHEDULED"


class Mail(HumanResponseEvent):
    pass


class Box(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> None: ...

    @step
    async def read(self, ev: Mail) -> StopEvent | None: ...


def newest(last: int, *kinds: str) -> list[HistoryEvent]:
    """Make the newest events of a history that ends with event `last`, given in the order of the history."""
    return [
        HistoryEvent(event_id=last - number, event_type=EventType.Value(f"EVENT_TYPE_{kind}"))
        for number, kind in enumerate(reversed(kinds))
    ]


def begun(*, replaying: bool = False) -> HandMade:
    """Begin a run whose newest activation, live unless it replays, brought mail."""
    run = HandMade(code_of(Box(timeout=None)))
    (begin,) = run.start()
    run.finish(begin)
    run.replaying = replaying
    run.activate(run.event(Mail()))
    return run


def is_refused(run: HandMade) -> bool:
    """Ask a query that comes by itself, and say whether the run leaves memory instead of answering."""
    try:
        run.ask(names.QUERY_ROW, query_id=BY_ITSELF)
    except AssertionError:  # the failure of the activation
        assert run.completion.failed.failure.application_failure_info.type == ASK_AGAIN
        return True
    return False


def test_events_that_no_task_has_taken_are_not_told() -> None:
    run = begun()  # by a query: the signal and the scheduled task are the newest events
    run.around.newest = newest(run.history_length, COMPLETED, "WORKFLOW_EXECUTION_SIGNALED", SCHEDULED)
    assert is_refused(run)


def test_a_task_that_is_under_way_on_another_worker_is_not_told() -> None:
    run = begun()
    run.around.newest = newest(run.history_length, SCHEDULED, STARTED)
    assert is_refused(run)


@pytest.mark.parametrize("end", ["WORKFLOW_TASK_TIMED_OUT", "WORKFLOW_TASK_FAILED"])
def test_a_lost_task_is_not_told(end: str) -> None:
    run = begun()
    run.around.newest = newest(run.history_length + 2, STARTED, end, SCHEDULED)
    assert is_refused(run)


def test_a_task_that_began_after_the_tail_was_read_is_not_told() -> None:
    """The tail ended with the scheduled task. The task has completed since, at another time and with other flags."""
    run = begun()
    run.around.newest = newest(run.history_length + 2, SCHEDULED, STARTED, COMPLETED)
    assert is_refused(run)


def test_events_of_a_replay_that_were_not_stored_are_not_told() -> None:
    run = begun(replaying=True)
    run.around.newest = newest(run.history_length - 2, STARTED, "WORKFLOW_TASK_TIMED_OUT")
    assert is_refused(run)


def test_a_replay_of_what_is_stored_is_told() -> None:
    run = begun(replaying=True)
    run.around.newest = newest(run.history_length, SCHEDULED, STARTED)
    assert not is_refused(run)


def test_what_is_recorded_is_told_and_read_once_for_each_task() -> None:
    run = begun()
    run.around.newest = newest(run.history_length + 2, STARTED, COMPLETED, "ACTIVITY_TASK_SCHEDULED")
    assert [is_refused(run), is_refused(run), run.around.reads] == [False, False, 1]
    run.activate(run.event(Mail()))
    assert [is_refused(run), run.around.reads] == [True, 2]


def test_a_query_that_a_task_carries_is_answered_without_a_read() -> None:
    run = begun()
    assert run.answer(names.QUERY_ROW, RunRow).head.status == "running"
    assert run.around.reads == 0


@pytest.mark.parametrize("how", ["terminated", "completed", "failed", "canceled", "timed_out", "continued_as_new"])
def test_a_closed_execution_tells_all(how: str) -> None:
    run = begun()
    event = HistoryEvent(event_id=run.history_length)
    getattr(event, f"workflow_execution_{how}_event_attributes").SetInParent()
    run.around.newest = [event]
    assert not is_refused(run)


def test_without_a_history_to_read_nothing_is_told_and_the_reason_is_the_cause() -> None:
    run = begun()
    run.around.newest = []
    assert is_refused(run)
    run = begun()
    run.around.newest = TimeoutError("the server is away")
    assert is_refused(run)
    failure = run.completion.failed.failure
    assert failure.cause.message == "TimeoutError: the server is away"
    # Temporal's own clients show this text.
    assert failure.message.startswith(f"{ASK_AGAIN}: Please ask again: this worker has seen events of the run")


def test_the_commands_of_the_last_task_are_counted_for_the_read() -> None:
    run = begun()
    taken: Intake = run.instance._intake
    assert taken.commands == len(run.completion.successful.commands) > 0
    before = taken.commands
    run.activate(run.event(Mail()), same_task=True)
    assert taken.commands == before + len(run.completion.successful.commands)


def test_an_empty_history_has_recorded_nothing() -> None:
    assert not has_recorded([], Intake(), 0)


class Service:
    """A server that is asked for the newest events, and answers with what it is given or stays silent."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        self.workflow_service = self

    async def get_workflow_execution_history_reverse(self, request: Any, **_options: Any) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(history=SimpleNamespace(events=self.answer))


async def test_the_history_is_read_from_the_thread_of_an_activation() -> None:
    taken = Intake()
    taken.length, taken.is_live, taken.commands = 8, True, 30
    service = Service(newest(9, STARTED, COMPLETED))
    histories = RecordedHistory(lambda: service, asyncio.get_running_loop())  # type: ignore[arg-type, return-value]
    info = info_of("run-1", "box")
    await asyncio.to_thread(histories.check, info, taken, 8)
    (request,) = service.asked
    assert (request.execution.workflow_id, request.execution.run_id) == ("run-1", "execution-1")
    assert request.maximum_page_size == 40
    service.answer = newest(8, STARTED)
    with pytest.raises(AskAgain):
        await asyncio.to_thread(histories.check, info, taken, 8)
    service.answer = OSError("no route")
    with pytest.raises(AskAgain) as refused:
        await asyncio.to_thread(histories.check, info, taken, 8)
    assert isinstance(refused.value.__cause__, OSError)
    assert histories.reads == 3


async def test_a_worker_in_debug_mode_answers_without_a_read() -> None:
    """It activates on the event loop itself, which would wait for its own read."""
    histories = RecordedHistory(lambda: pytest.fail("asked"), asyncio.get_running_loop())
    assert threading.current_thread() is threading.main_thread()
    histories.check(info_of("run-1", "box"), Intake(), 8)
    assert histories.reads == 0


class Asked:
    """A handle whose query is refused a few times, as by a worker that is ahead of the history."""

    def __init__(self, refusals: int) -> None:
        self.id = "run-1"
        self.refusals = refusals
        self.asked = 0

    async def query(self, _name: str, **_options: Any) -> RawValue:
        self.asked += 1
        if self.asked <= self.refusals:
            raise WorkflowQueryFailedError(f"{ASK_AGAIN}: {AskAgain()}")
        return RawValue(payload_of("told"))


def cluster_with(asked: Asked) -> Cluster:
    client: Any = SimpleNamespace(get_workflow_handle=lambda _run_id, run_id: asked)
    cluster = Cluster(parse_address("temporal://localhost:7233"), client)
    cluster._client = client
    return cluster


async def test_a_client_asks_again_within_its_patience() -> None:
    asked = Asked(2)
    assert await cluster_with(asked).query("run-1", names.QUERY_ROW, str, patience_s=30.0) == "told"
    assert asked.asked == 3


async def test_a_client_that_has_no_more_patience_is_told_why() -> None:
    with pytest.raises(NoAnswer, match="Please ask again") as refused:
        await cluster_with(Asked(1000)).query("run-1", names.QUERY_ROW, str, patience_s=0.1)
    assert isinstance(refused.value.__cause__, WorkflowQueryFailedError)


async def test_an_activity_asks_again() -> None:
    asked = Asked(1)
    client: Any = SimpleNamespace(get_workflow_handle=lambda _run_id, run_id: asked)
    assert await ClientLink(client, "run-1").query(names.QUERY_STORE, None, str) == "told"
    assert asked.asked == 2

from __future__ import annotations

import json
from typing import Any

import pytest

from loom.core.persistent import Fifo, Map
from loom.core.records import STEP_FAILED_KIND, EventRecord, Failure, StepFailure
from loom.core.run import Run
from loom.core.state import BrokerConfig, BrokerState, InternalStepWorkerState, StepSpec, WorkItem
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickSleep,
    TickStartRun,
    TickStepResult,
)
from loom.steps.context_dict import context_to_dict
from loom.steps.errors import ContextSerdeError
from loom.steps.events import Event, StartEvent, StopEvent
from loom.steps.planner import StepsPlanner
from loom.steps.registry import kind_of, wire_name
from loom.steps.serializers import JsonSerializer


class Task(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Live(Event):
    thing: Any = None


CONFIG = BrokerConfig(
    "Flow",
    (
        StepSpec("begin", (wire_name(StartEvent),), joins=("join",)),
        StepSpec("work", (wire_name(Task),), num_workers=1),
        StepSpec("join", (wire_name(Done),), collects=True, take=3),
    ),
)


def record(event: Event) -> EventRecord:
    return EventRecord(kind_of(type(event)), event)


def started(*ticks: Any) -> Run:
    run = Run(StepsPlanner())
    run.feed(TickStartRun(at=100.0, run_id="r", config=CONFIG, event=record(StartEvent())))
    for tick in ticks:
        run.feed(tick)
    run.drain()
    run.flush()
    return run


def returned(*events: Event, fanned_out: bool = False) -> TickStepResult:
    return TickStepResult(
        at=101.0, step="begin", item=1, seq=1, returned=tuple(map(record, events)), fanned_out=fanned_out
    )


def write(state: BrokerState, **more: Any) -> dict[str, Any]:
    used: dict[str, Any] = {"store": None, "serializer": JsonSerializer(), "now": 110.0}
    return context_to_dict(state, **{**used, **more})


def value(text: str) -> Any:
    return json.loads(text)["value"]


def test_the_dict_has_the_keys_of_version_2_and_one_more() -> None:
    data = write(started().state, store={"state_type": "DictState"})
    assert list(data) == [
        "version", "state", "is_running", "workers", "stream_seq", "work_item_seq", "invocation_seq", "deliveries",
        "streams", "collection_release_states", "elapsed_alive", "last_alive_stamp", "journal_seq", "loom",
    ]  # fmt: skip
    assert (data["version"], data["state"], data["is_running"]) == (2, {"state_type": "DictState"}, True)
    assert list(data["workers"]) == ["begin", "work", "join"]
    for worker in data["workers"].values():
        assert set(worker) == {
            "queue", "in_progress", "collected_events", "collect_generations", "static_collect_events",
            "collected_waiters",
        }  # fmt: skip
    assert (data["elapsed_alive"], data["last_alive_stamp"]) == (10.0, 110.0)


def test_without_its_store_the_state_is_empty() -> None:
    assert write(started().state)["state"] == {}


def test_queued_and_running_work_stands_where_the_original_has_it() -> None:
    data = write(started(returned(Task(n=1)), TickAddEvent(at=102.0, event=record(Task(n=2)))).state)
    work = data["workers"]["work"]
    [running], [queued] = work["in_progress"], work["queue"]
    assert (value(running["event"]), running["work_item_id"], running["worker_id"]) == ({"n": 1}, "work_item_2", 0)
    assert (value(queued["event"]), queued["work_item_id"], queued["attempts"]) == ({"n": 2}, "work_item_3", 0)
    assert running["first_attempt_at"] == 101.0
    assert json.loads(queued["event"])["qualified_name"] == wire_name(Task)


def test_an_open_stream_is_written_with_its_binding() -> None:
    data = write(started(returned(Task(n=1), Done(n=2), fanned_out=True)).state)
    binding = f"begin->join:{wire_name(Done)}:Take(3):nearest"
    assert data["streams"] == {
        "stream-1": {
            "stream_id": "stream-1",
            "source_step": "begin",
            "scope_path": [],
            "open_work_items": 1,
            "accepting_binding_ids": [binding],
        }
    }
    release = data["collection_release_states"][f"stream-1:{binding}"]
    assert [value(text) for text in release["buffer"]] == [{"n": 2}]
    assert (release["binding_id"], release["stream_id"], release["released"]) == (binding, "stream-1", False)


def test_a_join_is_written_with_its_members_once() -> None:
    data = write(started(returned(*(Done(n=n) for n in range(3)), fanned_out=True)).state)
    [running] = data["workers"]["join"]["in_progress"]
    payload = running["collection_release_payload"]
    assert [value(text)["n"] for text in payload["events"]] == [0, 1, 2]
    assert payload["output_scope_path"] == []
    assert value(running["event"])["events"] == []


def test_a_suspended_step_is_written_as_its_waiter() -> None:
    wait = TickAwaitEvent(
        at=103.0,
        source=Source("begin", 1, 1, 0),
        waiter_id="w",
        occurrence=0,
        event_type=wire_name(Done),
        requirements=(("n", 4),),
        timeout_s=7.0,
    )
    data = write(started(wait).state)
    [waiter] = data["workers"]["begin"]["collected_waiters"]
    assert waiter["waiter_id"] == "w"
    assert (waiter["waiting_for_event"], waiter["has_requirements"]) == (wire_name(Done), True)
    assert (waiter["resolved_event"], waiter["work_item_id"]) == (None, "work_item_1")
    assert data["workers"]["begin"]["queue"] == data["workers"]["begin"]["in_progress"] == []
    assert data["loom"]["waiters"]["begin"][0]["deadline"] == 110.0


def test_a_sleeping_step_and_a_delayed_retry_are_queued_until_their_time() -> None:
    sleep = TickSleep(at=103.0, source=Source("begin", 1, 1, 0), occurrence=0, delay_s=20.0)
    [entry] = write(started(sleep).state)["workers"]["begin"]["queue"]
    assert entry["not_before"] == 123.0
    failure = Failure("builtins.ValueError", "no")
    failed = TickStepResult(at=103.0, step="begin", item=1, seq=1, failure=failure, retry_delay_s=5.0)
    [entry] = write(started(failed).state)["workers"]["begin"]["queue"]
    assert (entry["not_before"], entry["attempts"], entry["last_failed_at"]) == (108.0, 1, 103.0)
    assert entry["last_exception"] == {"exception_type": "builtins.ValueError", "exception_message": "no"}


def test_a_cancelled_run_counts_as_running_and_stops_its_clock() -> None:
    data = write(started(TickCancelRun(at=104.0)).state)
    assert (data["is_running"], data["elapsed_alive"]) == (True, 4.0)
    assert len(data["workers"]["begin"]["in_progress"]) == 1


@pytest.mark.parametrize(
    "end",
    [
        returned(StopEvent(result=1)),
        TickStepResult(at=101.0, step="begin", item=1, seq=1, failure=Failure("builtins.ValueError", "no")),
    ],
)
def test_an_ended_run_is_not_running_and_has_no_work(end: TickStepResult) -> None:
    data = write(started(end).state)
    assert not data["is_running"]
    assert all(not part for worker in data["workers"].values() for part in worker.values())


def test_the_flag_can_be_given() -> None:
    assert write(started().state, is_running=False)["is_running"] is False


def test_what_cannot_be_written_is_named_with_its_path() -> None:
    item = WorkItem(1, "work", record(Live(thing=object())))
    state = BrokerState(config=CONFIG, workers=Map({"work": InternalStepWorkerState(queue=Fifo.of([item]))}))
    with pytest.raises(ContextSerdeError, match=r"workers\.work\.queue\[0\]\.event: .*thing"):
        write(state)


def test_a_failure_is_written_as_the_event_that_its_handler_gets() -> None:
    body = StepFailure("work", record(Task(n=1)), Failure("gone.Error", "why"), 2, 1.5, 100.0)
    item = WorkItem(1, "work", EventRecord(STEP_FAILED_KIND, body))
    state = BrokerState(config=CONFIG, workers=Map({"work": InternalStepWorkerState(queue=Fifo.of([item]))}))
    [entry] = write(state)["workers"]["work"]["queue"]
    written = value(entry["event"])
    assert json.loads(entry["event"])["qualified_name"] == "workflows.events.StepFailedEvent"
    assert (written["step_name"], written["attempts"]) == ("work", 2)
    assert written["exception"] == {"exception_type": "gone.Error", "exception_message": "why"}


def test_a_context_that_has_not_begun_can_be_written() -> None:
    data = write(BrokerState())
    assert (data["is_running"], data["workers"], data["elapsed_alive"]) == (False, {}, 0.0)
    assert data["last_alive_stamp"] is None

from __future__ import annotations

from typing import Any

import pytest

from loom.core.records import STEP_FAILED_KIND, Release, StepFailure
from loom.core.state import BrokerConfig, BrokerState, StepSpec
from loom.steps.context_dict import context_from_dict
from loom.steps.errors import ContextSerdeError
from loom.steps.events import CollectionReleaseEvent, Event, StartEvent, StepFailedEvent
from loom.steps.registry import wire_name
from loom.steps.serializers import JsonSerializer


class Task(Event):
    n: int = 0


TASK = (wire_name(Task),)
CONFIG = BrokerConfig(
    "Flow",
    (
        StepSpec("begin", (wire_name(StartEvent),), joins=("join",)),
        StepSpec("work", TASK, recovered_by="rescue"),
        StepSpec("join", TASK, collects=True),
        StepSpec("rescue", (STEP_FAILED_KIND.name,), max_recoveries=1),
    ),
)


def text(event: Event) -> str:
    return JsonSerializer().serialize(event)


def attempt(n: int = 0, **more: Any) -> dict[str, Any]:
    return {"event": text(Task(n=n)), **more}


def context(**more: Any) -> dict[str, Any]:
    return {"version": 2, "is_running": True, **more}


def load(data: Any, **more: Any) -> BrokerState:
    used: dict[str, Any] = {"config": CONFIG, "serializer": JsonSerializer(), "event_classes": (Task,), "now": 50.0}
    return context_from_dict(data, **{**used, **more})


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (context(version=3), "version: .*version=3"),
        (context(version="2"), "version: '2' is not"),
        (context(version=True), "version: True is not"),
        (context(version=-1), "version: -1 is not"),
        ({"is_running": True, "workers": {"work": {}}}, "version: it is missing"),
        (context(is_running="perhaps"), "is_running: "),
        (context(workers=[]), "workers: "),
        (context(workers={"work": {"queue": [attempt(), {}]}}), r"workers\.work\.queue\[1\]\.event: "),
        (context(workers={"work": {"queue": [attempt(attempts=-1)]}}), r"workers\.work\.queue\[0\]\.attempts: "),
        (context(workers={"work": {"queue": [{"event": "{"}]}}), r"workers\.work\.queue\[0\]\.event: "),
        (context(workers={"work": {"queue": [{"event": "7"}]}}), r"queue\[0\]\.event: an event is wanted, not int"),
        (context(workers={"work": {"in_progress": [attempt(last_exception={})]}}), r"in_progress\[0\]\.last_exception"),
        (context(state=[]), "state: "),
        (context(loom={"format": 2}), "loom.format: 2 is newer"),
        (context(loom={"seen": 1}), "loom.seen: "),
        (context(loom={"sleeps": [{"step": "work", "item": 9, "key": "s", "due": 1}]}), r"loom\.sleeps\[0\]\.item"),
        (context(loom={"ended_waits": {"9": {"k": True}}}), r"loom\.ended_waits\.9"),
        ({"queues": {"work": "["}}, "queues.work: "),
        ({"queues": {"work": "[1]"}}, "queues.work: "),
        ({"in_progress": 3}, "in_progress: "),
    ],
)
def test_what_is_malformed_is_refused_with_its_path(data: dict[str, Any], path: str) -> None:
    with pytest.raises(ContextSerdeError, match=f"^Context dict specified in an invalid format: .*{path}"):
        load(data)


def test_an_unknown_event_type_is_named_with_its_place() -> None:
    event = '{"__is_pydantic": true, "value": {}, "qualified_name": "gone.Lost"}'
    with pytest.raises(ContextSerdeError, match=r"workers\.work\.queue\[0\]\.event: .*gone\.Lost"):
        load(context(workers={"work": {"queue": [{"event": event}]}}))


def test_an_unknown_awaited_type_is_named_with_its_place() -> None:
    waiter = {"waiter_id": "w", "waiting_for_event": "gone.Lost", **attempt()}
    with pytest.raises(ContextSerdeError, match=r"collected_waiters\[0\]\.waiting_for_event: .*gone\.Lost"):
        load(context(workers={"work": {"collected_waiters": [waiter]}}))


def test_the_workflows_own_types_are_allowed_and_others_are_not() -> None:
    data = context(workers={"work": {"queue": [attempt(4)]}})
    strict = JsonSerializer(allowed_types=[])
    assert [item.event.body.n for item in load(data, serializer=strict).workers["work"].queue] == [4]
    with pytest.raises(ContextSerdeError, match="is not in the serializer's allowed types"):
        load(data, serializer=strict, event_classes=())


def test_a_suspended_item_without_its_wait_is_refused() -> None:
    data = context(
        workers={"work": {"queue": [attempt(work_item_id="work_item_1")]}}, loom={"items": {"1": {"waits_on": "w"}}}
    )
    with pytest.raises(ContextSerdeError, match=r"loom\.items\.1\.waits_on: there is no wait 'w'"):
        load(data)


def test_extras_that_do_not_match_the_waiters_are_refused() -> None:
    waiter = {"waiter_id": "w", "waiting_for_event": wire_name(Task), **attempt()}
    data = context(workers={"work": {"collected_waiters": [waiter]}}, loom={"waiters": {"work": []}})
    with pytest.raises(ContextSerdeError, match=r"loom\.waiters\.work"):
        load(data)


def test_steps_that_the_code_lacks_are_all_named_with_their_work() -> None:
    workers = {
        "old": {"queue": [attempt(1), attempt(2)], "in_progress": [attempt(3)]},
        "older": {"collected_events": {"default": [text(Task())]}},
        "empty": {"queue": []},
    }
    with pytest.raises(ContextSerdeError, match=r"'Flow' has no step 'old' \(3 items\), 'older' \(1 item\), which"):
        load(context(workers=workers))


@pytest.mark.parametrize(
    "part",
    [
        {"streams": {"s": {"stream_id": "s", "source_step": "old", "open_work_items": 1}}},
        {"deliveries": [{"event": text(Task()), "step_id": "old"}]},
        {
            "streams": {"s": {"stream_id": "s", "source_step": "begin"}},
            "collection_release_states": {
                "k": {"binding_id": "begin->old:T:All:nearest", "stream_id": "s", "buffer": [text(Task())]}
            },
        },
    ],
)
def test_streams_and_deliveries_of_missing_steps_are_named_too(part: dict[str, Any]) -> None:
    with pytest.raises(ContextSerdeError, match=r"no step 'old' \(1 item\)"):
        load(context(**part))


def test_declared_renames_reach_every_mention_of_a_step() -> None:
    stream = {"stream_id": "s", "source_step": "start", "open_work_items": 2, "accepting_binding_ids": ["start->sum:"]}
    release = {"binding_id": "start->sum:", "stream_id": "s", "buffer": [text(Task(n=5))]}
    payload = {"binding_id": "start->sum:", "stream_id": "t", "events": [text(Task(n=6))]}
    data = context(
        workers={
            "do": {"queue": [attempt(1, scope_path=["s"], recovery_counts={"save": 1})]},
            "sum": {"queue": [attempt(collection_release_payload=payload)]},
        },
        streams={"s": stream},
        collection_release_states={"s:start->sum:": release},
        deliveries=[{"event": text(Task(n=2)), "step_id": "do"}],
    )
    state = load(data, renames={"do": "work", "sum": "join", "start": "begin", "save": "rescue"})
    first, second = state.workers["work"].queue
    assert (first.event.body.n, first.extra.origin.recoveries) == (1, (("rescue", 1),))
    assert second.event.body.n == 2
    [number] = first.extra.origin.scope
    assert state.plan.streams[number].source == "begin"
    assert [event.body.n for event in state.plan.streams[number].joins["join"].members] == [5]
    assert next(iter(state.workers["join"].queue)).event.body.step == "join"


def test_two_steps_cannot_become_one() -> None:
    workers = {"work": {"queue": [attempt(1)]}, "old": {"queue": [attempt(2)]}}
    with pytest.raises(ContextSerdeError, match="renamed to 'work', but so is 'work'"):
        load(context(workers=workers), renames={"old": "work"})


def test_two_items_of_one_number_stay_two() -> None:
    same = {"work_item_id": "work_item_4"}
    state = load(context(workers={"work": {"queue": [attempt(1, **same), attempt(2, **same)]}}))
    assert [item.id for item in state.workers["work"].queue] == [4, 5]
    assert state.items == 5


def test_a_run_that_had_ended_comes_back_as_one_that_has_not_begun() -> None:
    state = load({"version": 2, "is_running": False, "workers": {"work": {"queue": [attempt()]}}})
    assert (state.is_running, len(state.workers), state.at) == (False, 0, 50.0)


def test_time_that_was_spent_counts_and_time_away_does_not() -> None:
    config = BrokerConfig("Flow", CONFIG.steps, timeout_s=30.0)
    state = load(context(elapsed_alive=10.0), config=config)
    assert (state.alive_since, state.deadline) == (40.0, 70.0)
    assert state.timeout_timer is not None
    assert state.timers[state.timeout_timer].due == 70.0


def test_a_failure_on_its_way_to_a_handler_comes_back_as_a_failure() -> None:
    released = CollectionReleaseEvent(events=[Task(n=3)], stream_id="stream-x", binding_id="begin->join:T:All:nearest")
    failed = StepFailedEvent(
        step_name="join",
        input_event=released,
        exception=ValueError("no"),
        attempts=2,
        elapsed_seconds=1.5,
        failed_at="2024-01-01T00:00:00Z",
    )
    state = load(context(workers={"rescue": {"queue": [{"event": text(failed)}]}}))
    [item] = state.workers["rescue"].queue
    body = item.event.body
    assert item.event.kind is STEP_FAILED_KIND
    assert isinstance(body, StepFailure)
    assert (body.step, body.attempts, body.elapsed_s, body.failed_at) == ("join", 2, 1.5, 1704067200.0)
    assert (body.failure.type, body.failure.message) == ("builtins.ValueError", "no")
    assert isinstance(body.input.body, Release)
    assert [member.body.n for member in body.input.body.members] == [3]


def test_stream_numbers_go_on_behind_foreign_names() -> None:
    streams = {name: {"stream_id": name, "source_step": "begin", "open_work_items": 1} for name in ("stream-0a", "b")}
    state = load(context(streams=streams, stream_seq=2))
    assert sorted(state.plan.streams) == [3, 4]
    assert state.plan.opened == 4

"""Ticks, chunks, states and starts as bytes: what is written, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from loom.core.body_effects import CollectBuffer
from loom.core.persistent import Fifo, Map
from loom.core.records import (
    RELEASE_KIND,
    STEP_FAILED_KIND,
    CancelledReport,
    EventKind,
    EventRecord,
    FailedReport,
    Failure,
    IdleReport,
    Published,
    Release,
    StepFailure,
    StepReport,
    WaiterReport,
)
from loom.core.state import BrokerConfig, BrokerState, InternalStepWorkerState, StepSpec, Timer, WorkItem
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickChildEnded,
    TickLeaveStep,
    TickPublishEvent,
    TickRecordResult,
    TickSkip,
    TickSleep,
    TickStartRun,
    TickStepResult,
    WorkflowTick,
)
from loom.steps.planner import JoinBuffer, Origin, StepInput, StepsPlan, Stream
from loom.store import codec
from loom.store.codec import records_of
from loom.store.errors import CorruptRecord
from loom.store.records import Chunk

KIND = EventKind("app.Order", ("workflows.events.Event",), "Order", "<class 'app.Order'>")
SOURCE = Source("work", 3, 5, 0)


def ev(text: str) -> EventRecord:
    return EventRecord(KIND, json.dumps({"value": {"text": text}}))


TICKS: list[WorkflowTick] = [
    TickSkip(at=1.0, mail=3),
    TickSkip(at=1.0, timer=7),
    TickStartRun(
        at=1.5,
        run_id="r",
        config=BrokerConfig("w", (StepSpec("work", ("app.Order",), slots=(("left", ("a", "b")),)),), 5.0),
        event=ev("start"),
        seed=2**70,
        store={"k": ':"v"'},
    ),
    TickAddEvent(at=2.0, event=ev("added"), event_id="e", origin=StepInput(Origin((1,), (("mend", 2),)))),
    TickStepResult(
        at=3.0,
        step="work",
        item=1,
        seq=2,
        returned=(ev("one"), ev("two")),
        fanned_out=True,
        collects=(CollectCall("b", ev("three"), (("app.Order", 2),), True, 1),),
    ),
    TickStepResult(at=3.5, step="work", item=1, seq=2, failure=Failure("builtins.ValueError", "no"), retry_delay_s=0.5),
    TickAwaitEvent(
        at=4.0,
        source=SOURCE,
        waiter_id="w",
        occurrence=0,
        event_type="app.Order",
        requirements=(("text", {"type": "StepFailure", "n": [1, None, 2**80]}),),
        waiter_event=ev("asked"),
    ),
    TickLeaveStep(at=4.2, step="work", item=1, seq=2, pending=("wait:0:w", "sleep:0")),
    TickRecordResult(at=4.5, source=SOURCE, name="bill", value='{"type": "Release"}'),
    TickChildEnded(at=5.0, child=4, status="completed", event=ev("child")),
    TickCancelRun(at=6.0, reason="enough"),
]


@pytest.mark.parametrize("tick", TICKS, ids=lambda tick: type(tick).__name__)
def test_tick_comes_back(tick: WorkflowTick) -> None:
    assert codec.decode_tick(codec.encode_tick(tick), "r") == tick


def test_defaults_are_not_written() -> None:
    assert codec.encode_tick(TickCancelRun(at=1.0)) == b'[1,{"type":"TickCancelRun","at":1.0}]'


def test_chunk_comes_back_with_its_numbers() -> None:
    published: list[Published] = [
        StepReport("work", "running", 0, KIND),
        IdleReport((WaiterReport("work", "app.Order", "w", (("a", {"type": "x"}),), 1.0),), 2.0),
        CancelledReport(),
        FailedReport("work", Failure("builtins.ValueError", "no"), 2, 0.5),
        ev("from nowhere"),
    ]
    chunk = codec.encode_chunk(TICKS, published, 7, 11)
    assert (chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events) == (7, len(TICKS), 11, 5)
    assert codec.decode_ticks("r", chunk) == TICKS
    assert codec.decode_published("r", chunk) == published


@pytest.mark.parametrize("tick", TICKS, ids=lambda tick: type(tick).__name__)
def test_published_event_that_came_with_a_tick_is_stored_once(tick: WorkflowTick) -> None:
    found = list(records_of(tick))
    chunk = codec.encode_chunk([TickPublishEvent(at=0.0, event=ev("before")), tick], found, 0, 0)
    for record in found:
        assert chunk.data.count(json.dumps(record.body).encode()) == 1
    assert codec.decode_published("r", chunk) == found


def test_event_that_differs_from_the_one_in_the_tick_is_not_taken_for_it() -> None:
    brought = ev("x")
    shared = EventRecord(KIND, brought.body, shared=True)
    renamed = EventRecord(EventKind("app.Other"), brought.body)
    chunk = codec.encode_chunk([TickPublishEvent(at=0.0, event=brought)], [shared, renamed, brought], 0, 0)
    assert codec.decode_published("r", chunk) == [shared, renamed, brought]


# -- states ------------------------------------------------------------------------------------------------------------


def crowded(order: int = 1) -> BrokerState:
    """A state with something in every kind of place; `order` turns the order in which its maps were filled."""
    failed = EventRecord(STEP_FAILED_KIND, StepFailure("work", ev("in"), Failure("x.E", "m"), 2, 0.5, 1.0))
    joined = EventRecord(RELEASE_KIND, Release(1, "gather", (ev("a"), failed)))
    item = WorkItem(1, "work", failed, StepInput(Origin((1,)), (("left", ev("l")),)), reserved=Map({"b": (ev("r"),)}))
    queue = Fifo.of([item, WorkItem(2, "work", joined)])
    workers = [(f"step {n}", InternalStepWorkerState(1, queue, ready=Fifo.of(range(n)))) for n in range(40)][::order]
    buffers = Map({"b": CollectBuffer(Fifo.of([ev("c")] * 70), Map({"app.Order": 70}), 3)})
    workers.append(("collector", InternalStepWorkerState(2, collected_events=buffers)))
    plan = StepsPlan(
        Map({n: Stream("work", (n,), 2, Map({"gather": JoinBuffer(Fifo.of([ev("m")]))})) for n in range(30)[::order]}),
        30,
        Map({"pair": Map({"left": Fifo.of([ev("s")])})}),
    )
    return BrokerState(
        run_id="r",
        is_running=True,
        config=BrokerConfig("w", (StepSpec("work"),)),
        workers=Map(workers),
        plan=plan,
        timers=Map({n: Timer(1.0, "sleep", "work", n) for n in range(20)[::order]}),
        store=Map({f"key {n}": f":{n}" for n in range(20)[::order]}),
        seen=Map({f"event {n}": n for n in range(20)[::order]}),
    )


def test_state_comes_back_whole() -> None:
    state = crowded()
    back = codec.decode_state("r", codec.encode_state(state))
    assert back == state
    assert codec.encode_state(back) == codec.encode_state(state)
    assert codec.decode_state("r", codec.encode_state(BrokerState())) == BrokerState()


def test_equal_states_are_written_alike_whatever_their_history() -> None:
    assert codec.encode_state(crowded(1)) == codec.encode_state(crowded(-1))
    queue: Fifo[int] = Fifo.of(range(100))
    for _ in range(60):
        queue = queue.pop_front()[1]
    for number in (59, 58):
        queue = queue.push_front(number)
    turned = BrokerState(workers=Map({"s": InternalStepWorkerState(ready=queue)}), timers=Map({1: 1}).delete(1))
    straight = BrokerState(workers=Map({"s": InternalStepWorkerState(ready=Fifo.of(range(58, 100)))}))
    assert turned == straight
    assert codec.encode_state(turned) == codec.encode_state(straight)


def test_values_that_have_left_a_queue_are_not_written() -> None:
    queue: Fifo[WorkItem] = Fifo.of(WorkItem(n, "work", ev(f"item {n}")) for n in range(40))
    queue = queue.pop_front()[1]
    data = codec.encode_state(BrokerState(workers=Map({"work": InternalStepWorkerState(queue=queue)})))
    assert b"item 0" not in data
    assert b"item 1" in data


# -- starts ------------------------------------------------------------------------------------------------------------


def test_start_comes_back_and_equal_starts_are_equal_bytes() -> None:
    one = codec.StartSpec(ev("s"), None, {"a": ":1", "b": ":2"}, "app.State", 2**80)
    two = codec.StartSpec(ev("s"), None, {"b": ":2", "a": ":1"}, "app.State", 2**80)
    assert codec.encode_start(one) == codec.encode_start(two)
    assert codec.decode_start("r", codec.encode_start(two)) == one
    assert codec.decode_start("r", codec.encode_start(codec.StartSpec())) == codec.StartSpec()


# -- policies ----------------------------------------------------------------------------------------------------------


def test_lone_surrogates_in_words_of_the_engine_become_replacement_characters() -> None:
    tick = TickCancelRun(at=1.0, reason="a\ud800\ud83d\ude00ü")
    assert codec.decode_tick(codec.encode_tick(tick), "r") == TickCancelRun(at=1.0, reason="a\ufffd\U0001f600ü")
    chunk = codec.encode_chunk([tick], [FailedReport("s", Failure("x.E", "\udfff"))], 0, 0)
    assert codec.decode_published("r", chunk) == [FailedReport("s", Failure("x.E", "\ufffd"))]
    state = BrokerState(seen=Map({"\ud800": 1}), plan=StepsPlan(opened=3))
    assert codec.decode_state("r", codec.encode_state(state)) == BrokerState(seen=Map({"\ufffd": 1}), plan=state.plan)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_lacks_are_refused(number: float) -> None:
    ticks: list[WorkflowTick] = [
        TickCancelRun(at=number),
        TickSleep(at=1.0, source=SOURCE, occurrence=0, delay_s=number),
        TickStepResult(at=1.0, step="s", item=1, seq=1, failure=Failure("x.E", ""), retry_delay_s=number),
    ]
    for tick in ticks:
        with pytest.raises(ValueError, match=r"Tick\w+\.\w+ is -?(nan|inf), and only finite numbers"):
            codec.encode_tick(tick)
        with pytest.raises(ValueError, match="only finite numbers"):
            codec.encode_chunk([tick], [], 0, 0)


def test_body_that_could_be_taken_for_a_record_is_refused() -> None:
    tick = TickAddEvent(at=1.0, event=EventRecord(KIND, {"type": "Release", "stream": 1, "step": "", "members": []}))
    with pytest.raises(ValueError, match=r"body of app\.Order is a dict"):
        codec.encode_tick(tick)


def test_live_object_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be stored"):
        codec.encode_tick(TickAddEvent(at=1.0, event=EventRecord(KIND, object())))


# -- damage ------------------------------------------------------------------------------------------------------------


def damaged(chunk: Chunk, old: bytes, new: bytes) -> Chunk:
    assert chunk.data.count(old) == 1
    return msgspec.structs.replace(chunk, data=chunk.data.replace(old, new))


CHUNK = codec.encode_chunk(
    [
        TickCancelRun(at=1.0, reason="first"),
        TickAddEvent(at=2.0, event=EventRecord(RELEASE_KIND, Release(1, "gather", ())), origin=StepInput()),
    ],
    [StepReport("work", "running", 0, KIND), EventRecord(RELEASE_KIND, Release(2, "join", ()))],
    40,
    70,
)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (b'"TickCancelRun"', b'"TickExplode"', "tick 40"),
        (b'"reason":"first"', b'"reason":3', "tick 40"),
        (b'"at":2.0', b'"when":2.0', "tick 41"),
        (b'"StepInput"', b'"Passage"', "tick 41"),
        (b'"StepInput"', b'["StepInput"]', "tick 41"),
        (b'"stream":1', b'"stream":"1"', "tick 41"),
        (b'"running"', b'"flying"', "event 70"),
        (b'"stream":2', b'"streams":2', "event 71"),
        (b'["Event",', b'["Happening",', "event 71"),
        (b"[1,[{", b"[1,[[{", "tick 40"),
        (b"[1,[{", b"{", "the chunk of 2 ticks from tick 40"),
        (b"[1,[{", b"[0,[{", "the chunk of 2 ticks from tick 40"),
        (b"[1,[{", b'["1",[{', "the chunk of 2 ticks from tick 40"),
    ],
)
def test_damage_is_found_and_placed(old: bytes, new: bytes, place: str) -> None:
    bad = damaged(CHUNK, old, new)
    for decode in (codec.decode_ticks, codec.decode_published):
        with pytest.raises(CorruptRecord, match=f"Run 'r-1': {place} cannot be read: ") as caught:
            decode("r-1", bad)
        assert (caught.value.run_id, caught.value.place) == ("r-1", place)


def test_every_cut_is_damage() -> None:
    for length in range(len(CHUNK.data)):
        with pytest.raises(CorruptRecord):
            codec.decode_ticks("r", msgspec.structs.replace(CHUNK, data=CHUNK.data[:length]))


def test_chunk_must_hold_as_much_as_its_row_says() -> None:
    for change in ({"ticks": 3}, {"events": 1}):
        with pytest.raises(CorruptRecord, match="it holds 2 ticks and 2 events"):
            codec.decode_ticks("r", msgspec.structs.replace(CHUNK, **change))


def test_reference_must_lead_to_a_record() -> None:
    record = ev("x")
    chunk = codec.encode_chunk([TickPublishEvent(at=1.0, event=record)], [CancelledReport(), record], 0, 5)
    for number in (b"7", b"-1"):
        with pytest.raises(CorruptRecord, match="event 6 cannot be read: it refers to record"):
            codec.decode_published("r", damaged(chunk, b",0]]", b"," + number + b"]]"))


@pytest.mark.parametrize("damage", [b"[]", b"null", b"0", b'""', b'{"a":1}'])
def test_map_must_be_an_object_with_keys_that_fit(damage: bytes) -> None:
    data = codec.encode_state(BrokerState())
    assert data.count(b'"timers":{}') == 1
    with pytest.raises(CorruptRecord, match=r"its snapshot cannot be read: .*timers"):
        codec.decode_state("r", data.replace(b'"timers":{}', b'"timers":' + damage))


def test_nesting_without_end_is_damage() -> None:
    data = b"[1," + b"[" * 100_000
    for decode in (codec.decode_state, codec.decode_start):
        with pytest.raises(CorruptRecord):
            decode("r", data)
    with pytest.raises(CorruptRecord, match="a tick of its mail cannot be read"):
        codec.decode_tick(data, "r")


# -- versions ----------------------------------------------------------------------------------------------------------


def test_newer_format_says_so() -> None:
    newer = damaged(CHUNK, b"[1,[{", b"[%d,[{" % (codec.FORMAT_VERSION + 1))
    with pytest.raises(CorruptRecord, match="a newer version of Loom has written it"):
        codec.decode_ticks("r", newer)


def test_older_format_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    def second(kind: str, payload: list[Any]) -> list[Any]:
        assert kind == "start"
        return [2, {"sown": payload[1].pop("graine"), **payload[1]}]

    def third(kind: str, payload: list[Any]) -> list[Any]:
        assert payload[0] == 2
        return [3, {"seed": payload[1].pop("sown"), **payload[1]}]

    monkeypatch.setattr(codec, "FORMAT_VERSION", 3)
    monkeypatch.setattr(codec, "UPCASTERS", {1: second, 2: third})
    starts = codec.Format("start", _Start)
    read = starts.read("r", b'[1,{"graine":5,"store_type":"t"}]', lambda _error: "its start")
    assert read.start == codec.StartSpec(seed=5, store_type="t")
    assert starts.read("r", b'[3,{"seed":6}]', lambda _error: "its start").start.seed == 6


class _Start(msgspec.Struct, array_like=True):
    version: int
    start: codec.StartSpec


# -- the table of types ------------------------------------------------------------------------------------------------


class OtherPlan(msgspec.Struct, frozen=True, tag=True):
    cursor: int
    frames: Map[int, tuple[str, ...]] = Map()


def test_another_planner_registers_its_own_structs() -> None:
    state = BrokerState(plan=OtherPlan(3, Map({10: ("a",), 9: ()})), config=BrokerConfig("w", program=OtherPlan(0)))
    data = codec.encode_state(state)
    with pytest.raises(CorruptRecord, match="Unknown tag 'OtherPlan'"):
        codec.decode_state("r", data)
    codec.register_types(OtherPlan)
    codec.register_types(OtherPlan)
    assert codec.decode_state("r", data) == state


def test_only_tagged_objects_with_a_tag_of_their_own_can_be_registered() -> None:
    class Untagged(msgspec.Struct):
        pass

    class Listed(msgspec.Struct, tag=True, array_like=True):
        pass

    class Release(msgspec.Struct, tag=True):
        pass

    for struct in (Untagged, Listed):
        with pytest.raises(TypeError, match="must be an object with a tag"):
            codec.register_types(struct)
    with pytest.raises(ValueError, match="already belongs to"):
        codec.register_types(Release)


# -- decoders in threads ----------------------------------------------------------------------------------------------

_MAKE_DECODERS_IN_THREADS = """
import sys, threading
import msgspec
from loom.core.ticks import TickCancelRun, WorkflowTick
from loom.store.codec import decoder_of, encode

sys.setswitchinterval(1e-6)

class Message(msgspec.Struct):
    tick: WorkflowTick

data, go = encode(Message(TickCancelRun(at=1.0))), threading.Event()

def read():
    go.wait()
    decoder_of(Message).decode(data)

threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads:
    thread.start()
go.set()
for thread in threads:
    thread.join()
"""


def test_threads_that_need_decoders_of_the_same_structs_get_whole_ones() -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _MAKE_DECODERS_IN_THREADS]) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]

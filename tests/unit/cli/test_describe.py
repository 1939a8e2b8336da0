from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from loom.api.runs import StreamEvent
from loom.cli.describe import _TICKS, entry_words, event_words, tick_words
from loom.core.persistent import Fifo, Map
from loom.core.records import (
    CancelledReport,
    EventKind,
    EventRecord,
    FailedReport,
    Failure,
    IdleReport,
    Release,
    StepReport,
    TimedOutReport,
    UnhandledReport,
    WaiterReport,
)
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickChildEnded,
    TickEditStore,
    TickLeaveStep,
    TickResume,
    TickSkip,
    TickStepResult,
    WorkflowTick,
)
from loom.effects.flow_codec import FLOW_CODEC, AnyEventCodec
from loom.flows.calls import ACTION_KIND, END_KIND, RESPONSE_KIND, ActionReport, FlowEnd, FlowResponse
from loom.runtime.plain import fields_of, plain
from loom.runtime.streams import entry, shown
from loom.steps.events import Event, StopEvent
from loom.steps.registry import kind_of
from loom.steps.tagged import TaggedSerializer

KIND = EventKind("shop.Paid", (), "Paid", "<class 'shop.Paid'>")
PAID = EventRecord(KIND, '{"__is_pydantic": true, "value": {"sum": 5, "_data": {"by": "card"}}}')


class Seen(Event):
    count: int


def test_every_kind_of_tick_has_words() -> None:
    assert set(_TICKS) == {cls.__name__ for cls in get_args(WorkflowTick)}
    assert tick_words({"type": "TickOfTomorrow", "at": "…"}) == "TickOfTomorrow"


@pytest.mark.parametrize(
    ("tick", "words"),
    [
        (TickAddEvent(at=0, event=PAID, step="ship"), 'event Paid(sum=5, by="card") for ship from outside'),
        (TickAddEvent(at=0, event=PAID, waiter_id="w", source=Source("pay", 3, 1, 0)), "for waiter w from pay#3"),
        (TickStepResult(at=0, step="pay", item=1, seq=1), "pay#1 returned nothing"),
        (TickStepResult(at=0, step="pay", item=1, seq=1, returned=(PAID, PAID), fanned_out=True), "pay#1 returned ["),
        (
            TickStepResult(
                at=0, step="pay", item=1, seq=1, failure=Failure("builtins.ValueError", "a\nb"), retry_delay_s=5
            ),
            "pay#1 failed: ValueError: a b, again in 5s",
        ),
        (TickEditStore(at=0, base_version=0, changed={"a": "1"}, removed=("b",)), "store edited by outside: a, -b"),
        (TickSkip(at=0), "the delays were skipped"),
        (TickSkip(at=0, timer=7), "timer 7 was skipped"),
        (TickResume(at=0, away_s=65), "taken up after 1m 5s without a worker"),
        (TickResume(at=0), "taken up"),
        (TickLeaveStep(at=0, step="pay", item=1, seq=1, pending=("sleep:0",)), "pay#1 left its worker to wait"),
        (TickChildEnded(at=0, child=4, status="timed_out"), "child run 4 timed out"),
    ],
)
def test_what_happened_in_a_line(tick: WorkflowTick, words: str) -> None:
    assert words in tick_words({"type": type(tick).__name__, **plain(tick)})


@pytest.mark.parametrize(
    ("published", "words"),
    [
        (PAID, 'Paid(sum=5, by="card")'),
        (StepReport("pay", "not_running", 0, KIND, KIND, True), "step pay not running (Paid, returned Paid)"),
        (IdleReport((WaiterReport("pay", "shop.Paid"),), 0.0), "idle, waiting for shop.Paid"),
        (UnhandledReport(KIND, None, False, kept=True), "nobody took Paid"),
        (TimedOutReport(60.0, ("pay",)), "timed out after 1m, in pay"),
        (FailedReport("pay", Failure("shop.Broke", "")), "failed in pay: shop.Broke"),
        (CancelledReport(), "cancelled"),
        (
            EventRecord(END_KIND, FlowEnd("Succeeded", outputs={"last": {"type": "Int", "value": 3}})),
            'ended Succeeded, outputs { last: { type: "Int", value: 3 } }',
        ),
        (
            EventRecord(END_KIND, FlowEnd("Failed", error={"code": "Bad", "message": "it broke"})),
            "ended Failed: it broke",
        ),
        (EventRecord(RESPONSE_KIND, FlowResponse(202, {}, {"ok": True})), "response 202 { ok: true }"),
        (
            EventRecord(ACTION_KIND, ActionReport("get", "http", "Failed", 1.0, 2.0, message="no answer")),
            "get (http) Failed, 2s: no answer",
        ),
    ],
)
def test_what_stands_on_the_stream_in_a_line(published: Any, words: str) -> None:
    codec = (
        FLOW_CODEC if isinstance(published, EventRecord) and not isinstance(published.body, str) else AnyEventCodec()
    )
    assert entry_words(msgspec.convert(entry(shown(published, codec), 1, 0.0), StreamEvent)) == words


@pytest.mark.parametrize("event", [Seen(count=3), Seen(count=3, extra=[1, "x"]), StopEvent(result={"a": 1})])
def test_stored_fields_are_read_without_the_class(event: Event) -> None:
    record = EventRecord(kind_of(type(event)), TaggedSerializer().serialize(event))
    fields = fields_of(record)
    for name, value in fields.items():
        assert getattr(event, name) == value
    assert fields


def test_bodies_of_other_forms() -> None:
    assert fields_of(EventRecord(KIND, "not json")) == "not json"
    assert fields_of(EventRecord(KIND, '{"a": NaN}')) == {"a": "NaN"}
    assert event_words(plain(EventRecord(KIND, "not json"))) == "Paid(not json)"
    release = plain(EventRecord(KIND, Release(1, "join", (PAID,))))
    assert release["fields"]["members"] == [{"type": "shop.Paid", "fields": {"sum": 5, "by": "card"}}]


def test_long_fields_are_cut_in_words_only() -> None:
    record = EventRecord(KIND, '{"__is_pydantic": true, "value": {"text": "%s"}}' % ("x" * 1000))
    assert len(event_words(plain(record))) < 250
    assert len(plain(record)["fields"]["text"]) == 1000


def test_values_of_the_engine_as_plain_data() -> None:
    assert plain({"a": Map({2: (1, None), 1: Fifo.of([True])})}) == {"a": {"1": [True], "2": [1, None]}}

"""Every kind of tick survives being written and read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field

from loom import Event, HumanResponseEvent, StartEvent
from loom.core.config import BrokerConfig, StepSpec
from loom.core.records import Failure
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickPublishEvent,
    TickResume,
    TickSleep,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
    WorkflowTick,
)
from loom.effects.convert import exception_of, failure_of, record_of
from loom.runtime.journal_codec import JournalCodec
from loom.steps.serializers import JsonSerializer
from loom.steps.state_store import DictState, UnserializableKeyWarning


class Parcel(Event):
    weight: int


class Typed(BaseModel):
    since: datetime | None = None
    parcels: list[Parcel] = []
    handle: Any = Field(default=None, exclude=True)


SOURCE = Source("pack", 3, 7, 1)
PARCEL = record_of(Parcel(weight=2, note="fragile"))
CONFIG = BrokerConfig("shop", (StepSpec("pack", (PARCEL.kind.name,), num_workers=2, slots=(("a", ("x",)),)),), 45.0)


def codec(state_type: type[BaseModel] = DictState, serializer: JsonSerializer | None = None) -> JournalCodec:
    return JournalCodec(serializer or JsonSerializer(), state_type)


@pytest.mark.parametrize(
    "tick",
    [
        TickStartRun(at=1.5, run_id="r", config=CONFIG, event=record_of(StartEvent(a=1)), seed=9, store={"k": [1, {}]}),
        TickStartRun(at=1.5, run_id="r", config=BrokerConfig("w")),
        TickResume(at=2.0, away_s=0.25, config=CONFIG),
        TickAddEvent(at=3.0, more=True, event=PARCEL, step="pack", waiter_id="w", event_id="e", source=SOURCE),
        TickStepResult(
            at=4.0,
            step="pack",
            item=3,
            seq=7,
            returned=(PARCEL, PARCEL),
            fanned_out=True,
            collects=(CollectCall("default", PARCEL, (("x", 2),), True, 0, 4),),
        ),
        TickStepResult(at=4.0, step="pack", item=3, seq=7, failure=Failure("builtins.OSError", "x"), retry_delay_s=0.5),
        TickPublishEvent(at=5.0, event=PARCEL, source=SOURCE),
        TickAwaitEvent(
            at=6.0,
            source=SOURCE,
            waiter_id="w",
            occurrence=1,
            event_type="t",
            requirements=(("weight", 2), ("parcel", Parcel(weight=1))),
            timeout_s=3.0,
            waiter_event=PARCEL,
            suspends=False,
        ),
        TickSleep(at=7.0, source=SOURCE, occurrence=0, delay_s=3600.0),
        TickEndWait(at=8.0, step="pack", item=3, seq=7, key="k"),
        TickLeaveStep(at=8.5, step="pack", item=3, seq=7, pending=("k", "l")),
        TickEditStore(at=9.0, base_version=4, changed={"a": Parcel(weight=1), "b": 0}, removed=("c",), source=SOURCE),
        TickTimerFired(at=10.0, timer=4),
        TickTimeout(at=11.0, timer=5),
        TickCancelRun(at=12.0, reason="enough"),
    ],
    ids=lambda tick: type(tick).__name__,
)
def test_tick_comes_back_as_it_was(tick: WorkflowTick) -> None:
    text = codec().encode(tick)
    json.loads(text)
    assert codec().decode(text) == tick


def test_event_keeps_its_kind_and_its_extra_values() -> None:
    read = codec().decode(codec().encode(TickAddEvent(at=1.0, event=PARCEL)))
    assert isinstance(read, TickAddEvent)
    assert read.event.kind is PARCEL.kind
    assert read.event.body.note == "fragile"


def test_exception_comes_back_as_its_class() -> None:
    tick = TickStepResult(at=1.0, step="s", item=1, seq=1, failure=failure_of(KeyError("lost")))
    read = codec().decode(codec().encode(tick))
    assert isinstance(read, TickStepResult)
    assert read.failure is not None
    error = exception_of(read.failure)
    assert type(error) is KeyError
    assert str(error) == "'lost'"


def test_fields_of_a_typed_state_come_back_as_their_types() -> None:
    moment = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
    tick = TickEditStore(
        at=1.0, base_version=0, changed={"since": moment, "parcels": [Parcel(weight=3)], "handle": object()}
    )
    read = codec(Typed).decode(codec(Typed).encode(tick))
    assert isinstance(read, TickEditStore)
    assert read.changed == {"since": moment, "parcels": [Parcel(weight=3)]}, "a live handle belongs to no stored form"


def test_state_value_without_a_text_form_is_named() -> None:
    with pytest.raises(ValueError, match="Failed to serialize state value for key lock"):
        codec().encode(TickEditStore(at=1.0, base_version=0, changed={"lock": object()}))


def test_memory_of_an_agent_is_left_out_with_a_warning() -> None:
    with pytest.warns(UnserializableKeyWarning, match="memory"):
        text = codec().encode(TickEditStore(at=1.0, base_version=0, changed={"memory": object(), "a": 1}))
    read = codec().decode(text)
    assert isinstance(read, TickEditStore)
    assert read.changed == {"a": 1}


def test_class_that_is_not_allowed_is_refused() -> None:
    text = codec().encode(TickAddEvent(at=1.0, event=PARCEL))
    strict = codec(serializer=JsonSerializer(allowed_types=[HumanResponseEvent]))
    with pytest.raises(ValueError, match="not in the serializer's allowed types"):
        strict.decode(text)


def test_record_whose_event_is_none_is_refused() -> None:
    text = codec().encode(TickAddEvent(at=1.0, event=PARCEL))
    entry = json.loads(text)
    entry["tick"]["event"][1] = "[1]"
    with pytest.raises(ValueError, match="holds a list"):
        codec().decode(json.dumps(entry))

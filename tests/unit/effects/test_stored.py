"""The conversion of stored runs: events, values and stores as texts."""

from __future__ import annotations

import gc
import json
import math
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError, field_validator
from typing_extensions import override

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.commands import CommandRunWorker
from loom.core.records import RELEASE_KIND, STEP_FAILED_KIND, EventRecord, Failure, Release, StepFailure
from loom.core.state import WorkItem
from loom.core.ticks import TickAddEvent, TickParkRun, TickPublishEvent, TickStepResult, WorkflowTick
from loom.effects.binding import StepBinding
from loom.effects.convert import LIVE, exception_of, published_event
from loom.effects.execution import StepExecution
from loom.effects.flow_convert import FLOW
from loom.effects.flow_events import FlowEvent
from loom.effects.stored import MissingTypeError, StoredBodies, UnfitEventError
from loom.steps import events
from loom.steps.registry import wire_name
from loom.steps.serializers import BaseSerializer, JsonSerializer
from loom.steps.stand_ins import stand_in
from loom.steps.tagged import TaggedSerializer
from loom.store import codec

STORED = StoredBodies(TaggedSerializer())


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Parcel(Event):
    weight: int = 0
    size: Size = Size.LARGE
    sent: datetime | None = None
    loose: Any = None
    note: str = ""


class Wrapped(Event):
    inner: events.SerializableEvent


class Backwards(BaseSerializer):
    """A serializer of somebody else: JSON from right to left."""

    @override
    def serialize(self, value: Any) -> str:
        return JsonSerializer().serialize(value)[::-1]

    @override
    def deserialize(self, value: str) -> Any:
        return JsonSerializer().deserialize(value[::-1])


ALL = [STORED, StoredBodies(JsonSerializer()), StoredBodies(Backwards())]
EACH = pytest.mark.parametrize("convert", ALL, ids=["tagged", "json", "foreign"])


# -- events ------------------------------------------------------------------------------------------------------------


@EACH
def test_event_becomes_text_and_a_new_event(convert: StoredBodies) -> None:
    event = Parcel(weight=2, extra=[1])
    record = convert.record(event)
    assert record.kind is LIVE.record(event).kind
    assert isinstance(record.body, str)
    one, two = convert.event(record), convert.event(replace(record, shared=True))
    assert one == two == event
    assert one is not two
    assert one.extra is not two.extra


def test_event_that_cannot_be_stored_is_refused_with_its_type_and_path() -> None:
    with pytest.raises(ValueError, match=r"The event \S*Parcel cannot be stored: .*value\.extra\.a: object of type"):
        STORED.record(Parcel(extra={"a": object()}))


def test_text_with_lone_surrogates_is_refused() -> None:
    class Careless(Backwards):
        @override
        def serialize(self, value: Any) -> str:
            return "\ud800"

    with pytest.raises(ValueError, match="lone surrogates"):
        StoredBodies(Careless()).record(Parcel())
    assert STORED.event(STORED.record(Parcel(note="\ud800", extra="\udfff"))) == Parcel(note="\ud800", extra="\udfff")


def test_record_that_holds_no_event_is_refused() -> None:
    with pytest.raises(ValueError, match=r"record of an event \S*Parcel holds a list"):
        STORED.event(EventRecord(STORED.record(Parcel()).kind, "[1]"))


def test_class_that_is_gone_is_a_missing_type() -> None:
    def make() -> tuple[EventRecord, EventRecord]:
        class Gone(Event):
            pass

        return STORED.record(Gone()), STORED.record(Wrapped(inner=Gone()))

    plain, nested = make()
    gc.collect()
    for record in (plain, nested):
        with pytest.raises(MissingTypeError, match=r"Unknown type '\S*\.Gone'") as caught:
            STORED.event(record)
        assert caught.value.name.endswith(".Gone")


class Login(Event):
    """Has a validator that says too much."""

    user: str
    password: str

    @field_validator("password")
    @classmethod
    def long_enough(cls, value: str) -> str:
        assert len(value) > 9, f"{value} is too short"
        return value


def test_an_event_of_a_class_is_checked_and_that_of_a_stand_in_is_not() -> None:
    assert STORED.record(Parcel()).checked is True
    loose = STORED.record(stand_in(wire_name(Parcel))(weight=2))
    assert (loose.checked, loose.kind.name) == (False, STORED.record(Parcel()).kind.name)
    assert STORED.event(loose) == Parcel(weight=2)
    assert STORED.checked(loose).checked is True
    unknown = STORED.record(stand_in("a.module.without.Class")(weight=2))
    assert STORED.checked(unknown) == unknown


def test_what_is_told_of_an_event_that_does_not_fit_has_no_values_in_it() -> None:
    wrong = STORED.record(stand_in(wire_name(Login))(user=[4711], password="hush"))
    with pytest.raises(UnfitEventError) as caught:
        STORED.event(wrong)
    assert str(caught.value) == (
        "Login does not fit its class: user: Input should be a valid string; password: The value is refused"
    )
    with pytest.raises(UnfitEventError, match="does not fit its class"):
        STORED.checked(wrong)


def test_a_flow_takes_an_event_that_does_not_fit_its_class_by_its_fields() -> None:
    wrong = FLOW.record(stand_in(wire_name(Login))(user=1))
    event = FLOW.event(wrong)
    assert isinstance(event, FlowEvent)
    assert (event.name, event.data) == ("Login", {"user": 1})


def test_what_cannot_be_read_at_all_is_told_by_the_kind_of_error() -> None:
    class Broken(Backwards):
        @override
        def deserialize(self, value: str) -> Any:
            raise KeyError("hush")

    convert = StoredBodies(Broken())
    with pytest.raises(UnfitEventError, match=r"Parcel does not fit its class: it cannot be read \(KeyError\)"):
        convert.event(convert.record(Parcel()))


def test_an_event_without_a_mark_raises_what_it_raised_before_there_were_marks() -> None:
    record = STORED.record(stand_in(wire_name(Login))(user=1)).without_marks()
    with pytest.raises(ValidationError):
        STORED.event(record)
    # A start is checked in any case.
    start = STORED.record(stand_in(wire_name(Order))(amount="many")).without_marks()
    with pytest.raises(UnfitEventError):
        STORED.event(EventRecord(STORED.record(Order(amount=1)).kind, start.body))


class Order(StartEvent):
    amount: int


def test_model_that_does_not_fit_its_class_any_more_is_no_missing_type() -> None:
    record = STORED.record(Parcel(weight=1))
    data = json.loads(record.body)
    data["value"]["weight"] = "much"
    with pytest.raises(ValueError, match="weight") as caught:
        STORED.event(replace(record, body=json.dumps(data)))
    assert not isinstance(caught.value, MissingTypeError)


def test_events_of_the_engine_are_made_of_stored_ones() -> None:
    inner = STORED.record(Parcel(weight=2))
    failure = StepFailure("pack", inner, Failure("builtins.ValueError", "no"), 3, 1.5, 1_700_000_000.0)
    event = STORED.event(EventRecord(STEP_FAILED_KIND, failure))
    assert isinstance(event, events.StepFailedEvent)
    assert event.input_event == Parcel(weight=2)
    assert STORED.field(EventRecord(STEP_FAILED_KIND, failure), "step_name") == "pack"
    joined = EventRecord(RELEASE_KIND, Release(2, "join", (inner, inner)))
    release = STORED.event(joined)
    assert isinstance(release, events.CollectionReleaseEvent)
    assert release.events == [Parcel(weight=2)] * 2
    assert STORED.field(joined, "binding_id") == "join"
    assert published_event(inner, STORED) == Parcel(weight=2)


def test_failure_is_a_name_and_a_message() -> None:
    failure = STORED.failure(KeyError("lost \ud800"))
    assert failure == Failure("builtins.KeyError", "'lost \\ud800'")
    assert STORED.failure(ValueError("\ud800")) == Failure("builtins.ValueError", "\ufffd")
    assert isinstance(exception_of(failure), KeyError)


def test_names_lose_lone_surrogates() -> None:
    assert STORED.text("a\ud800\ud83d\ude00ü") == "a\ufffd\U0001f600ü"
    assert LIVE.text("a\ud800") == "a\ud800"


@EACH
def test_values_are_kept(convert: StoredBodies) -> None:
    value = {"a": [1, None, Parcel(weight=3)]}
    text = convert.value(value)
    assert isinstance(text, str)
    assert convert.read_value(text) == value
    assert LIVE.read_value(LIVE.value(value)) is value


# -- requirements ------------------------------------------------------------------------------------------------------

MOMENT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@EACH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weight", 7),
        ("size", Size.SMALL),
        ("sent", MOMENT),
        ("loose", [1, {"type": "StepFailure"}]),
        ("note", "ü"),
        ("extra", {"a": [1]}),
        ("extra", None),
    ],
)
def test_field_equals_the_requirement_of_the_same_value(convert: StoredBodies, name: str, value: Any) -> None:
    wanted = convert.requirement(Parcel, name, value)
    assert convert.field(convert.record(Parcel(**{name: value})), name) == wanted
    assert json.loads(json.dumps(wanted)) == wanted
    assert convert.field(convert.record(Parcel(weight=1, note="other", loose=0, extra=1)), name) != wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loose", (1, 2)),
        ("extra", (1, Size.SMALL)),
        ("extra", MOMENT),
        ("extra", math.inf),
        ("extra", math.nan),
        ("note", "\ud800"),
        ("extra", ["\ud800"]),
        ("extra", 2**80),
        ("extra", {1: 2}),
    ],
)
def test_requirement_that_json_has_no_form_for_is_met_after_it_was_stored(name: str, value: Any) -> None:
    wanted = STORED.requirement(Parcel, name, value)
    assert json.dumps(wanted, ensure_ascii=False).encode()
    assert json.loads(json.dumps(wanted, allow_nan=False)) == wanted
    assert STORED.field(STORED.record(Parcel(**{name: value})), name) == wanted
    assert STORED.field(STORED.record(Parcel()), name) != wanted


def test_field_is_read_without_the_class() -> None:
    def make() -> EventRecord:
        class Vanished(Event):
            number: int

        return STORED.record(Vanished(number=5, extra="x"))

    record = make()
    gc.collect()
    assert STORED.field(record, "number") == 5
    assert STORED.field(record, "extra") == "x"
    assert STORED.field(record, "nothing") is None


def test_wanted_value_of_another_type_than_its_field_is_compared_as_it_is() -> None:
    assert STORED.requirement(Parcel, "weight", "7") == "7"
    assert STORED.field(STORED.record(Parcel(weight=7)), "weight") != "7"
    with pytest.raises(ValueError, match="requirement extra of Parcel cannot be stored"):
        STORED.requirement(Parcel, "extra", object())


def test_result_of_a_stop_event_can_be_required() -> None:
    assert STORED.field(STORED.record(StopEvent(result=(1,))), "result") == STORED.requirement(
        StopEvent, "result", (1,)
    )


def test_field_of_an_event_whose_extras_are_no_names() -> None:
    event = Parcel(extra=1)
    event[3] = "three"  # type: ignore[index]  # the mapping face takes any key
    assert STORED.field(STORED.record(event), "extra") == 1


# -- bodies ------------------------------------------------------------------------------------------------------------


class Sorts(Workflow):
    @step
    async def sort(self, ctx: Context, ev: StartEvent) -> StopEvent:
        found = ctx.collect_events(Parcel(weight=1), [Parcel, Parcel], buffer_id="b\ud800")
        ctx.send_event(Parcel(weight=2, extra=(1,)))
        ctx.write_event_to_stream(Parcel(weight=3))
        return StopEvent(result=(ev.topic, found))


class Desk:
    """A run as far as one execution needs it: it takes down what the body does."""

    convert = STORED
    run_id = "r"
    loop_ends = False
    max_unsaved = None

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        pass

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.ticks: list[WorkflowTick] = []

    def now(self) -> float:
        return 5.0

    def report(self, tick: WorkflowTick) -> None:
        self.ticks.append(tick)

    def check_target(self, event: Event, step: str | None) -> None:
        self.workflow._check_target(event, step)

    def make_context(self, execution: StepExecution) -> Any:
        return Context._inside(self.workflow, execution)

    def executed(self, execution: StepExecution, result: TickStepResult) -> None:
        self.ticks.append(result)


async def worked(record: EventRecord, workflow: Workflow | None = None) -> list[WorkflowTick]:
    workflow = workflow or Sorts()
    function = workflow._get_steps()["sort"]
    binding = StepBinding("sort", function, function._step_config, workflow._resources(), STORED)
    desk = Desk(workflow)
    execution = StepExecution(desk, binding, CommandRunWorker(1, "sort", WorkItem(1, "sort", record), 0, 1, 5.0))
    await execution.work()
    return desk.ticks


async def test_everything_that_a_body_does_is_text() -> None:
    sent, shown, result = await worked(STORED.record(StartEvent(topic=("a", b"b"))))
    assert isinstance(sent, TickAddEvent)
    assert isinstance(shown, TickPublishEvent)
    assert isinstance(result, TickStepResult)
    records = [sent.event, shown.event, *result.returned, result.collects[0].event]
    assert all(isinstance(record.body, str) for record in records)
    assert STORED.event(sent.event).extra == (1,)
    assert STORED.event(result.returned[0]).result == (("a", b"b"), None)
    assert result.collects[0].buffer == "b\ufffd"
    for tick in (sent, shown, result):
        assert codec.decode_tick(codec.encode_tick(tick), "r") == tick


async def test_step_whose_event_type_is_missing_parks_the_run() -> None:
    record = replace(STORED.record(StartEvent()), body='{"__is_pydantic":true,"value":{},"qualified_name":"old.Start"}')
    (tick,) = await worked(record)
    assert isinstance(tick, TickParkRun)
    assert tick.at == 5.0
    assert "Step 'sort': Unknown type 'old.Start'" in tick.reason


async def test_result_that_cannot_be_stored_is_a_failure_of_its_step() -> None:
    class Careless(Sorts):
        @step
        async def sort(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=object())

    (result,) = await worked(STORED.record(StartEvent()), Careless())
    assert isinstance(result, TickStepResult)
    assert result.failure is not None
    assert result.failure.body is None
    assert "value.result: object of type object is not serialisable" in result.failure.message

"""The codec of stored runs: events, values and stores as texts."""

from __future__ import annotations

import gc
import json
import math
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, Field, ValidationError, field_serializer, field_validator, model_validator
from typing_extensions import override

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.commands import CommandRunWorker
from loom.core.records import RELEASE_KIND, STEP_FAILED_KIND, EventRecord, Failure, Release, StepFailure
from loom.core.state import WorkItem
from loom.core.ticks import TickAddEvent, TickParkRun, TickPublishEvent, TickStepResult, WorkflowTick
from loom.effects.binding import StepBinding
from loom.effects.event_codec import LIVE_CODEC, MissingTypeError, UnfitEventError, exception_of, published_event
from loom.effects.execution import StepExecution
from loom.effects.flow_codec import FLOW_CODEC
from loom.effects.flow_events import FlowEvent
from loom.effects.stored_codec import StoredEventCodec, storable
from loom.steps import events
from loom.steps.ports import definition_of
from loom.steps.registry import wire_name
from loom.steps.resources import ResourceManager
from loom.steps.serializers import BaseSerializer, JsonSerializer
from loom.steps.stand_ins import stand_in
from loom.steps.state_store import DictState, InMemoryStateStore, StoreEdit, UnserializableKeyWarning
from loom.steps.tagged import TaggedSerializer
from loom.store.codec import decode_tick, encode_tick

STORED = StoredEventCodec(TaggedSerializer())


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


ALL = [STORED, StoredEventCodec(JsonSerializer()), StoredEventCodec(Backwards())]
EACH = pytest.mark.parametrize("codec", ALL, ids=["tagged", "json", "foreign"])


# -- events ------------------------------------------------------------------------------------------------------------


@EACH
def test_event_becomes_text_and_a_new_event(codec: StoredEventCodec) -> None:
    event = Parcel(weight=2, extra=[1])
    record = codec.record(event)
    assert record.kind is LIVE_CODEC.record(event).kind
    assert isinstance(record.body, str)
    one, two = codec.event(record), codec.event(replace(record, shared=True))
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
        StoredEventCodec(Careless()).record(Parcel())
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
    wrong = FLOW_CODEC.record(stand_in(wire_name(Login))(user=1))
    event = FLOW_CODEC.event(wrong)
    assert isinstance(event, FlowEvent)
    assert (event.name, event.data) == ("Login", {"user": 1})


def test_what_cannot_be_read_at_all_is_told_by_the_kind_of_error() -> None:
    class Broken(Backwards):
        @override
        def deserialize(self, value: str) -> Any:
            raise KeyError("hush")

    codec = StoredEventCodec(Broken())
    with pytest.raises(UnfitEventError, match=r"Parcel does not fit its class: it cannot be read \(KeyError\)"):
        codec.event(codec.record(Parcel()))


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
    assert LIVE_CODEC.text("a\ud800") == "a\ud800"


@EACH
def test_values_are_kept(codec: StoredEventCodec) -> None:
    value = {"a": [1, None, Parcel(weight=3)]}
    text = codec.value(value)
    assert isinstance(text, str)
    assert codec.read_value(text) == value
    assert LIVE_CODEC.read_value(LIVE_CODEC.value(value)) is value


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
def test_field_equals_the_requirement_of_the_same_value(codec: StoredEventCodec, name: str, value: Any) -> None:
    wanted = codec.requirement(Parcel, name, value)
    assert codec.field(codec.record(Parcel(**{name: value})), name) == wanted
    assert json.loads(json.dumps(wanted)) == wanted
    assert codec.field(codec.record(Parcel(weight=1, note="other", loose=0, extra=1)), name) != wanted


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

    codec = STORED
    run_id = "r"
    workflow_name = "tests"
    loop_ends = False
    max_unsaved = None

    def tell(self) -> None:
        """See `Host`."""

    def break_off(self, error: Exception) -> None:
        raise error

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        pass

    def __init__(self, workflow: Workflow) -> None:
        self.definition = definition_of(workflow)
        self.ticks: list[WorkflowTick] = []

    def now(self) -> float:
        return 5.0

    def report(self, tick: WorkflowTick) -> None:
        self.ticks.append(tick)

    def check_target(self, event: Event, step: str | None) -> None:
        self.definition.check_target(event, step)

    def make_context(self, execution: StepExecution) -> Any:
        return Context._of_run(execution.run, execution)

    def executed(self, execution: StepExecution, result: TickStepResult) -> None:
        self.ticks.append(result)


async def worked(record: EventRecord, workflow: Workflow | None = None) -> list[WorkflowTick]:
    workflow = workflow or Sorts()
    function = workflow._get_steps()["sort"]
    binding = StepBinding("sort", function, function._step_config, ResourceManager(), STORED)
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
        assert decode_tick(encode_tick(tick), "r") == tick


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


# --- the store of a run -----------------------------------------------------------------------------------------------


class Item(Event):
    weight: int = 0
    size: Size = Size.SMALL
    sent: datetime | None = None


class Odd:
    def __init__(self, number: int) -> None:
        self.number = number


class Basket(BaseModel):
    items: list[Item] = Field(default_factory=list)
    names: set[str] = Field(default_factory=set)
    total: float = 0.0
    handle: Any = Field(default=None, exclude=True)
    memory: Any = None
    odd: Odd | None = None

    model_config = {"arbitrary_types_allowed": True}

    @field_serializer("odd")
    def write_odd(self, value: Odd | None) -> int | None:
        return value.number if value is not None else None

    @field_validator("odd", mode="before")
    @classmethod
    def read_odd(cls, value: Any) -> Any:
        return Odd(value) if isinstance(value, int) else value


class BigBasket(Basket):
    lid: tuple[int, ...] = ()


TYPED = StoredEventCodec(TaggedSerializer(), Basket)


def edited(
    codec: StoredEventCodec, store: InMemoryStateStore[Any]
) -> list[tuple[dict[str, Any], tuple[str, ...], str]]:
    edits: list[tuple[dict[str, Any], tuple[str, ...], str]] = []

    def on_edit(edit: StoreEdit) -> bool:
        edits.append(codec.store_edit(edit))
        return True

    store.on_edit = on_edit
    return edits


def merged(edits: list[tuple[dict[str, Any], tuple[str, ...], str]]) -> tuple[dict[str, str], str]:
    values: dict[str, str] = {}
    name = ""
    for changed, removed, state_type in edits:
        for key in removed:
            values.pop(key, None)
        values.update(changed)
        name = state_type or name
    return values, name


async def test_store_without_declared_fields_comes_back() -> None:
    store: InMemoryStateStore[Any] = InMemoryStateStore()
    edits = edited(STORED, store)
    await store.set("a", {"b": (1, Item(weight=1))})
    await store.set("a.c", b"x")
    await store.set("gone", 1)
    async with store.edit_state() as state:
        del state.gone
    values, name = merged(edits)
    back = STORED.store_from(values, name, 4)
    assert back.version == 4
    assert (await back.get_state()) == DictState(a={"b": (1, Item(weight=1)), "c": b"x"})


async def test_declared_fields_are_written_as_their_types_say() -> None:
    store = InMemoryStateStore(Basket())
    edits = edited(TYPED, store)
    async with store.edit_state() as state:
        state.items.append(Item(weight=2, size=Size.SMALL, sent=MOMENT))
        state.names.add("x")
        state.total = math.inf
        state.handle = object()
        state.odd = Odd(7)
    values, name = merged(edits)
    assert name == ""
    assert "handle" not in values
    back = await TYPED.store_from(values).get_state()
    assert (back.items, back.names, back.total, back.handle) == (state.items, {"x"}, math.inf, None)
    assert back.odd is not None
    assert back.odd.number == 7


async def test_state_of_another_type_is_found_by_its_name() -> None:
    store: InMemoryStateStore[Any] = InMemoryStateStore(Basket())
    edits = edited(TYPED, store)
    await store.set_state(BigBasket(lid=(1, 2), names={"n"}))
    await store.set("total", 2.5)
    values, name = merged(edits)
    assert name.endswith("BigBasket")
    assert await TYPED.store_from(values, name).get_state() == BigBasket(lid=(1, 2), names={"n"}, total=2.5)
    for codec in (TYPED, StoredEventCodec(Backwards(), Basket)):
        with pytest.raises(MissingTypeError, match=r"nowhere\.Basket"):
            codec.store_from(values, "nowhere.Basket")


async def test_whole_store_is_staged() -> None:
    assert TYPED.store_values(InMemoryStateStore(state_type=Basket)) == ({}, "")
    staged = InMemoryStateStore(BigBasket(lid=(3,), handle=object()))
    values, name = TYPED.store_values(staged)
    assert await TYPED.store_from(values, name).get_state() == BigBasket(lid=(3,))
    assert TYPED.store_values(InMemoryStateStore(Basket(total=1.0)))[1] == ""


async def test_untouched_store_has_the_defaults_of_its_type() -> None:
    store = TYPED.store_from({}, "", 0)
    assert await store.get_state() == Basket()
    assert isinstance(await STORED.store_from({}).get_state(), DictState)


def test_value_that_cannot_be_stored_is_refused_with_its_key() -> None:
    with pytest.raises(ValueError, match=r"key 'a' cannot be stored: .*\[0\]: object of type object"):
        STORED.store_edit(StoreEdit(0, {"a": [object()]}))
    with pytest.raises(ValueError, match="lone surrogates"):
        STORED.store_edit(StoreEdit(0, {"\ud800": 1}))


def test_memory_of_an_agent_may_be_left_out() -> None:
    for codec in (STORED, TYPED):
        with pytest.warns(UnserializableKeyWarning, match="memory"):
            changed, removed, _ = codec.store_edit(StoreEdit(0, {"memory": object(), "b": 1}))
        assert set(changed) == {"b"}
        assert removed == ("memory",)


async def test_value_that_is_not_what_its_type_says_comes_back_all_the_same() -> None:
    changed, _, _ = TYPED.store_edit(StoreEdit(0, {"total": "much", "names": ("a", 1)}))
    back = await TYPED.store_from(changed).get_state()
    assert (back.total, back.names) == ("much", ("a", 1))


async def test_state_that_its_model_would_refuse_is_read_field_by_field() -> None:
    class Careful(BaseModel):
        low: int = 0
        high: int = 0

        @model_validator(mode="after")
        def ordered(self) -> Careful:
            assert self.low <= self.high
            return self

    codec = StoredEventCodec(TaggedSerializer(), Careful)
    changed, _, _ = codec.store_edit(StoreEdit(0, {"low": 5}))
    state = await codec.store_from(changed).get_state()
    assert (state.low, state.high) == (5, 0)
    with pytest.raises(ValueError, match="key 'low' cannot be read"):
        codec.store_from({"low": '="much"'})


async def test_field_that_is_declared_no_more_or_only_now_is_read() -> None:
    old, _, _ = STORED.store_edit(StoreEdit(0, {"total": 2.5, "names": {"a"}}))
    assert await TYPED.store_from(old).get_state() == Basket(total=2.5, names={"a"})
    typed, _, _ = TYPED.store_edit(StoreEdit(0, {"total": 2.5}))
    assert await STORED.store_from(typed).get_state() == DictState(total=2.5)


def test_live_conversion_leaves_edits_as_they_are() -> None:
    value = object()
    assert LIVE_CODEC.store_edit(StoreEdit(0, {"a": value}, ("b",))) == ({"a": value}, ("b",), "")
    assert LIVE_CODEC.store_edit(StoreEdit(0, {}, (), (), BigBasket))[2].endswith("BigBasket")
    assert LIVE_CODEC.requirement(Item, "weight", value) is value


@pytest.mark.parametrize("before", [0, 1, 4298, 4299, 4300, 8601])
@pytest.mark.parametrize("digits", [4299, 4300, 9000])
def test_a_long_number_is_found_wherever_it_stands(before: int, digits: int) -> None:
    text = f"[{'0,' * (before // 2)}{' ' * (before % 2)}{'7' * digits},1]"
    if digits < 4300:
        assert storable(text) == text
    else:
        with pytest.raises(ValueError, match="4,300 digits"):
            storable(text)
    quoted = f'["{text}",1]'
    assert storable(quoted) == quoted

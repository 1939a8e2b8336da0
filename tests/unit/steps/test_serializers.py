"""Values as JSON text and back: models by name, nothing by import, no data that poses as a type."""

from __future__ import annotations

import base64
import enum
import json
import math
import pickle
import sys
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import CollectionReleaseEvent, Event, StartEvent, StopEvent
from loom.steps.registry import AmbiguousTypeError, UnknownTypeError, wire_name
from loom.steps.serializers import BaseSerializer, JsonPickleSerializer, JsonSerializer, PickleSerializer


class Point(BaseModel):
    x: int = 0


class Ping(Event):
    n: int
    what: Any = None


class Opaque:
    pass


class Holder(Event):
    thing: Opaque
    fine: int = 1


class Component:
    """Shaped like a component of llama-index: not a model, but it can write and read itself."""

    def __init__(self, size: int) -> None:
        self.size = size

    @classmethod
    def class_name(cls) -> str:
        return "component"

    def to_dict(self) -> dict[str, Any]:
        return {"size": self.size}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Component:
        return cls(**data)


class Colour(str, enum.Enum):  # noqa: UP042 - a string that is an enum, as older programs write it
    RED = "red"


plain = JsonSerializer()

marks = st.sampled_from(["__is_pydantic", "__is_component", "\\__is_pydantic", "\\\\__is_component", "qualified_name"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | marks, inner, max_size=4),
    max_leaves=10,
)


def envelope(name: str, value: Any = None, mark: str = "__is_pydantic") -> str:
    return json.dumps({mark: True, "qualified_name": name, "value": value})


# --- round trips


@given(values)
def test_json_values_come_back_as_they_were(value: Any) -> None:
    assert plain.deserialize(plain.serialize(value)) == value


@given(values)
def test_the_text_is_ascii(value: Any) -> None:
    assert plain.serialize(value).isascii()


@given(values)
def test_any_value_survives_inside_an_event(value: Any) -> None:
    ping = Ping(n=1, what=value, extra=value)
    assert plain.deserialize(plain.serialize({"ev": [ping]})) == {"ev": [ping]}


def test_a_model_is_written_with_its_name() -> None:
    assert json.loads(plain.serialize(Ping(n=1, z=2))) == {
        "__is_pydantic": True,
        "value": {"n": 1, "what": None, "_data": {"z": 2}},
        "qualified_name": f"{__name__}.Ping",
    }
    assert json.loads(plain.serialize(StopEvent(result=1)))["qualified_name"] == "workflows.events.StopEvent"


def test_models_come_back_from_any_depth() -> None:
    value = {"a": [Point(x=1), {"b": Ping(n=2)}], "s": StartEvent(q=1)}
    assert plain.deserialize(plain.serialize(value)) == value
    assert plain.deserialize(plain.serialize((Point(),))) == [Point()]


def test_a_component_writes_and_reads_itself() -> None:
    text = plain.serialize([Component(3)])
    assert json.loads(text) == [
        {"__is_component": True, "value": {"size": 3}, "qualified_name": f"{__name__}.Component"}
    ]
    assert plain.deserialize(text)[0].size == 3


def test_a_component_of_the_main_program_is_found_by_the_stem_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type("Own", (Component,), {"__module__": "__main__"})
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/any/where/my_flow.py", Own=own))
    text = plain.serialize(own(3))
    assert json.loads(text)["qualified_name"] == "my_flow.Own"
    assert type(plain.deserialize(text)) is own
    assert type(plain.deserialize(text.replace("my_flow", "__main__"))) is own


def test_an_event_with_an_extra_called_class_name_is_no_component() -> None:
    event = Event(class_name="x")
    assert plain.deserialize(plain.serialize(event)) == event


def test_not_a_number_and_infinities_survive() -> None:
    back = plain.deserialize(plain.serialize([math.nan, math.inf, -math.inf, Ping(n=1, what=math.nan)]))
    assert math.isnan(back[0])
    assert back[1:3] == [math.inf, -math.inf]
    assert math.isnan(back[3].what)


def test_keys_that_json_turns_into_text() -> None:
    assert plain.deserialize(plain.serialize({1: "a", None: "b", 1.5: "c"})) == {"1": "a", "null": "b", "1.5": "c"}
    assert plain.deserialize(plain.serialize({True: Colour.RED})) == {"true": "red"}


# --- data cannot pose as a type


def test_a_users_dict_with_marks_stays_a_dict() -> None:
    for mark in ("__is_pydantic", "__is_component"):
        value = {mark: True, "qualified_name": f"{__name__}.Point", "value": {"x": 1}}
        assert plain.deserialize(plain.serialize(value)) == value


@pytest.mark.parametrize("name", ["os.system", "this.d", "builtins.dict", "nowhere.X"])
@pytest.mark.parametrize("mark", ["__is_pydantic", "__is_component"])
def test_a_name_from_data_is_never_imported_or_called(name: str, mark: str) -> None:
    with pytest.raises(UnknownTypeError, match=name):
        plain.deserialize(envelope(name, "echo", mark))
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "text",
    [
        '{"__is_pydantic": true, "qualified_name": "workflows.events.StartEvent"}',
        envelope(wire_name(WorkflowRuntimeError), "m"),
        envelope("workflows.events.StartEvent", {}, "__is_component"),
    ],
)
def test_an_envelope_that_cannot_be_built_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"Class workflows\.\S+ cannot be built from this data"):
        plain.deserialize(text)


def test_a_mark_without_a_name_is_just_data() -> None:
    assert plain.deserialize('{"__is_pydantic": true}') == {"__is_pydantic": True}
    assert plain.deserialize('{"__is_pydantic": true, "qualified_name": 5}')["qualified_name"] == 5


def test_values_are_validated_on_the_way_back() -> None:
    with pytest.raises(ValidationError):
        plain.deserialize(envelope(f"{__name__}.Point", {"x": "no"}))


# --- what has no JSON form


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "value: object of type set"),
        ({"a": [1, 2, {"b": Opaque()}]}, "value.a[2].b: object of type Opaque"),
        ([b"x"], "value[0]: object of type bytes"),
        ({"d": date(2020, 1, 1)}, "value.d: object of type date"),
        (Point, "value: object of type ModelMetaclass"),
        (Holder(thing=Opaque()), "value.thing: object of type Opaque"),
        ({"ev": Ping(n=1, z={"y": [Opaque()]})}, "value.ev.z.y[0]: object of type Opaque"),
        ([StopEvent(result={"r": Opaque()})], "value[0].result.r: object of type Opaque"),
        (Ping(n=1, what=Holder(thing=Opaque())), "value.what.thing: object of type Opaque"),
        (CollectionReleaseEvent(events=[Holder(thing=Opaque())]), "value.events[0].thing: object of type Opaque"),
        ({"k": {(1, 2): 3}}, "value.k: key (1, 2) of type tuple"),
        ({"k": {1: 2, "1": 3}}, "value.k: two keys become '1'"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match="Failed to serialize value") as caught:
        plain.serialize(value)
    assert message in str(caught.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested too deeply"):
        plain.serialize(loop)


def test_text_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        plain.deserialize("[" * 100_000 + "]" * 100_000)


def test_a_component_that_writes_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Failed to serialize value"):
        plain.serialize(Component(Opaque()))  # type: ignore[arg-type]


# --- which types are found


def test_without_allowed_types_models_of_the_process_are_found() -> None:
    class Local(BaseModel):
        a: int = 1

    assert plain.resolve_class(f"{__name__}.Local") is Local
    assert plain.resolve_class("workflows.events.StopEvent") is StopEvent


def test_with_allowed_types_only_those_and_the_frameworks_are_found() -> None:
    serializer = JsonSerializer(allowed_types=[Ping])
    assert serializer.deserialize(plain.serialize([Ping(n=1), StartEvent()])) == [Ping(n=1), StartEvent()]
    with pytest.raises(ValueError, match=rf"Class {__name__}\.Point is not in the serializer's allowed types\."):
        serializer.deserialize(plain.serialize(Point()))


def test_an_empty_list_allows_the_framework_only() -> None:
    serializer = JsonSerializer(allowed_types=[])
    assert serializer.resolve_class("workflows.events.StartEvent") is StartEvent
    with pytest.raises(ValueError, match="allowed types"):
        serializer.resolve_class(f"{__name__}.Ping")


def test_types_can_be_allowed_by_name() -> None:
    serializer = JsonSerializer(allowed_types=[f"{__name__}.Point", "nowhere.X"])
    assert serializer.deserialize(plain.serialize(Point(x=1))) == Point(x=1)
    with pytest.raises(UnknownTypeError, match=r"nowhere\.X"):
        serializer.resolve_class("nowhere.X")


@pytest.mark.parametrize("entry", [list[int], Any, 5, Point()])
def test_allowed_types_are_classes_or_names(entry: Any) -> None:
    with pytest.raises(TypeError, match="concrete classes"):
        JsonSerializer(allowed_types=[entry])


def test_two_allowed_classes_cannot_share_a_name() -> None:
    other = type(BaseModel)("Point", (BaseModel,), {"__module__": __name__, "__qualname__": "other.Point"})
    with pytest.raises(ValueError, match="Two classes claim the serialized name"):
        JsonSerializer(allowed_types=[Point, other])


def test_types_can_be_added() -> None:
    base = JsonSerializer(allowed_types=[Ping])
    extended = base.with_types(Point)
    assert extended.deserialize(plain.serialize([Ping(n=1), Point()])) == [Ping(n=1), Point()]
    assert not base.allows(f"{__name__}.Point")
    assert base.with_types() is base


def test_added_types_decide_between_classes_of_one_name() -> None:
    def define(qualname: str) -> type[Event]:
        return type(Event)("Twin", (Event,), {"__module__": "somewhere", "__qualname__": qualname})

    one, two = define("one.Twin"), define("two.Twin")
    text = plain.serialize(one(a=1))
    with pytest.raises(AmbiguousTypeError):
        plain.deserialize(text)
    assert type(plain.with_types(two).deserialize(text)) is two
    assert type(plain.with_types(one).deserialize(text)) is one


def test_nested_events_obey_the_same_serializer() -> None:
    text = plain.serialize(CollectionReleaseEvent(events=[Ping(n=1)]))
    assert plain.deserialize(text).events == [Ping(n=1)]
    with pytest.raises(ValidationError, match="allowed types"):
        JsonSerializer(allowed_types=[]).deserialize(text)
    assert JsonSerializer(allowed_types=[Ping]).deserialize(text).events == [Ping(n=1)]


def test_a_subclass_stays_itself_with_added_types() -> None:
    class Mine(JsonSerializer):
        pass

    assert type(Mine(allowed_types=[]).with_types(Point)) is Mine


# --- other serializers


def test_a_serializer_needs_two_methods() -> None:
    class Upper(BaseSerializer):
        def serialize(self, value: Any) -> str:
            return str(value).upper()

        def deserialize(self, value: str) -> Any:
            return value.lower()

    with Upper().validation_context():
        assert Upper().deserialize(Upper().serialize("a")) == "a"
    with pytest.raises(TypeError, match="abstract"):
        BaseSerializer()  # type: ignore[abstract]


def test_the_pickle_serializer_warns_and_speaks_json() -> None:
    with pytest.warns(UserWarning, match="JSON only"):
        serializer = PickleSerializer()
    assert JsonPickleSerializer is PickleSerializer
    assert serializer.serialize({"a": Point()}) == plain.serialize({"a": Point()})
    assert serializer.deserialize(plain.serialize(Ping(n=1))) == Ping(n=1)
    with pytest.raises(ValueError, match="not serialisable"):
        serializer.serialize(Opaque())


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_refused_and_named_as_such(protocol: int) -> None:
    with pytest.warns(UserWarning, match="JSON only"):
        serializer = PickleSerializer()
    with pytest.raises(ValueError, match="is a pickle"):
        serializer.deserialize(base64.b64encode(pickle.dumps({"a": 1}, protocol)).decode())


@pytest.mark.parametrize("protocol", [0, 1])
def test_old_pickles_are_not_read_either(protocol: int) -> None:
    with pytest.warns(UserWarning, match="JSON only"):
        serializer = PickleSerializer()
    with pytest.raises(ValueError, match="Expecting value"):
        serializer.deserialize(base64.b64encode(pickle.dumps({"a": 1}, protocol)).decode())

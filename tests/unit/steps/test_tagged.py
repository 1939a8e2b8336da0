"""JSON that keeps what JSON loses."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer, model_serializer

from loom import Event, StopEvent
from loom.steps.registry import UnknownTypeError
from loom.steps.serializers import JsonSerializer
from loom.steps.tagged import MAX_DEPTH, TaggedSerializer

TAGGED = TaggedSerializer()


class Colour(Enum):
    RED = (1, 2)


class Level(IntEnum):
    LOW = 1


class Rights(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int


class Item(BaseModel):
    name: str = ""
    loose: Any = None


class Box(Event):
    width: int = 0
    loose: Any = None


class Typed(Event):
    number: float = 0.0
    text: str = ""
    pair: tuple[int, str] = (0, "")
    names: frozenset[str] = frozenset()
    moment: datetime | None = None
    item: Item = Item()
    huge: int = 0


def again(value: Any, serializer: JsonSerializer = TAGGED) -> Any:
    return serializer.deserialize(serializer.serialize(value))


VALUES = [
    (1, "a", (2,)),
    (),
    {1, 2},
    frozenset({"a"}),
    b"\x00\xff",
    bytearray(b"x"),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2026, 1, 2, 3),  # noqa: DTZ001 - a naive time is a value too
    date(1, 1, 1),
    time(1, 2, 3, 4),
    timedelta(days=-1, microseconds=3),
    Decimal("1.10"),
    Decimal("-Infinity"),
    UUID(int=5),
    complex(1, -0.0),
    math.inf,
    -math.inf,
    -0.0,
    2**63,
    -(2**63) - 1,
    10**4000,
    Path("/tmp/x"),
    "\ud800 alone",
    "\U0001f600 ü \x00",
    Colour.RED,
    Level.LOW,
    Rights.READ | Rights.WRITE,
    {1: "a", "1": "b", None: "c", (1, 2): {True: Colour.RED}},
    {"__loom": "tuple", "value": [1]},
    {"\\__loom": 1, "\\\\__loom": 2},
    {"__is_pydantic": True, "value": {}, "qualified_name": "os.system"},
    {"type": "StepFailure"},
    {"\ud800": 1, "ü": 2},
    [None, True, 1, 1.5, "x", [], {}],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_value_comes_back_as_what_it_was(value: Any) -> None:
    for wrapped in (value, [value], {"k": value}, (value,)):
        back = again(wrapped)
        assert back == wrapped
        assert type(back) is type(wrapped)
    back = again(value)
    assert type(back) is type(value)
    assert isinstance(value, int) or repr(back) == repr(value)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_untyped_parts_of_events_and_models_keep_their_values(value: Any) -> None:
    box = again(Box(width=3, loose=value, extra=value))
    assert (box.width, box.loose, box.extra) == (3, value, value)
    assert type(box.loose) is type(box.extra) is type(value)
    assert again(StopEvent(result=value)).result == value
    assert again([Item(loose=value)]) == [Item(loose=value)]


def test_nan_is_kept() -> None:
    assert math.isnan(again(math.nan))
    assert math.isnan(again(Box(extra=[math.nan])).extra[0])
    assert math.isnan(again(Typed(number=math.nan)).number)


def test_typed_fields_survive_in_the_form_of_their_types() -> None:
    event = Typed(
        number=math.inf,
        text="\ud800",
        pair=(1, "\udfff"),
        names=frozenset({"a", "ü"}),
        moment=datetime(2026, 1, 2, tzinfo=UTC),
        item=Item(name="n"),
        huge=2**80,
    )
    back = again(event)
    assert back == event
    assert type(back.pair) is tuple
    assert type(back.names) is frozenset


def test_plain_event_is_written_as_the_plain_serializer_writes_it() -> None:
    event = Box(width=2, loose=None, note=[1, {"a": "b"}])
    assert json.loads(TAGGED.serialize(event)) == json.loads(JsonSerializer().serialize(event))


@pytest.mark.parametrize(
    "value",
    [Box(width=1, note={"__loom": "tuple"}), {"__loom": 1}, [1, {"a": None}], StopEvent(result={"x": 1}), math.inf],
)
def test_what_the_plain_serializer_wrote_is_read(value: Any) -> None:
    assert TAGGED.deserialize(JsonSerializer().serialize(value)) == value


def test_result_that_is_a_model_keeps_its_class() -> None:
    assert again(StopEvent(result=(Item(name="a"),))).result == (Item(name="a"),)


def test_tuple_with_names_becomes_a_plain_one() -> None:
    back = again(Point(1, 2))
    assert back == (1, 2)
    assert type(back) is tuple


def test_class_that_writes_itself_is_left_alone() -> None:
    class Own(Event):
        loose: Any = None

        @model_serializer(mode="wrap")
        def custom_model_dump(self, handler: Any) -> dict[str, Any]:
            return {"loose": f"own {len(self.loose)}"}

    class Shown(Event):
        loose: Any = None

        @field_serializer("loose")
        def show(self, value: Any) -> str:
            return f"shown {len(value)}"

    assert again(Own(loose=(1, 2))).loose == "own 2"
    assert again(Shown(loose=(1, 2))).loose == "shown 2"


def test_event_itself_is_not_touched_by_writing() -> None:
    box = Box(loose=(1,), extra={2})
    TAGGED.serialize(box)
    assert (box.loose, box.extra) == ((1,), {2})


def test_sets_are_written_in_one_order() -> None:
    assert TAGGED.serialize({"b", "a", "c"}) == TAGGED.serialize({"c", "b", "a"}) == TAGGED.serialize({"a", "c", "b"})
    assert json.loads(TAGGED.serialize({"b", "a"})) == {"__loom": "set", "value": ["a", "b"]}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "value: "),
        ({"a": [1, object()]}, r"value\.a\[1\]: "),
        ((1, {2: object()}), r"value\[1\]\.2: "),
        (Box(extra={"a": object()}), r"value\.extra\.a: "),
        (Box(loose=[object()]), r"value\.loose\[0\]: "),
        (StopEvent(result={"a": object()}), r"value\.result\.a: "),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(ValueError, match=f"Failed to serialize {path}object of type object is not serialisable"):
        TAGGED.serialize(value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_bounded() -> None:
    assert again(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    endless: list[Any] = []
    endless.append(endless)
    for value in (nested(MAX_DEPTH + 1), nested(50_000), endless, Box(extra=endless)):
        with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} levels deep"):
            TAGGED.serialize(value)
    with pytest.raises(ValueError, match="nested too deeply"):
        TAGGED.deserialize("[" * 50_000 + "]" * 50_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"__loom": "zip", "value": 1}', "Unknown tag 'zip'"),
        ('{"__loom": 1}', "A tag is a name, not 1"),
        ('{"__loom": "tuple"}', "'tuple' does not fit it: it is no list"),
        ('{"__loom": "set", "value": [[1]]}', "unhashable"),
        ('{"__loom": "dict", "value": [1]}', "'dict' does not fit"),
        ('{"__loom": "int", "value": 3}', "'int' does not fit"),
        ('{"__loom": "datetime", "value": "soon"}', "'datetime' does not fit"),
        ('{"__loom": "decimal", "value": "x"}', "'decimal' does not fit"),
        ('{"__loom": "bytes", "value": "%"}', "'bytes' does not fit"),
        ('{"__loom": "complex", "value": []}', "'complex' does not fit"),
        ('{"__loom": "uuid", "value": 3}', "'uuid' does not fit"),
        ('{"__loom": "enum", "class": "test_tagged.Nothing", "value": "A"}', "Unknown type 'test_tagged.Nothing'"),
        ('{"__loom": "enum", "value": "A"}', "Class None is not in"),
        ("{nonsense", "Expecting property name"),
    ],
)
def test_damaged_text_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TAGGED.deserialize(text)


def test_member_must_exist_and_its_class_be_allowed() -> None:
    text = TAGGED.serialize(Colour.RED)
    with pytest.raises(ValueError, match="has no member 'BLUE'"):
        TAGGED.deserialize(text.replace("RED", "BLUE"))
    with pytest.raises(ValueError, match="has no member 77"):
        TAGGED.deserialize(TAGGED.serialize(Rights.READ).replace(":1", ":77"))
    with pytest.raises(ValueError, match="not in the serializer's allowed types"):
        TaggedSerializer(allowed_types=[Box]).deserialize(text)
    assert TaggedSerializer(allowed_types=[Colour]).deserialize(text) is Colour.RED


def test_member_of_a_class_that_is_gone_is_an_unknown_type() -> None:
    with pytest.raises(UnknownTypeError) as caught:
        TAGGED.deserialize('{"__loom": "enum", "class": "gone.Colour", "value": "RED"}')
    assert caught.value.name == "gone.Colour"


def test_component_must_write_json() -> None:
    class Part:
        def __init__(self, size: Any) -> None:
            self.size = size

        @classmethod
        def class_name(cls) -> str:
            return "part"

        def to_dict(self) -> dict[str, Any]:
            return {"size": self.size}

        @classmethod
        def from_dict(cls, data: dict[str, Any]) -> Part:
            return cls(data["size"])

    serializer = TaggedSerializer(allowed_types=[Part])
    assert again([Part(3)], serializer)[0].size == 3
    with pytest.raises(ValueError, match="not JSON serializable"):
        serializer.serialize(Part({1}))


class Renamed(Event):
    weight: Any = Field(default=None, alias="w")


def test_untyped_field_with_another_name_outside_is_kept() -> None:
    assert again(Renamed(w=(1, 2))).weight == (1, 2)


_atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(st.characters(categories=["Cs"]), max_size=1)  # two could be a pair, which is one character in JSON
    | st.binary(max_size=5)
    | st.decimals(allow_nan=False)
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([Colour.RED, Rights.WRITE, PurePosixPath("a/b")])
)
_marks = st.sampled_from(["__loom", "value", "__is_pydantic", "qualified_name", "\\__loom", "tagged"])
_values = st.recursive(
    _atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | _marks, inner, max_size=4)
        | st.dictionaries(st.integers() | st.text(max_size=2) | st.none(), inner, max_size=3)
        | st.frozensets(_atoms, max_size=3)
        | st.sets(_atoms, max_size=3)
    ),
    max_leaves=12,
)


@given(_values)
@settings(max_examples=150, deadline=None)
def test_every_value_comes_back(value: Any) -> None:
    text = TAGGED.serialize(value)
    assert text.encode()  # it has a form in UTF-8, whatever the value held
    assert TAGGED.deserialize(text) == value
    assert repr(TAGGED.deserialize(text)) == repr(value) or isinstance(value, set | frozenset | dict | list | tuple)
    box = Box(loose=value, note=value)
    assert again(box) == box


def test_models_of_typed_fields_are_written_alike_the_first_time_and_later() -> None:
    class Fresh(Event):
        number: float = math.nan
        text: str = 'ü\u2028"\\'
        moment: datetime | None = None
        names: frozenset[str] = frozenset({"a"})
        big: int = 2**70

    fresh = Fresh(moment=datetime(2024, 2, 29, 12, tzinfo=UTC))
    first, later = TaggedSerializer().serialize(fresh), TaggedSerializer().serialize(fresh)
    assert repr(json.loads(first)) == repr(json.loads(later))
    assert repr(TAGGED.deserialize(later)) == repr(TAGGED.deserialize(first))


def test_undeclared_values_of_typed_models_keep_their_types_too() -> None:
    TAGGED.serialize(Typed())
    assert again(Typed(text="x", extra=(1, 2))).extra == (1, 2)


def test_typed_text_that_utf_8_has_no_form_for_is_kept() -> None:
    TAGGED.serialize(Typed())
    assert again(Typed(text="\ud800")).text == "\ud800"

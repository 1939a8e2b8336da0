"""Plain models are read and written in one go, to the same instances and the same texts as the usual way."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, computed_field, field_validator
from typing_extensions import override

from loom.effects.stored_codec import StoredEventCodec
from loom.steps.events import Event, StartEvent, StopEvent, fill_slot
from loom.steps.plain_models import has_extras, plain_model
from loom.steps.serializers import JsonSerializer
from loom.steps.tagged import TaggedSerializer

if TYPE_CHECKING:
    from collections.abc import Callable


class Plain(Event):
    number: int
    text: str = "x"
    share: float | None = None
    flags: list[bool] = Field(default_factory=list)
    counts: dict[str, list[int]] = Field(default_factory=dict)


class Nothing(Event):
    pass


def _plain_reader(cls: type[Any]) -> TaggedSerializer:
    """A serializer that has found the class by its name before: from then on it reads plain texts in one go."""
    serializer = TaggedSerializer().with_types(cls)
    serializer.resolve_class(_name(cls))
    return serializer


def _name(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__.rpartition('.')[2]}"


def _text(cls: type[Any], fields: Any) -> str:
    return f'{{"__is_pydantic":true,"value":{json.dumps(fields)},"qualified_name":"{_name(cls)}"}}'


def _outcome(read: Callable[[str], Any], text: str) -> str:
    try:
        event = read(text)
    except ValueError as error:
        return repr((type(error), str(error)))
    return repr((event, event._data, event.model_fields_set, list(event.__dict__), event.__pydantic_private__))


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 3), st.floats(), st.text(max_size=5), st.just("7")
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
_NAMES = st.sampled_from(["number", "text", "share", "flags", "counts", "_data", "other", "result", "__loom"])


def test_which_classes_are_plain() -> None:
    assert plain_model(Plain) is not None
    assert plain_model(Nothing) is not None
    assert plain_model(StartEvent) is not None
    assert plain_model(StopEvent) is None  # it has an `__init__` and a dump of its own


class _Checked(Event):
    n: int

    @field_validator("n")
    @classmethod
    def _even(cls, value: int) -> int:
        return value // 2 * 2


class _Bounded(Event):
    n: Annotated[int, Field(gt=3)]


class _Aliased(Event):
    n: int = Field(alias="m")


class _Strict(Event):
    model_config = ConfigDict(strict=True)
    n: float


class _Private(Event):
    _seen: int = PrivateAttr(default=3)
    n: int


class _Computed(Event):
    n: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.n


class _Initialised(Event):
    n: int

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.n += 1


class _PostInit(Event):
    n: int

    @override
    def model_post_init(self, _context: Any) -> None:
        self["seen"] = self.n


class _Loose(Event):
    n: Any = None


class _Inner(BaseModel):
    n: int


class _Nested(Event):
    inner: _Inner


@pytest.mark.parametrize(
    "cls", [_Checked, _Bounded, _Aliased, _Strict, _Private, _Computed, _Initialised, _PostInit, _Loose, _Nested]
)
def test_classes_with_code_constraints_or_other_types_are_not_plain(cls: type[Event]) -> None:
    assert plain_model(cls) is None


@given(fields=st.dictionaries(_NAMES, _VALUES, max_size=6))
def test_any_fields_are_read_as_the_usual_way_reads_them(fields: dict[str, Any]) -> None:
    serializer = _plain_reader(Plain)
    usual = partial(JsonSerializer.deserialize, serializer)  # past the short way
    text = _text(Plain, fields)
    assert _outcome(serializer.deserialize, text) == _outcome(usual, text)


@given(
    number=st.integers(),
    text=st.text(),
    share=st.none() | st.floats(),
    flags=st.lists(st.booleans()),
    counts=st.dictionaries(st.text(max_size=3), st.lists(st.integers())),
)
def test_plain_texts_are_byte_for_byte_the_usual_ones(**fields: Any) -> None:
    event = Plain(**fields)
    serializer = TaggedSerializer().with_types(Plain)
    first, again = serializer.serialize(event), serializer.serialize(event)  # the first time goes the longer way
    written = Plain.__pydantic_serializer__.to_json(event).decode() if _has_utf8(event) else None
    if written is not None:
        assert again == f'{{"__is_pydantic":true,"value":{written},"qualified_name":"{_name(Plain)}"}}'
    assert repr(_plain_reader(Plain).deserialize(again)) == repr(_plain_reader(Plain).deserialize(first)) == repr(event)


def _has_utf8(event: Event) -> bool:
    try:
        event.__pydantic_serializer__.to_json(event)
    except ValueError:
        return False
    return True


def test_undeclared_values_are_kept() -> None:
    serializer = _plain_reader(Plain)
    event = serializer.deserialize(_text(Plain, {"number": 1, "_data": {"more": [1]}}))
    assert (event.number, event["more"]) == (1, [1])
    aside = serializer.deserialize(_text(Plain, {"number": 1, "more": [1]}))  # as a stand-in writes it
    assert aside == event


def test_readings_share_nothing() -> None:
    serializer = _plain_reader(Plain)
    text = _text(Plain, {"number": 1, "text": "a", "share": None, "flags": [True], "counts": {"a": [1]}})
    one, other = serializer.deserialize(text), serializer.deserialize(text)
    one.counts["a"].append(2)
    one.more = 3
    del one.__pydantic_fields_set__
    assert other.counts == {"a": [1]}
    assert "more" not in other
    assert other.model_fields_set == set(Plain.model_fields)


@pytest.mark.parametrize(
    "text",
    [
        '{"__is_pydantic":true,"value":{"number":1},"qualified_name":"%s","tagged":""}',
        '{"__is_pydantic":true,"value":{"number":1},"more":2,"qualified_name":"%s"}',
        '{"__is_pydantic":true,"value":{"number":1}},"qualified_name":"%s"}',
        '{"__is_pydantic":true,"value":{"number":1},"qualified_name":"%s"',
        '{"__is_pydantic":true,"value":{"number":NaN,"share":Infinity},"qualified_name":"%s"}',
        '{"__is_pydantic":true,"value":[],"qualified_name":"%s"}',
        '{"__is_pydantic":true,"value":{"number":1,"text":"\\ud800"},"qualified_name":"%s"}',
    ],
)
def test_other_texts_are_read_or_refused_as_before(text: str) -> None:
    full = text % _name(Plain)
    serializer = _plain_reader(Plain)
    try:
        usual = JsonSerializer.deserialize(serializer, full)
    except ValueError as error:
        with pytest.raises(type(error)):
            serializer.deserialize(full)
    else:
        assert serializer.deserialize(full) == usual


def test_a_text_that_does_not_fit_names_its_fields() -> None:
    codec = StoredEventCodec(_plain_reader(Plain))
    with pytest.raises(ValidationError, match="number"):
        codec.read_value(_text(Plain, {"number": "seven"}))


def test_looking_for_extras_makes_none() -> None:
    event = Plain(number=1)
    assert not has_extras(event)
    assert not has_extras(Plain.model_construct(number=1))
    event.more = 2
    assert has_extras(event)
    fill_slot(event, None)
    assert dict(event._data) == {}

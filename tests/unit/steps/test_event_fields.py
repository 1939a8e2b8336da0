"""Fields and extras, the mapping face and fields of its names, dumps and copies."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic.alias_generators import to_camel

from loom import Context, HumanResponseEvent, Workflow, step
from loom.effects.verbose import summarize_event
from loom.steps.events import Event, StartEvent, StopEvent, WorkflowIdleEvent
from loom.steps.serializers import JsonSerializer, is_component

T = TypeVar("T")


class Ping(Event):
    n: int
    s: str = "x"


class Opaque:
    pass


class Holder(Event):
    value: Opaque


class Frozen(Event):
    model_config = ConfigDict(frozen=True)
    a: int


class Private(Event):
    _p: int = PrivateAttr(default=7)


class Custom(Event):
    a: int

    def __init__(self, a: int, b: int = 2, **kwargs: Any) -> None:
        super().__init__(a=a, b=b, **kwargs)


class Box(Event, Generic[T]):
    value: T


# --- fields and extras


def test_undeclared_keywords_become_extras_in_their_order() -> None:
    ping = Ping(z=1, n=2, a=3, m=4)
    assert (ping.n, ping.z, ping.a) == (2, 1, 3)
    assert list(ping.items()) == [("z", 1), ("a", 3), ("m", 4)]


def test_the_mapping_face_covers_only_extras() -> None:
    ping = Ping(n=1, z=2)
    assert ping["z"] == 2
    assert "z" in ping
    assert "n" not in ping
    assert (list(ping), list(ping.keys()), list(ping.values()), len(ping)) == (["z"], ["z"], [2], 1)
    assert ping.get("n") is None
    assert ping.get("q", 5) == 5
    assert ping.to_dict() is ping._data
    assert {**ping} == {"z": 2}
    with pytest.raises(KeyError):
        ping["n"]


def test_items_and_attributes_are_the_same_extras() -> None:
    event = Event()
    event["a"] = 1
    event.b = 2
    assert (event.a, event["b"], event._data) == (1, 2, {"a": 1, "b": 2})
    del event.a
    assert event._data == {"b": 2}


def test_events_are_always_true() -> None:
    assert Event()
    assert StopEvent()


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="'Ping' object has no attribute 'nope'"):
        Ping(n=1).nope  # noqa: B018


def test_fields_are_validated_and_extras_are_not() -> None:
    with pytest.raises(ValidationError, match="n"):
        Ping(n="many", z=Opaque())
    with pytest.raises(ValidationError, match="Field required"):
        Ping(z=1)


def test_fields_can_be_set_and_stay_out_of_the_extras() -> None:
    ping = Ping(n=1)
    ping.n = 5
    assert (ping.model_dump(), len(ping)) == ({"n": 5, "s": "x"}, 0)


def test_a_frozen_event_refuses_its_fields_and_can_be_hashed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Frozen(a=1).a = 2
    assert hash(Frozen(a=1)) == hash(Frozen(a=1))
    assert Frozen(a=1, z=2).z == 2


def test_assignment_is_validated_where_the_model_says_so() -> None:
    class Strict(Event):
        model_config = ConfigDict(validate_assignment=True)
        a: int

    event = Strict(a=1)
    event.a = "5"
    assert event.a == 5
    with pytest.raises(ValidationError):
        event.a = "x"


def test_private_attributes_come_by_keyword_too() -> None:
    event = Private(_p=3, z=1)
    assert (event._p, Private()._p, event._data) == (3, 7, {"z": 1})
    event._p = 4
    assert event._p == 4
    assert event != Private(_p=3, z=1)


def test_other_underscored_names_are_extras() -> None:
    assert Ping(n=1, _hidden=3)._data == {"_hidden": 3}


@pytest.mark.parametrize("extra", ["allow", "forbid", "ignore"])
def test_extras_do_not_depend_on_pydantics_own(extra: Any) -> None:
    class Odd(Event):
        model_config = ConfigDict(extra=extra)
        a: int = 1

    assert (Odd(z=1)._data, Odd.model_validate({"z": 1}).model_dump()) == ({"z": 1}, {"a": 1, "_data": {"z": 1}})


def test_a_constructor_of_its_own_may_take_positions() -> None:
    event = Custom(1, c=3)
    assert (event.a, event._data) == (1, {"b": 2, "c": 3})
    assert Custom.model_validate(event.model_dump()) == event


def test_generic_events_check_their_parameter() -> None:
    assert Box[int](value="1", z=2).model_dump() == {"value": 1, "_data": {"z": 2}}
    with pytest.raises(ValidationError):
        Box[int](value="x")


def test_properties_work_and_a_setter_is_used() -> None:
    class Square(Event):
        side: int

        @property
        def area(self) -> int:
            return self.side**2

        @area.setter
        def area(self, value: int) -> None:
            self.side = math.isqrt(value)

        @functools.cached_property
        def edge(self) -> int:
            return self.side * 4

    square = Square(side=3)
    square.area = 25
    assert (square.side, square.area, square.edge, len(square)) == (5, 25, 20, 0)


def test_extras_set_after_validation_are_kept() -> None:
    class Late(Event):
        a: int

        def model_post_init(self, context: Any) -> None:
            self.double = self.a * 2

    assert Late(a=2)._data == {"double": 4}
    assert Late(a=2, z=1)._data == {"double": 4, "z": 1}


def test_other_models_can_be_mixed_in() -> None:
    class Named(BaseModel):
        name: str = "?"

    class NamedPing(Ping, Named):
        pass

    assert NamedPing(n=1, name="a", z=2).model_dump() == {"name": "a", "n": 1, "s": "x", "_data": {"z": 2}}


@pytest.mark.parametrize(
    ("alias", "keywords"),
    [
        ({"alias": "x"}, {"x": 1}),
        ({"alias": "x"}, {"a": 1}),
        ({"validation_alias": "x"}, {"x": 1}),
        ({"validation_alias": AliasChoices("x", "y")}, {"y": 1}),
        ({"validation_alias": AliasPath("x", "y")}, {"x": {"y": 1}}),
    ],
)
def test_fields_answer_to_aliases_and_names(alias: dict[str, Any], keywords: dict[str, Any]) -> None:
    class Aliased(Event):
        a: int = Field(**alias)

    event = Aliased(**keywords, z=2)
    assert (event.a, event._data) == (1, {"z": 2})
    assert Aliased.model_validate(event.model_dump()) == event


def test_generated_aliases_are_known_even_before_the_class_is_complete() -> None:
    class Camel(Event):
        model_config = ConfigDict(alias_generator=to_camel)
        some_thing: Later

    class Later(BaseModel):
        pass

    assert Camel(someThing=Later(), z=1)._data == {"z": 1}


def test_bad_extras_are_a_validation_error() -> None:
    with pytest.raises(ValidationError, match="_data must be a dict"):
        Ping.model_validate({"n": 1, "_data": 5})


# --- dumps, copies, equality

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
extras = st.dictionaries(st.text(min_size=1).filter(lambda key: key not in {"n", "s", "self", "_data"}), json_values)


@given(n=st.integers(), extra=extras)
def test_a_dump_validates_to_an_equal_event(n: int, extra: dict[str, Any]) -> None:
    ping = Ping(n=n, **extra)
    assert Ping.model_validate(ping.model_dump()) == ping
    assert Ping.model_validate(ping.model_dump(mode="json")) == ping


@given(result=json_values, extra=extras)
def test_a_stop_event_keeps_result_and_extras(result: Any, extra: dict[str, Any]) -> None:
    extra.pop("result", None)
    stop = StopEvent(result=result, **extra)
    again = StopEvent.model_validate(stop.model_dump())
    assert (again, again.result, again._data) == (stop, result, extra)


@given(extra=extras)
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, Ping.model_copy])
def test_a_copy_is_equal_and_has_its_own_extras(make: Any, extra: dict[str, Any]) -> None:
    ping = Ping(n=1, **extra)
    copied = make(ping)
    assert copied == ping
    copied["only here"] = 1
    assert "only here" not in ping


@pytest.mark.parametrize("update", [None, {"n": 2}, {"z": 1}, {"n": 2, "z": 1}])
def test_a_deep_copy_shares_nothing(update: dict[str, Any] | None) -> None:
    ping = Ping(n=1, inner=[1])
    copied = ping.model_copy(deep=True, update=update)
    copied.inner.append(2)
    assert ping.inner == [1]


def test_a_copy_can_change_fields_and_extras() -> None:
    copied = Ping(n=1, z=1).model_copy(update={"n": 2, "z": 3, "w": 4})
    assert copied.model_dump() == {"n": 2, "s": "x", "_data": {"z": 3, "w": 4}}


def test_the_given_extras_are_not_the_callers_dict() -> None:
    given_data = {"a": 1}
    event = Event(_data=given_data, b=2)
    assert (event._data, given_data) == ({"a": 1, "b": 2}, {"a": 1})


def test_equality_counts_type_fields_and_extras() -> None:
    assert Ping(n=1, z=1) == Ping(n=1, z=1)
    assert Ping(n=1, z=1) != Ping(n=1)
    assert Ping(n=1) != Ping(n=2)
    assert StopEvent(result=1) != StopEvent(result=2)
    assert StartEvent() != StopEvent()
    assert Event() != 5


def test_an_event_without_extras_dumps_without_data() -> None:
    assert Ping(n=1).model_dump() == {"n": 1, "s": "x"}


def test_construct_skips_validation_and_keeps_extras() -> None:
    assert Ping.model_construct(n="no", z=1, _data={"w": 2}).model_dump(warnings=False) == {
        "n": "no",
        "s": "x",
        "_data": {"w": 2, "z": 1},
    }


def test_any_type_is_allowed_in_a_field() -> None:
    value = Opaque()
    assert Holder(value=value).value is value
    assert Holder(value=value).model_dump() == {"value": value}
    with pytest.raises(ValidationError):
        Holder(value=1)


def test_nan_in_a_float_field_survives_the_json_form() -> None:
    class Measured(Event):
        x: float

    assert math.isnan(Measured.model_validate(Measured(x=math.nan).model_dump(mode="json")).x)


NAMES = ("items", "keys", "values", "get", "to_dict")


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


with warnings.catch_warnings():
    warnings.simplefilter("error")

    class Order(StartEvent):
        items: list[str]
        keys: int
        values: dict[str, int]
        get: str
        to_dict: bool

    class Answer(HumanResponseEvent):
        items: list[str]

    class Total(StopEvent):
        values: int


VALUES: dict[str, Any] = {"items": ["tea"], "keys": 3, "values": {"tea": 1}, "get": "now", "to_dict": True}


def order(**extras: Any) -> Order:
    """An order with a value for each of the five names."""
    return Order(**VALUES, **extras)


# --- declared


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_field_is_required(name: str) -> None:
    assert Order.model_fields[name].is_required()
    assert name in Order.model_json_schema()["required"]
    with pytest.raises(ValidationError, match="Field required") as caught:
        Order(**{other: value for other, value in VALUES.items() if other != name})
    assert [error["loc"] for error in caught.value.errors()] == [(name,)]
    assert not hasattr(Order, name)


def test_declared_fields_are_read_written_dumped_and_compared() -> None:
    made = order(note="x")
    assert {name: getattr(made, name) for name in NAMES} == VALUES
    assert made.model_dump() == {**VALUES, "_data": {"note": "x"}}
    assert Order.model_validate(made.model_dump()) == made
    assert (made["note"], list(made), len(made)) == ("x", ["note"], 1)
    assert made != order(note="y")
    made.items = ["milk"]
    assert (made.items, made._data) == (["milk"], {"note": "x"})
    assert repr(Total(values=3)) == "Total(values=3)"


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda event: event.model_copy(deep=True),
        lambda event: event.model_copy(update={"keys": 3}),
        lambda event: pickle.loads(pickle.dumps(event)),
        lambda event: JsonSerializer().deserialize(JsonSerializer().serialize(event)),
    ],
    ids=["copy", "deepcopy", "model_copy", "update", "pickle", "json"],
)
def test_declared_fields_are_copied(copied: Any) -> None:
    made = order(note="x")
    assert copied(made) == made
    assert copied(made).to_dict is True


def test_a_field_that_was_left_out_of_a_construction_is_missing() -> None:
    made = Order.model_construct(keys=1)
    assert made.keys == 1
    with pytest.raises(AttributeError, match="items"):
        made.items  # noqa: B018


def test_declared_fields_are_inherited_and_may_be_declared_again() -> None:
    class Big(Order):
        size: int

    class Narrow(Order):
        items: tuple[str, ...]  # type: ignore[assignment]

    class Mixin(BaseModel):
        values: int

    class Mixed(Event, Mixin):
        pass

    class Defaults(Event):
        items: list[str] = Field(default_factory=list)
        keys: int = 7

    class Box(Event, Generic[T]):
        items: list[T]

    assert Big.model_fields["items"].is_required()
    assert Narrow(**VALUES).items == ("tea",)
    assert Mixed(values=2).values == 2
    assert (Defaults().items, Defaults().keys, list(Defaults(a=1).values())) == ([], 7, [1])
    assert Box[int](items=["3"]).items == [3]
    with pytest.raises(ValidationError, match="Field required"):
        Mixed()


def test_a_field_whose_type_is_not_known_yet_is_required() -> None:
    class Late(Event):
        items: list[Unknown]  # type: ignore[name-defined]  # noqa: F821 - it is made below

    class Known(BaseModel):
        n: int

    Late.model_rebuild(_types_namespace={"Unknown": Known})
    assert Late.model_fields["items"].is_required()
    assert Late(items=[{"n": 1}]).items == [Known(n=1)]


# --- not declared


@pytest.mark.parametrize("name", NAMES)
def test_the_face_is_there_on_instances_and_classes(name: str) -> None:
    event = Event(a=1)
    assert callable(getattr(event, name))
    args = ("a",) if name == "get" else ()
    assert repr(getattr(Event, name)(event, *args)) == repr(getattr(event, name)(*args))
    assert getattr(event, name).__doc__


def test_the_face_can_be_overridden() -> None:
    class Loud(Event):
        def get(self, key: str, default: Any = None) -> Any:
            return f"{super().get(key, default)}!"

        def keys(self) -> Any:
            return [key.upper() for key in Event.keys(self)]

    assert (Loud(a=1).get("a"), Loud(a=1).keys(), list(Loud(a=1).items())) == ("1!", ["A"], [("a", 1)])


def test_an_undeclared_keyword_of_such_a_name_is_an_extra() -> None:
    event = Event(items=[1])
    assert (event["items"], event.get("items"), list(event.items())) == ([1], [1], [("items", [1])])


def test_an_event_that_writes_itself_is_a_component_as_before() -> None:
    class Part(Event):
        @classmethod
        def class_name(cls) -> str:
            return "part"

        @classmethod
        def from_dict(cls, data: dict[str, Any]) -> Part:
            return cls(**data)

    assert is_component(Part)
    assert not is_component(Order)


# --- in runs


class Shop(Workflow):
    @step
    async def sell(self, ctx: Context, ev: Order) -> Total:
        ctx.write_event_to_stream(ev)
        answer = await ctx.wait_for_event(Answer, requirements={"items": ["yes"]})
        return Total(values=len(ev.items) + len(answer.items) + ev.values["tea"])


async def test_a_run_with_such_fields_in_memory_and_through_a_saved_context() -> None:
    workflow = Shop(verbose=True)
    handler = workflow.run(**VALUES)
    shown = []
    async for event in handler.stream_events(expose_internal=True):
        shown.append(event)
        if isinstance(event, WorkflowIdleEvent):
            break
    assert order() in shown
    saved = handler.ctx.to_dict()
    await handler.cancel_run()
    resumed = workflow.run(ctx=Context.from_dict(workflow, saved))
    await resumed.send_event(Answer(items=["no"]))
    await resumed.send_event(Answer(items=["yes"]))
    assert (await resumed).values == 3


def test_verbose_lines_show_such_fields() -> None:
    assert summarize_event(Answer(items=["a"], note=1)) == "Answer(items=['a'], note=1)"


# --- for type checkers

_PROGRAM = """
from typing import Any

from loom.steps.events import Event, StartEvent


class Order(StartEvent):
    items: list[str]
    keys: int
    values: dict[str, int]
    get: str = ""
    to_dict: bool = False


class Loud(Event):
    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)


def total(order: Order, event: Event) -> int:
    first: str = order.items[0]
    x: str = event.get("x", first)
    names: list[str] = [key for key in event.keys()]
    pairs: dict[str, int] = {key: value for key, value in event.items()}
    everything: dict[str, object] = {**event}
    return len(x) + len(names) + len(pairs) + len(everything) + order.values["a"] + len(event.to_dict())


total(Order(items=["a"], keys=1, values={}), Event())
"""


def test_mypy_strict_takes_declared_fields_and_the_face(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    # Only what the program uses is followed: it takes a third of the time.
    (tmp_path / "mypy.ini").write_text(
        textwrap.dedent("""
            [mypy]
            strict = True
            follow_imports = skip
            disallow_subclassing_any = False
            [mypy-loom.steps.events,pydantic,pydantic.main]
            follow_imports = silent
        """)
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Success: no issues found in 1 source file\n", 0), done.stdout

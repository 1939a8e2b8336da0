"""Fields named as methods of the mapping face: declared they are fields like others, else the methods are there."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, Field, ValidationError

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.effects.verbose import summarize_event
from loom.steps.events import WorkflowIdleEvent
from loom.steps.serializers import JsonSerializer, is_component

NAMES = ("items", "keys", "values", "get", "to_dict")
T = TypeVar("T")


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

from loom.steps.event_base import Event, StartEvent


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
            [mypy-loom.steps.event_base,loom.steps.dict_like,pydantic,pydantic.main]
            follow_imports = silent
        """)
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Success: no issues found in 1 source file\n", 0), done.stdout

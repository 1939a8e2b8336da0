"""Reading step signatures, and finding the steps of a class."""

# No `from __future__ import annotations` here: most of these tests are about annotations that are real objects.

import inspect
import typing
import warnings
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from loom.steps.decorators import step
from loom.steps.errors import WorkflowValidationError
from loom.steps.events import Event, StartEvent, StopEvent
from loom.steps.resources import Resource
from loom.steps.signature import (
    StepSignatureSpec,
    _get_param_types,
    _get_return_types,
    get_steps_from_class,
    get_steps_from_instance,
    inspect_signature,
    is_free_function,
    validate_step_signature,
)
from loom.steps.step_config import All, Cardinality, Collect, Take

T = TypeVar("T")


class A(Event):
    pass


class B(Event):
    pass


class State(BaseModel):
    n: int = 0


class Context(Generic[T]):
    """Any class of this name is taken for the context."""


def read(func: Any) -> StepSignatureSpec:
    spec = inspect_signature(func)
    validate_step_signature(spec)
    return spec


# --- events ---------------------------------------------------------------------------------------------------------


def test_one_event() -> None:
    def f(self: Any, ev: A) -> B: ...

    spec = read(f)
    assert spec.accepted_events == {"ev": [A]}
    assert spec.return_types == [B]
    assert (spec.context_parameter, spec.collection_param, spec.is_fan_out) == (None, None, False)


OLD_UNIONS = [typing.Union[A, B], typing.Optional[A | B]]  # noqa: UP007, UP045 - the old spellings are the point
OLD_LIST = typing.List[A]  # noqa: UP006 - as above


@pytest.mark.parametrize("hint", [A | B, A | B | None, *OLD_UNIONS])
def test_one_of_several_events(hint: Any) -> None:
    def f(ev: hint) -> B: ...

    assert read(f).accepted_events == {"ev": [A, B]}


def test_the_base_of_all_events() -> None:
    def f(ev: Event) -> StopEvent: ...

    assert read(f).accepted_events == {"ev": [Event]}


def test_a_join_of_several_slots() -> None:
    def f(a: A, b: B) -> StopEvent: ...

    assert list(read(f).accepted_events.items()) == [("a", [A]), ("b", [B])]


def test_a_slot_takes_one_type_only() -> None:
    def f(a: A, b: A | B) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="parameter 'b' declares 2"):
        read(f)


@pytest.mark.parametrize("hint", [str, A | str, Any, list[int], list[A | int], dict[str, A], list, 3])
def test_what_is_no_event(hint: Any) -> None:
    def f(ev: hint) -> StopEvent: ...

    with pytest.raises(
        WorkflowValidationError, match="Step signature must have at least one parameter annotated as type Event"
    ):
        read(f)


def test_a_parameter_without_annotation_is_no_event() -> None:
    def f(self, ev) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(WorkflowValidationError, match="at least one parameter annotated as type Event"):
        read(f)


def test_parameters_of_other_types_are_left_alone() -> None:
    def f(ev: A, limit: int = 3, *args: Any, **kwargs: Any) -> B: ...

    assert read(f).accepted_events == {"ev": [A]}


def test_unknown_metadata_is_ignored() -> None:
    def f(ctx: Annotated[Context[State], "x"], ev: Annotated[A, "x"], other: Annotated[int, "x"] = 1) -> B: ...

    spec = read(f)
    assert spec.accepted_events == {"ev": [A]}
    assert (spec.context_parameter, spec.context_state_type) == ("ctx", State)


def test_only_callables_have_signatures() -> None:
    with pytest.raises(TypeError, match="Expected a callable object, got str"):
        inspect_signature("foo")  # type: ignore[arg-type]


# --- context --------------------------------------------------------------------------------------------------------


def test_a_context_is_known_by_its_name() -> None:
    def f(where: Context, ev: A) -> B: ...  # type: ignore[type-arg]

    spec = read(f)
    assert (spec.context_parameter, spec.context_state_type) == ("where", None)


def test_a_context_names_the_state() -> None:
    def f(ctx: Context[State] | None, ev: A) -> B: ...

    spec = read(f)
    assert (spec.context_parameter, spec.context_state_type) == ("ctx", State)


def test_a_type_variable_is_no_state() -> None:
    def f(ctx: Context[T], ev: A) -> B: ...

    assert read(f).context_state_type is None


# --- collections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "types"),
    [(list[A], (A,)), (list[A | B], (A, B)), (list[A] | None, (A,)), (OLD_LIST, (A,)), (list[A | None], (A,))],
)
def test_a_list_of_events_is_collected(hint: Any, types: tuple[type, ...]) -> None:
    def f(evs: hint) -> StopEvent: ...

    spec = read(f)
    assert spec.collection_param == ("evs", types)
    assert spec.collection_policy == Collect(All())
    assert spec.accepted_events == {"evs": list(types)}


def test_how_a_list_is_collected() -> None:
    def f(evs: Annotated[list[A], Collect(Take(2))]) -> StopEvent: ...

    assert read(f).collection_policy == Collect(Take(2))


def test_a_list_stands_alone() -> None:
    def with_event(evs: list[A], b: B) -> StopEvent: ...
    def with_list(a: list[A], b: list[B]) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="cannot be combined with other event parameters"):
        read(with_event)
    with pytest.raises(WorkflowValidationError, match=r"at most one list.*'a' and 'b'"):
        read(with_list)


def test_a_collect_marker_needs_a_list_of_events() -> None:
    def f(ev: Annotated[A, Collect()]) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match="'ev' carries a Collect marker but is not annotated as"):
        read(f)


def test_only_all_and_take_are_supported() -> None:
    class Half(Cardinality):
        pass

    def f(evs: Annotated[list[A], Collect(Half())]) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match=r"must be All\(\) or Take\(n\)"):
        read(f)


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "returned", "bare", "fans_out"),
    [
        (A, [A], [A], False),
        (A | B | None, [A, B], [A, B], False),
        (None, [type(None)], [], False),
        (list[A], [A], [], True),
        (list[A | B], [A, B], [], True),
        (list[A] | None, [A], [], True),
        (list[A] | B, [A, B], [B], True),
        (list[A] | A, [A], [A], True),
        (list[A] | list[B], [A, B], [], True),
        (Annotated[list[Annotated[A, "x"]], "y"], [A], [], True),
        (dict[str, A], [dict[str, A]], [dict[str, A]], False),
    ],
)
def test_results(hint: Any, returned: list[Any], bare: list[Any], fans_out: bool) -> None:
    def f(ev: StartEvent) -> hint: ...

    spec = read(f)
    assert (spec.return_types, spec.bare_return_types, spec.is_fan_out) == (returned, bare, fans_out)


def test_results_must_be_declared() -> None:
    def f(ev: A): ...  # type: ignore[no-untyped-def]

    with pytest.raises(
        WorkflowValidationError, match="Return types of workflows step functions must be annotated with their type"
    ):
        read(f)


@pytest.mark.parametrize(
    "hint",
    [AsyncIterator[A], AsyncIterable[A], AsyncGenerator[A, None], typing.AsyncIterator, AsyncIterator[A] | None],
)
def test_async_iterators_are_refused(hint: Any) -> None:
    def f(ev: StartEvent) -> hint: ...

    with pytest.raises(WorkflowValidationError, match="Async-iterator fan-out"):
        inspect_signature(f)


def test_async_generators_are_refused() -> None:
    async def f(ev: StartEvent) -> Any:
        yield A()

    with pytest.raises(WorkflowValidationError, match="Async-iterator fan-out"):
        inspect_signature(f)


# --- names ----------------------------------------------------------------------------------------------------------


def test_strings_resolve_in_the_module_and_in_the_given_names() -> None:
    class Local(Event):
        pass

    def f(ev: "A | Local") -> "list[B]": ...

    assert inspect_signature(f, localns={"Local": Local}).accepted_events == {"ev": [A, Local]}


def test_an_unknown_name_is_named() -> None:
    def f(ev: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        WorkflowValidationError, match=r"Failed to resolve type annotations for .*f\. Missing name: Nowhere\."
    ):
        inspect_signature(f)


def test_an_unknown_attribute_is_named() -> None:
    def f(ev: "typing.Nowhere") -> None: ...  # type: ignore[name-defined]

    with pytest.raises(WorkflowValidationError, match="Missing name: Nowhere"):
        inspect_signature(f)


# --- names of types ---------------------------------------------------------------------------------------------------

Either = TypeAliasType("Either", A | B)
Several = TypeAliasType("Several", list[Either])


def test_named_types_mean_what_they_stand_for() -> None:
    def f(ev: Either) -> Several: ...
    def g(evs: Several) -> Either | None: ...

    assert read(f).accepted_events == {"ev": [A, B]}
    assert (read(f).return_types, read(f).is_fan_out) == ([A, B], True)
    assert read(g).collection_param == ("evs", (A, B))
    assert read(g).bare_return_types == [A, B]


# --- resources ------------------------------------------------------------------------------------------------------


def test_resources() -> None:
    def make() -> int:
        return 1

    def f(ev: A, first: Annotated[int, Resource(make)], second: Annotated[str, "note", Resource(make)]) -> B: ...

    found = read(f).resources
    assert [(one.name, one.type_annotation) for one in found] == [("first", int), ("second", str)]


# --- the steps of a class -------------------------------------------------------------------------------------------


class Base:
    @step
    def second(self, ev: A) -> StopEvent:
        return StopEvent()

    @step
    def dropped(self, ev: A) -> StopEvent:
        return StopEvent()


class Derived(Base):
    @step
    def first(self, ev: StartEvent) -> A:
        return A()

    @staticmethod
    @step
    def static(ev: A) -> StopEvent:
        return StopEvent(result="static")

    @classmethod
    @step
    def of_class(cls, ev: A) -> StopEvent:
        return StopEvent(result=cls.__name__)

    def dropped(self, ev: A) -> StopEvent:  # type: ignore[override]
        return StopEvent()

    def not_a_step(self) -> None: ...


def test_steps_of_a_class_are_sorted_and_inherited() -> None:
    assert list(get_steps_from_class(Derived)) == ["first", "of_class", "second", "static"]
    assert list(get_steps_from_class(Derived())) == ["first", "of_class", "second", "static"]


def test_steps_of_an_instance_are_bound() -> None:
    found = get_steps_from_instance(Derived())
    assert list(found) == list(get_steps_from_class(Derived))
    assert isinstance(found["first"](ev=StartEvent()), A)
    assert found["static"](ev=A()).result == "static"
    assert found["of_class"](ev=A()).result == "Derived"
    assert found["first"]._step_config is Derived.first._step_config


def test_finding_steps_runs_no_properties_and_no_warnings_of_pydantic() -> None:
    class Model(BaseModel):
        name: str = "x"

        @property
        def bad(self) -> str:
            raise AssertionError("a property was read")

        @step
        def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=self.name)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = get_steps_from_instance(Model(name="y"))
    assert found["only"](ev=StartEvent()).result == "y"


# --- names that older programs import -------------------------------------------------------------------------------


def test_free_functions_by_name() -> None:
    assert is_free_function("function")
    assert is_free_function("outer.<locals>.function")
    assert not is_free_function("Class.method")
    assert not is_free_function("outer.<locals>.Class.method")
    with pytest.raises(ValueError, match="cannot be empty"):
        is_free_function("")


def test_types_of_parameters() -> None:
    def f(a: str, b: str | int | None, c) -> None: ...  # type: ignore[no-untyped-def]

    hints, parameters = get_type_hints(f), inspect.signature(f).parameters
    assert [_get_param_types(parameters[name], hints) for name in "abc"] == [[str], [str, int], [Any]]


def test_types_of_results() -> None:
    def declared(x: int) -> str | list[int] | None: ...
    def undeclared(x: int): ...  # type: ignore[no-untyped-def]

    assert _get_return_types(declared) == [str, int]
    assert _get_return_types(undeclared) == []

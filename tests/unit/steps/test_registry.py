"""Wire names, and the way back from a name to a class."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from loom.steps.events import Event, HumanResponseEvent, StartEvent, StopEvent, WorkflowIdleEvent
from loom.steps.registry import (
    AmbiguousTypeError,
    UnknownTypeError,
    framework_name,
    kind_of,
    names_of,
    register,
    resolve,
    resolve_subclass,
    wire_name,
)


class Ping(Event):
    n: int = 0


class LoudPing(Ping):
    pass


class Outer:
    class Inner(Event):
        pass


class Mixin:
    pass


class Mixed(Mixin, LoudPing, HumanResponseEvent):
    pass


def define(name: str, module: str = "somewhere", qualname: str | None = None, base: type = Event) -> type:
    return type(base)(name, (base,), {"__module__": module, "__qualname__": qualname or name})


def test_a_user_class_goes_by_module_and_short_name() -> None:
    assert wire_name(Ping) == f"{__name__}.Ping"
    assert wire_name(Outer.Inner) == f"{__name__}.Inner"


def test_a_framework_class_goes_by_its_original_name() -> None:
    assert wire_name(StopEvent) == "workflows.events.StopEvent"
    assert resolve("workflows.events.StopEvent") is StopEvent


def test_a_framework_class_does_not_answer_to_its_module() -> None:
    with pytest.raises(UnknownTypeError):
        resolve(f"{StopEvent.__module__}.StopEvent")


def test_a_framework_name_belongs_to_one_class() -> None:
    with pytest.raises(ValueError, match=r"workflows\.events\.StopEvent"):
        framework_name(Ping, "workflows.events.StopEvent")


def test_a_subclass_of_a_framework_class_has_a_name_of_its_own() -> None:
    cls = define("Done", base=StopEvent)
    assert wire_name(cls) == "somewhere.Done"


def test_main_goes_by_the_stem_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/any/where/my_flow.py"))
    cls = define("Job", "__main__")
    assert wire_name(cls) == "my_flow.Job"
    assert resolve("my_flow.Job") is cls
    assert resolve("__main__.Job") is cls


def test_main_without_a_file_stays_main(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
    assert wire_name(define("Job", "__main__")) == "__main__.Job"


def test_every_event_class_is_known_as_soon_as_it_is_defined() -> None:
    cls = define("Fresh")
    assert resolve("somewhere.Fresh") is cls


def test_a_nested_class_answers_to_its_qualified_name_too() -> None:
    assert resolve(f"{__name__}.Inner") is Outer.Inner
    assert resolve(f"{__name__}.Outer.Inner") is Outer.Inner


def test_other_classes_can_be_registered() -> None:
    @register
    class State(BaseModel):
        pass

    assert resolve(f"{__name__}.State") is State


def test_an_unknown_name_is_named_and_not_imported() -> None:
    with pytest.raises(UnknownTypeError, match=r"wsgiref\.validate\.WriteWrapper"):
        resolve("wsgiref.validate.WriteWrapper")
    assert "wsgiref.validate" not in sys.modules


@pytest.mark.parametrize("name", ["", ".", "Ping", "builtins.eval", "os.system", "workflows.events.Nothing"])
def test_odd_names_are_unknown(name: str) -> None:
    with pytest.raises(UnknownTypeError):
        resolve(name)


def test_two_living_classes_of_one_name_are_ambiguous_and_both_are_listed() -> None:
    classes = [define("Twin", qualname="one.Twin"), define("Twin", qualname="two.Twin")]
    with pytest.raises(AmbiguousTypeError, match=r"somewhere\.one\.Twin, somewhere\.two\.Twin"):
        resolve("somewhere.Twin")
    assert [resolve("somewhere.Twin", [cls]) for cls in classes] == classes
    assert [resolve(f"somewhere.{cls.__qualname__}") for cls in classes] == classes


def test_the_preferred_must_agree_among_themselves() -> None:
    classes = [define("Pair", qualname="one.Pair"), define("Pair", qualname="two.Pair")]
    with pytest.raises(AmbiguousTypeError):
        resolve("somewhere.Pair", classes)


def test_a_preferred_class_that_has_another_name_does_not_count() -> None:
    cls = define("Solo")
    assert resolve("somewhere.Solo", [Ping, StopEvent]) is cls


def test_a_class_that_is_defined_again_replaces_the_first() -> None:
    first, second = define("Again"), define("Again")
    assert resolve("somewhere.Again") is second
    assert resolve("somewhere.Again", [first]) is first


def test_classes_are_held_weakly_and_a_dead_one_leaves_no_ambiguity() -> None:
    dead = define("Brief", qualname="one.Brief")
    alive = define("Brief", qualname="two.Brief")
    ref = weakref.ref(dead)
    del dead
    assert resolve("somewhere.Brief") is alive
    del alive
    gc.collect()
    assert ref() is None
    with pytest.raises(UnknownTypeError):
        resolve("somewhere.Brief")


def test_a_subclass_is_found_without_registration() -> None:
    class Plain(BaseModel):
        pass

    assert resolve_subclass(f"{__name__}.Plain", BaseModel) is Plain
    assert resolve_subclass(f"{__name__}.Missing", BaseModel) is None


def test_a_kind_tells_names_bases_label_and_looks() -> None:
    kind = kind_of(LoudPing)
    assert kind.name == f"{__name__}.LoudPing"
    assert kind.bases == (f"{__name__}.Ping", "workflows.events.Event")
    assert kind.label == "LoudPing"
    assert kind.shown == str(LoudPing)


def test_bases_follow_the_method_resolution_order_and_leave_out_what_is_no_event() -> None:
    assert kind_of(Mixed).bases == (
        f"{__name__}.LoudPing",
        f"{__name__}.Ping",
        "workflows.events.HumanResponseEvent",
        "workflows.events.Event",
    )


def test_the_kind_of_a_framework_event_shows_the_original_name() -> None:
    assert kind_of(StopEvent).shown == "<class 'workflows.events.StopEvent'>"
    assert kind_of(WorkflowIdleEvent).bases == ("workflows.events.InternalDispatchEvent", "workflows.events.Event")
    assert kind_of(Event).bases == ()


def test_a_kind_is_made_once_per_class() -> None:
    assert kind_of(Ping) is kind_of(Ping)
    assert kind_of(LoudPing) is not kind_of(Ping)


def test_a_kind_is_right_even_if_the_class_hides_its_definition() -> None:
    class Secretive(Ping):
        @classmethod
        def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
            """Does not call its parent."""

    class Child(Secretive):
        pass

    assert kind_of(Child).name == f"{__name__}.Child"
    assert kind_of(Child).bases[0] == f"{__name__}.Secretive"


def test_only_events_have_a_kind() -> None:
    with pytest.raises(TypeError, match="is not an event class"):
        kind_of(BaseModel)


def test_all_names_of_a_class() -> None:
    assert names_of(Outer.Inner) == {f"{__name__}.Inner", f"{__name__}.Outer.Inner"}
    assert names_of(StartEvent) == {"workflows.events.StartEvent"}

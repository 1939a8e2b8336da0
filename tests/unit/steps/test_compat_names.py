from __future__ import annotations

import sys

import pytest

from loom.steps.compat_names import WaitingForEvent, get_qualified_name, import_module_from_qualified_name
from loom.steps.events import Event, StopEvent


class Mine(Event):
    pass


def test_waiting_for_event_is_an_exception_that_names_the_type() -> None:
    class Add:
        event_type = Mine

    error = WaitingForEvent(Add())
    assert isinstance(error, Exception)
    assert str(error) == f"Waiting for event {Mine}"
    assert error.add.event_type is Mine


def test_names_of_framework_types_are_the_original_ones() -> None:
    assert get_qualified_name(StopEvent()) == "workflows.events.StopEvent"


def test_name_leads_back_to_the_class() -> None:
    assert import_module_from_qualified_name("workflows.events.StopEvent") is StopEvent
    assert import_module_from_qualified_name("loom.steps.events.StopEvent") is StopEvent


def test_value_without_a_module_is_refused() -> None:
    with pytest.raises(AttributeError, match="Object 5 does not have required attributes"):
        get_qualified_name(5)


@pytest.mark.parametrize("name", ["", "name", ".name"])
def test_name_without_a_module_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"format 'module\.attribute'"):
        import_module_from_qualified_name(name)


def test_missing_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match=r"Attribute Nonsense not found in module loom\.steps\.events"):
        import_module_from_qualified_name("loom.steps.events.Nonsense")


def test_name_never_causes_an_import() -> None:
    assert "this" not in sys.modules
    with pytest.raises(ImportError, match="Failed to import module this"):
        import_module_from_qualified_name("this.s")
    assert "this" not in sys.modules

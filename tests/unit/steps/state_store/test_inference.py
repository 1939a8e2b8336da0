from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from loom.steps.state_store import DictState, infer_state_type


class Base(BaseModel):
    pass


class Child(Base):
    pass


class Grandchild(Child):
    pass


class Stranger(BaseModel):
    pass


def steps(*state_types: Any) -> dict[str, Any]:
    return {f"step{n}": SimpleNamespace(context_state_type=kind) for n, kind in enumerate(state_types)}


@pytest.mark.parametrize(
    ("state_types", "expected"),
    [
        ((), DictState),
        ((None, DictState, int), DictState),
        ((None, Base), Base),
        ((Base, Grandchild, Child), Grandchild),
    ],
)
def test_the_most_derived_class_is_the_state(state_types: tuple[Any, ...], expected: type[BaseModel]) -> None:
    assert infer_state_type(steps(*state_types)) is expected


def test_classes_of_two_chains_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match=r"not in a compatible inheritance hierarchy.*Found: Child, Stranger"):
        infer_state_type(steps(Child, Stranger))


def test_a_workflow_is_asked_for_its_steps() -> None:
    functions = {name: SimpleNamespace(_step_config=config) for name, config in steps(Child).items()}

    assert infer_state_type(SimpleNamespace(_get_steps=lambda: functions)) is Child

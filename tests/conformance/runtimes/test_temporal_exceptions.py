"""The exceptions of Temporal name tests that exist, so that none outlives its test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from temporal_exceptions import EXCEPTIONS, IN_THE_LONG_FORM, why_not


def _tests_of(module: str) -> set[str]:
    source = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    return {each.name for each in source.body if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef)}


@pytest.mark.parametrize("name", [*EXCEPTIONS, *sorted(IN_THE_LONG_FORM)])
def test_an_exception_is_one_from_something(name: str) -> None:
    module, _, test = name.partition("::")
    assert test.partition("[")[0] in _tests_of(module)


def test_an_exception_is_for_what_it_names_alone() -> None:
    assert why_not("test_moving::test_runs_are_purged_by_their_age[temporal]")
    assert why_not("test_moving::test_runs_are_purged_by_their_age_too[temporal]") is None

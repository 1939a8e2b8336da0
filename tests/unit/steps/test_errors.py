"""The public errors: independent of each other and known by their original names."""

from __future__ import annotations

import pytest

from loom.steps import errors
from loom.steps.registry import resolve, wire_name

ERRORS = [getattr(errors, name) for name in errors.__all__]


def test_all_public_errors_are_there() -> None:
    assert set(errors.__all__) == {
        "WorkflowValidationError",
        "WorkflowConfigurationError",
        "WorkflowRuntimeError",
        "WorkflowTimeoutError",
        "WorkflowCancelledByUser",
        "WorkflowStepDoesNotExistError",
        "WorkflowDone",
        "ContextSerdeError",
        "ContextStateError",
    }


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_derives_from_exception_directly(error: type[Exception]) -> None:
    assert error.__bases__ == (Exception,)


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_goes_by_its_original_name(error: type[Exception]) -> None:
    assert wire_name(error) == f"workflows.errors.{error.__name__}"
    assert resolve(f"workflows.errors.{error.__name__}") is error

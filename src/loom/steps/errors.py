"""The errors that workflows, steps and contexts raise; none derives from another. May import `loom.steps.registry`."""

from __future__ import annotations

from loom.steps.registry import framework_name

__all__ = [
    "ContextSerdeError",
    "ContextStateError",
    "WorkflowCancelledByUser",
    "WorkflowConfigurationError",
    "WorkflowDone",
    "WorkflowRuntimeError",
    "WorkflowStepDoesNotExistError",
    "WorkflowTimeoutError",
    "WorkflowValidationError",
]


class WorkflowValidationError(Exception):
    """A workflow's steps do not fit together, or a step's signature is wrong."""


class WorkflowConfigurationError(Exception):
    """A workflow is set up in a way that cannot work."""


class WorkflowRuntimeError(Exception):
    """Something went wrong while a run was going on."""


class WorkflowTimeoutError(Exception):
    """A run took longer than its timeout allows."""


class WorkflowCancelledByUser(Exception):
    """A run was cancelled from outside."""


class WorkflowStepDoesNotExistError(Exception):
    """A step was addressed that the workflow does not have."""


class WorkflowDone(Exception):
    """Kept for programs that import the name: Loom ends runs without it."""


class ContextSerdeError(Exception):
    """A context could not be written to a dict, or read from one."""


class ContextStateError(Exception):
    """A context was used on the wrong side: before a run, inside a step, or from its handler."""


for _error in (
    WorkflowValidationError,
    WorkflowConfigurationError,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
    WorkflowCancelledByUser,
    WorkflowStepDoesNotExistError,
    WorkflowDone,
    ContextSerdeError,
    ContextStateError,
):
    framework_name(_error, f"workflows.errors.{_error.__name__}")

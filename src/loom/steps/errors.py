"""The errors that workflows, steps and contexts raise. May import `loom.steps.registry`.

Those in `__all__` are known from llama-index-workflows, and none derives from another.
"""

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


class TooMuchUnsaved(Exception):
    """A step has written more than its run can store at once, or returned it: `max_state` is the limit."""


class ChildRunFailed(Exception):
    """A child run failed or timed out. `run_id` is its id, `original_type` the type of its error, if there was one."""

    def __init__(self, message: str, run_id: str = "", original_type: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id
        self.original_type = original_type


class ChildRunCancelled(ChildRunFailed):
    """A child run was cancelled, but not by its parent."""


framework_name(ChildRunFailed, "loom.ChildRunFailed")
framework_name(ChildRunCancelled, "loom.ChildRunCancelled")

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

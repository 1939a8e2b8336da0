"""The errors that workflows, steps and contexts raise, warnings that are shown once, and texts of any exception.

The errors in `__all__` are known from llama-index-workflows, and none derives from another.
"""

from __future__ import annotations

import warnings

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


def well_formed(text: str) -> str:
    """Return the text with U+FFFD in place of lone surrogates, which no encoding has a form for."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def message_of(error: BaseException) -> str:
    """The text of an exception. If its own code fails when it is asked, the text says so: the failure must be told."""
    try:
        text = str(error)
        return text if type(text) is str else str.__str__(text)
    except BaseException as broken:  # noqa: BLE001 - an author's __str__ may raise anything, and the failure is there
        return f"(its text cannot be shown: {type(broken).__name__})"


def described(error: BaseException) -> str:
    """Name an exception and tell its text, also of one whose own code fails when it is asked."""
    name, text = type(error).__name__, message_of(error)
    return f"{name}: {text}" if text else name


_shown: set[str] = set()


def warn_once(message: str, category: type[Warning] = DeprecationWarning) -> None:
    """Warn, unless this very warning was given before in this process."""
    if message not in _shown:
        _shown.add(message)
        warnings.warn(message, category, stacklevel=3)

"""`workflows.decorators`. Re-exports only."""

from __future__ import annotations

from loom.steps.decorators import (
    CatchErrorHandler,
    StepConfig,
    StepFunction,
    StepGraphCheck,
    StepRole,
    WorkflowGraphCheck,
    catch_error,
    make_step_function,
    step,
)

__all__ = [
    "CatchErrorHandler",
    "StepConfig",
    "StepFunction",
    "StepGraphCheck",
    "StepRole",
    "WorkflowGraphCheck",
    "catch_error",
    "make_step_function",
    "step",
]

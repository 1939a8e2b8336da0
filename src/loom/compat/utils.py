"""`workflows.utils`. Re-exports only."""

from __future__ import annotations

from loom.steps.signature import (
    BUSY_WAIT_DELAY,
    StepSignatureSpec,
    _get_param_types,
    _get_return_types,
    get_steps_from_class,
    get_steps_from_instance,
    inspect_signature,
    is_free_function,
    validate_step_signature,
)

__all__ = [
    "BUSY_WAIT_DELAY",
    "StepSignatureSpec",
    "_get_param_types",
    "_get_return_types",
    "get_steps_from_class",
    "get_steps_from_instance",
    "inspect_signature",
    "is_free_function",
    "validate_step_signature",
]

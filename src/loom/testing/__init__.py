"""Tools for testing workflows, for Loom's own tests and for yours.

`WorkflowTestRunner` runs a workflow and collects its events. `run_virtual` runs a coroutine under a virtual clock, on
which days pass at once. `run_transcript` drives the engine alone by a readable script. Names are loaded when they are
first used. May import everything below: runtimes, steps, core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.testing.clock import VIRTUAL_EPOCH, StalledError, VirtualLoop, run_virtual
    from loom.testing.runner import WorkflowTestResult, WorkflowTestRunner
    from loom.testing.transcripts import run_transcript

_HOMES = {
    "VIRTUAL_EPOCH": "loom.testing.clock",
    "StalledError": "loom.testing.clock",
    "VirtualLoop": "loom.testing.clock",
    "WorkflowTestResult": "loom.testing.runner",
    "WorkflowTestRunner": "loom.testing.runner",
    "run_transcript": "loom.testing.transcripts",
    "run_virtual": "loom.testing.clock",
}

__all__ = [
    "VIRTUAL_EPOCH",
    "StalledError",
    "VirtualLoop",
    "WorkflowTestResult",
    "WorkflowTestRunner",
    "run_transcript",
    "run_virtual",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'loom.testing' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

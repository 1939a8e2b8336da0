"""Tools for testing workflows, for Loom's own tests and for yours.

`WorkflowTestRunner` runs a workflow and collects its events. `run_virtual` runs a coroutine under a virtual clock, on
which days pass at once. `isolated_handlers` undoes what a test registers, and mocks actions, built-in ones too.
`record_static_results` puts the answers of a real run into the definition.
`pytest_loom` makes fixtures of these. `simulate` runs a workflow through crashes and all else that can go wrong, from a
seed. `run_transcript` drives the engine alone by a readable script. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.testing.clock import VIRTUAL_EPOCH, StalledError, VirtualClock, VirtualLoop, run_virtual
    from loom.testing.faults import FaultPlan, FaultyStore
    from loom.testing.handlers import HandlerCall, HandlerMock, IsolatedHandlers, isolated_handlers
    from loom.testing.recorder import record_static_results
    from loom.testing.runner import WorkflowTestResult, WorkflowTestRunner
    from loom.testing.simulation import Report, SimulationFailure, simulate
    from loom.testing.simulation_programs import Ended, Program
    from loom.testing.simulation_world import Faults
    from loom.testing.transcripts import run_transcript

_HOMES = {
    "VIRTUAL_EPOCH": "loom.testing.clock",
    "Ended": "loom.testing.simulation_programs",
    "FaultPlan": "loom.testing.faults",
    "Faults": "loom.testing.simulation_world",
    "FaultyStore": "loom.testing.faults",
    "HandlerCall": "loom.testing.handlers",
    "HandlerMock": "loom.testing.handlers",
    "IsolatedHandlers": "loom.testing.handlers",
    "Program": "loom.testing.simulation_programs",
    "Report": "loom.testing.simulation",
    "SimulationFailure": "loom.testing.simulation",
    "StalledError": "loom.testing.clock",
    "VirtualClock": "loom.testing.clock",
    "VirtualLoop": "loom.testing.clock",
    "WorkflowTestResult": "loom.testing.runner",
    "WorkflowTestRunner": "loom.testing.runner",
    "isolated_handlers": "loom.testing.handlers",
    "record_static_results": "loom.testing.recorder",
    "run_transcript": "loom.testing.transcripts",
    "run_virtual": "loom.testing.clock",
    "simulate": "loom.testing.simulation",
}

__all__ = [
    "VIRTUAL_EPOCH",
    "Ended",
    "FaultPlan",
    "Faults",
    "FaultyStore",
    "HandlerCall",
    "HandlerMock",
    "IsolatedHandlers",
    "Program",
    "Report",
    "SimulationFailure",
    "StalledError",
    "VirtualClock",
    "VirtualLoop",
    "WorkflowTestResult",
    "WorkflowTestRunner",
    "isolated_handlers",
    "record_static_results",
    "run_transcript",
    "run_virtual",
    "simulate",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'loom.testing' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value

"""Loom: workflows that are not lost. One pure engine runs Python step classes and declarative flows.

This is the author's API. Names are loaded when they are first used, so that importing one costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loom.steps import ports as _ports

if TYPE_CHECKING:
    from loom.client.connection import Client
    from loom.client.errors import ClientError
    from loom.client.sync import SyncClient
    from loom.effects.actions.handlers import ActionContext, action, activity, actor, ai_provider
    from loom.effects.flow_events import FlowEvent, LoopIterationEvent
    from loom.effects.flow_result import FlowFailed, FlowResult
    from loom.flows.diagnostics import DefinitionError
    from loom.runtime.connect import connect
    from loom.runtime.durable.info import RunInfo
    from loom.runtime.flow import Flow
    from loom.runtime.load import load
    from loom.steps.context import Context
    from loom.steps.decorators import catch_error, step
    from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
    from loom.steps.handler import WorkflowHandler
    from loom.steps.ports import RuntimePort
    from loom.steps.workflow import Workflow
    from loom.store.errors import RunExists, RunFinished, RunNotFound, StoreUnavailable

__version__ = "0.1.0"

_HOMES = {
    "ActionContext": "loom.effects.actions.handlers",
    "Client": "loom.client.connection",
    "ClientError": "loom.client.errors",
    "Context": "loom.steps.context",
    "DefinitionError": "loom.flows.diagnostics",
    "Event": "loom.steps.events",
    "Flow": "loom.runtime.flow",
    "FlowEvent": "loom.effects.flow_events",
    "FlowFailed": "loom.effects.flow_result",
    "FlowResult": "loom.effects.flow_result",
    "HumanResponseEvent": "loom.steps.events",
    "InputRequiredEvent": "loom.steps.events",
    "LoopIterationEvent": "loom.effects.flow_events",
    "RunExists": "loom.store.errors",
    "RunFinished": "loom.store.errors",
    "RunInfo": "loom.runtime.durable.info",
    "RunNotFound": "loom.store.errors",
    "StartEvent": "loom.steps.events",
    "StopEvent": "loom.steps.events",
    "StoreUnavailable": "loom.store.errors",
    "SyncClient": "loom.client.sync",
    "Workflow": "loom.steps.workflow",
    "WorkflowHandler": "loom.steps.handler",
    "action": "loom.effects.actions.handlers",
    "activity": "loom.effects.actions.handlers",
    "actor": "loom.effects.actions.handlers",
    "ai_provider": "loom.effects.actions.handlers",
    "catch_error": "loom.steps.decorators",
    "connect": "loom.runtime.connect",
    "load": "loom.runtime.load",
    "step": "loom.steps.decorators",
}

_ROOMS = frozenset({"client", "compat", "expressions", "testing"})
"""Packages that are reached as attributes, without importing them by name first."""

__all__ = [
    "ActionContext",
    "Client",
    "ClientError",
    "Context",
    "DefinitionError",
    "Event",
    "Flow",
    "FlowEvent",
    "FlowFailed",
    "FlowResult",
    "HumanResponseEvent",
    "InputRequiredEvent",
    "LoopIterationEvent",
    "RunExists",
    "RunFinished",
    "RunInfo",
    "RunNotFound",
    "StartEvent",
    "StopEvent",
    "StoreUnavailable",
    "SyncClient",
    "Workflow",
    "WorkflowHandler",
    "action",
    "activity",
    "actor",
    "ai_provider",
    "catch_error",
    "connect",
    "load",
    "step",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"loom.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'loom' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def _basic_runtime() -> RuntimePort:
    from loom.runtime.basic import basic_runtime

    return basic_runtime


_ports.provide_default_runtime(_basic_runtime)

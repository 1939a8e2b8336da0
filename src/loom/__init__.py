"""Loom: workflows that are not lost. One pure engine runs Python step classes and declarative flows.

This is the author's API. Names are loaded when they are first used, so that importing one costs little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loom.steps import ports as _ports

if TYPE_CHECKING:
    from loom.api.problems import Problem
    from loom.api.why import Why
    from loom.client.connection import Client
    from loom.client.errors import ClientError
    from loom.client.sync import SyncClient
    from loom.effects.actions.connections import ApiKey, BasicAuth, BearerToken, ClientCredentials, Secret
    from loom.effects.actions.handlers import (
        ActionContext,
        ActionHandlers,
        action,
        activity,
        actor,
        ai_provider,
        connector,
    )
    from loom.effects.flow_events import FlowEvent, LoopIterationEvent
    from loom.effects.flow_result import FlowFailed, FlowResult
    from loom.expressions.errors import ExpressionError
    from loom.flows.diagnostics import DefinitionError
    from loom.runtime.connect import connect
    from loom.runtime.durable.healing import CannotHeal
    from loom.runtime.durable.info import RunInfo
    from loom.runtime.durable.schedules import ScheduleNotFound
    from loom.runtime.durable.stored_definitions import DefinitionNotFound
    from loom.runtime.flow import Flow, load
    from loom.runtime.project import Project, load_project
    from loom.runtime.sync import SyncHandler, SyncRuntime, connect_sync
    from loom.steps.context import Context
    from loom.steps.decorators import catch_error, on_cancel, step
    from loom.steps.errors import (
        ChildRunCancelled,
        ChildRunFailed,
        ContextSerdeError,
        ContextStateError,
        WorkflowCancelledByUser,
        WorkflowConfigurationError,
        WorkflowRuntimeError,
        WorkflowTimeoutError,
        WorkflowValidationError,
    )
    from loom.steps.events import (
        AnswerRefusedEvent,
        Event,
        HumanResponseEvent,
        InputRequiredEvent,
        RunCancelledEvent,
        StartEvent,
        StepFailedEvent,
        StopEvent,
        StreamSupersededEvent,
    )
    from loom.steps.handler import WorkflowHandler
    from loom.steps.ports import RuntimePort
    from loom.steps.resources import Resource
    from loom.steps.retry import (
        RetryInfo,
        RetryPolicy,
        retry_all,
        retry_always,
        retry_any,
        retry_if_exception,
        retry_if_exception_cause_type,
        retry_if_exception_message,
        retry_if_exception_type,
        retry_if_not_exception_message,
        retry_if_not_exception_type,
        retry_never,
        retry_policy,
        retry_unless_exception_type,
        stop_after_attempt,
        stop_after_delay,
        stop_all,
        stop_any,
        stop_before_delay,
        stop_never,
        wait_chain,
        wait_combine,
        wait_exponential,
        wait_exponential_jitter,
        wait_fixed,
        wait_full_jitter,
        wait_incrementing,
        wait_none,
        wait_random,
        wait_random_exponential,
    )
    from loom.steps.workflow import Workflow
    from loom.store.errors import (
        BadKeys,
        CorruptRecord,
        HistoryGone,
        MemoryExceeded,
        NothingToSkip,
        RunActive,
        RunBusy,
        RunExists,
        RunFinished,
        RunNotFound,
        StoreError,
        StoreLocked,
        StoreOutdated,
        StoreTooNew,
        StoreUnavailable,
        WrongKeys,
    )

__version__ = "0.1.0"

_NAMES = {
    "loom.api.problems": "Problem",
    "loom.api.why": "Why",
    "loom.client.connection": "Client",
    "loom.client.errors": "ClientError",
    "loom.client.sync": "SyncClient",
    "loom.effects.actions.connections": "ApiKey BasicAuth BearerToken ClientCredentials Secret",
    "loom.effects.actions.handlers": "ActionContext ActionHandlers action activity actor ai_provider connector",
    "loom.effects.flow_events": "FlowEvent LoopIterationEvent",
    "loom.effects.flow_result": "FlowFailed FlowResult",
    "loom.expressions.errors": "ExpressionError",
    "loom.flows.diagnostics": "DefinitionError",
    "loom.runtime.connect": "connect",
    "loom.runtime.durable.stored_definitions": "DefinitionNotFound",
    "loom.runtime.durable.healing": "CannotHeal",
    "loom.runtime.durable.info": "RunInfo",
    "loom.runtime.durable.schedules": "ScheduleNotFound",
    "loom.runtime.flow": "Flow load",
    "loom.runtime.project": "Project load_project",
    "loom.runtime.sync": "SyncHandler SyncRuntime connect_sync",
    "loom.steps.context": "Context",
    "loom.steps.decorators": "catch_error on_cancel step",
    "loom.steps.errors": (
        "ChildRunCancelled ChildRunFailed ContextSerdeError ContextStateError WorkflowCancelledByUser "
        "WorkflowConfigurationError WorkflowRuntimeError WorkflowTimeoutError WorkflowValidationError"
    ),
    "loom.steps.events": (
        "AnswerRefusedEvent Event HumanResponseEvent InputRequiredEvent RunCancelledEvent StartEvent StepFailedEvent "
        "StopEvent StreamSupersededEvent"
    ),
    "loom.steps.handler": "WorkflowHandler",
    "loom.steps.resources": "Resource",
    "loom.steps.retry": (
        "RetryInfo RetryPolicy retry_all retry_always retry_any retry_if_exception "
        "retry_if_exception_cause_type retry_if_exception_message retry_if_exception_type "
        "retry_if_not_exception_message retry_if_not_exception_type retry_never retry_policy "
        "retry_unless_exception_type stop_after_attempt stop_after_delay stop_all stop_any stop_before_delay "
        "stop_never wait_chain wait_combine wait_exponential wait_exponential_jitter wait_fixed "
        "wait_full_jitter wait_incrementing wait_none wait_random wait_random_exponential"
    ),
    "loom.steps.workflow": "Workflow",
    "loom.store.errors": (
        "BadKeys CorruptRecord HistoryGone MemoryExceeded NothingToSkip RunActive RunBusy RunExists RunFinished "
        "RunNotFound StoreError StoreLocked StoreOutdated StoreTooNew StoreUnavailable WrongKeys"
    ),
}
"""The names that each module offers here."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

_ROOMS = frozenset({"client", "compat", "expressions", "testing"})
"""Packages that are reached as attributes, without importing them by name first."""

__all__ = [
    "ActionContext",
    "ActionHandlers",
    "AnswerRefusedEvent",
    "ApiKey",
    "BadKeys",
    "BasicAuth",
    "BearerToken",
    "CannotHeal",
    "ChildRunCancelled",
    "ChildRunFailed",
    "Client",
    "ClientCredentials",
    "ClientError",
    "Context",
    "ContextSerdeError",
    "ContextStateError",
    "CorruptRecord",
    "DefinitionError",
    "DefinitionNotFound",
    "Event",
    "ExpressionError",
    "Flow",
    "FlowEvent",
    "FlowFailed",
    "FlowResult",
    "HistoryGone",
    "HumanResponseEvent",
    "InputRequiredEvent",
    "LoopIterationEvent",
    "MemoryExceeded",
    "NothingToSkip",
    "Problem",
    "Project",
    "Resource",
    "RetryInfo",
    "RetryPolicy",
    "RunActive",
    "RunBusy",
    "RunCancelledEvent",
    "RunExists",
    "RunFinished",
    "RunInfo",
    "RunNotFound",
    "ScheduleNotFound",
    "Secret",
    "StartEvent",
    "StepFailedEvent",
    "StopEvent",
    "StoreError",
    "StoreLocked",
    "StoreOutdated",
    "StoreTooNew",
    "StoreUnavailable",
    "StreamSupersededEvent",
    "SyncClient",
    "SyncHandler",
    "SyncRuntime",
    "Why",
    "Workflow",
    "WorkflowCancelledByUser",
    "WorkflowConfigurationError",
    "WorkflowHandler",
    "WorkflowRuntimeError",
    "WorkflowTimeoutError",
    "WorkflowValidationError",
    "WrongKeys",
    "action",
    "activity",
    "actor",
    "ai_provider",
    "catch_error",
    "connect",
    "connect_sync",
    "connector",
    "load",
    "load_project",
    "on_cancel",
    "retry_all",
    "retry_always",
    "retry_any",
    "retry_if_exception",
    "retry_if_exception_cause_type",
    "retry_if_exception_message",
    "retry_if_exception_type",
    "retry_if_not_exception_message",
    "retry_if_not_exception_type",
    "retry_never",
    "retry_policy",
    "retry_unless_exception_type",
    "step",
    "stop_after_attempt",
    "stop_after_delay",
    "stop_all",
    "stop_any",
    "stop_before_delay",
    "stop_never",
    "wait_chain",
    "wait_combine",
    "wait_exponential",
    "wait_exponential_jitter",
    "wait_fixed",
    "wait_full_jitter",
    "wait_incrementing",
    "wait_none",
    "wait_random",
    "wait_random_exponential",
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
    from loom.runtime.memory import basic_runtime

    return basic_runtime


_ports.provide_default_runtime(_basic_runtime)

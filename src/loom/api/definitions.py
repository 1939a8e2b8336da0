"""Definitions and schedules as callers see them: workflows that a server knows, and starts that recur."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired

from loom.api.answers import Answer, Kind, promises


@promises(line=NotRequired[int | None], column=NotRequired[int | None])
class Diagnostic(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with a definition, or worth knowing about it."""

    path: str
    message: str
    severity: str
    code: str | None
    line: int | None = None
    """Where it is in the text, from 1; None if that is not known."""
    column: int | None = None


@promises(kind=Kind, version=int | None)
class Definition(Answer, frozen=True, kw_only=True):
    """A workflow that the server or another process of its store knows; only flows have versions."""

    name: str
    kind: str | None = None
    version: str | int | None = None
    etag: str | None = None
    updated_at: datetime | None = None
    served: bool = True
    """Whether this server works for it; if not, its code is in another process."""
    enabled: bool = True
    """Whether the triggers of a flow fire. A flow that is disabled still starts by `POST /v1/runs`."""


class PutDefinition(Definition, frozen=True, kw_only=True):
    """A flow that is stored now, and what is worth knowing about it."""

    warnings: list[Diagnostic] = []


class FlowTrigger(Answer, frozen=True, kw_only=True):
    """What starts runs of a flow."""

    name: str
    type: str
    methods: list[str] = []
    """Methods of requests that fire it; empty for a trigger that no request fires."""
    path: str | None = None
    """The relative path that a request needs, such as `orders/{id}`."""


class FlowStatus(Definition, frozen=True, kw_only=True):
    """A flow as its operators see it: whether it is enabled, and what starts its runs."""

    disabled_at: datetime | None = None
    triggers: list[FlowTrigger] = []


class TriggerFiring(Answer, frozen=True, kw_only=True):
    """What became of a trigger at one time: a poll, a call of a webhook, or a subscription that was made or ended."""

    at: datetime
    status: str
    """`succeeded`: it started runs. `skipped`: there was nothing to start. `failed`: `message` says why."""
    code: str = ""
    """Such as `OK`, `Accepted`, `TriggerConditionNotMet`, `ServiceUnavailable`."""
    message: str | None = None
    by_hand: bool = False
    """Whether an operator asked for it."""
    runs: int = 0
    """How many runs it started."""
    run_id: str | None = None
    """The first of them."""
    repeats: int = 0
    """How often the same came of it again, until `until`."""
    until: datetime | None = None


class TriggerHistory(Answer, frozen=True, kw_only=True):
    """A trigger that fires by itself, and what became of it, latest first."""

    name: str
    type: str
    run_id: str | None = None
    """The run that listens for it; None: nothing does."""
    next_at: datetime | None = None
    """When it is due next; None of a webhook."""
    subscribed: bool | None = None
    """Whether its service calls; None of what is no webhook."""
    last_error: str | None = None
    """Why the latest firing has failed; None if it has not."""
    firings: list[TriggerFiring] = []


class TriggerFired(Answer, frozen=True, kw_only=True):
    """A trigger is to fire by hand."""

    name: str
    run_id: str
    """The run that polls, or that was started."""


class FlowAddress(Answer, frozen=True, kw_only=True):
    """A signed address: a request to it fires one trigger of one flow, without a key."""

    name: str
    trigger: str
    methods: list[str]
    url: str
    """The whole address, with the relative path as the trigger has it. Its query is a secret."""
    key: int
    """The number of the key that signs it; rotation ends addresses with earlier numbers."""
    expires_at: datetime | None = None


@promises(etag=str, created_at=datetime)
class DefinitionVersion(Answer, frozen=True, kw_only=True):
    """One content that a flow has had."""

    version: int
    digest: str
    etag: str | None = None
    created_at: datetime | None = None
    current: bool = False
    """Whether new runs begin with it."""


class Graph(Answer, frozen=True, kw_only=True):
    """A workflow as nodes, each with `id`, `label` and `node_type`, and edges from `source` to `target`."""

    name: str
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class DefinitionSchemas(Answer, frozen=True, kw_only=True):
    """JSON Schemas of what a workflow takes and gives; only flows have parameters.

    `events` are the types that a key with the scope `event` may send: answers that a step takes, what a step declares,
    what an action of a flow waits for by name, all at any time; and what `ctx.wait_for_event` of a step waits for,
    while it does.
    """

    start: dict[str, Any]
    stop: dict[str, Any]
    events: list[dict[str, Any]]
    parameters: dict[str, Any] | None


class Validation(Answer, frozen=True, kw_only=True):
    """Whether a definition can be used."""

    valid: bool
    diagnostics: list[Diagnostic] = []


@promises(recurrence=dict[str, Any], run_id=str)
class Schedule(Answer, frozen=True, kw_only=True):
    """A start that recurs. It is a run itself, and what is secure in the flow that it starts is masked."""

    name: str
    workflow: str
    recurrence: dict[str, Any] | None = None
    input: Any = None
    parameters: dict[str, Any] | None = None
    variables: dict[str, Any] | None = None
    tags: dict[str, str] = {}
    catch_up: bool = False
    trigger: str | None = None
    """The trigger of a flow that it was made for."""
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_run_id: str | None = None
    last_error: str | None = None
    """Why the last occurrence started no run."""
    paused: bool = False
    run_id: str | None = None
    """The run that it is."""


class CalledBack(Answer, frozen=True, kw_only=True):
    """The call is stored; a repeated one changes nothing."""

    duplicate: bool

"""What `/v1` answers with about definitions and schedules: the shapes of its JSON. May import the other shapes."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from loom.runtime.shapes import Kind, Moment  # noqa: TC001 - shapes are read at run time


class Diagnostic(TypedDict):
    """One thing that is wrong with a definition, or worth knowing about it."""

    severity: str
    code: str | None
    path: str
    message: str
    line: NotRequired[int | None]
    column: NotRequired[int | None]


class Definition(TypedDict):
    """A workflow that the server knows; only flows have versions."""

    name: str
    kind: Kind
    version: int | None
    etag: str | None
    updated_at: Moment | None


class PutDefinition(Definition):
    """A flow that is stored now, and what is worth knowing about it."""

    warnings: list[Diagnostic]


class DefinitionVersion(TypedDict):
    """One content that a flow has had."""

    version: int
    digest: str
    etag: str
    created_at: Moment
    current: bool


class Graph(TypedDict):
    """A workflow as nodes, each with `id`, `label` and `node_type`, and edges from `source` to `target`."""

    name: str
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]


class DefinitionSchemas(TypedDict):
    """JSON Schemas of what a workflow takes and gives; only flows have parameters.

    `events` are the types that a key with the scope `event` may send at any time: answers that a step takes, what a
    step declares, what an action of a flow waits for by name.
    """

    start: dict[str, Any]
    stop: dict[str, Any]
    events: list[dict[str, Any]]
    parameters: dict[str, Any] | None


class Validation(TypedDict):
    """Whether a definition can be used."""

    valid: bool
    diagnostics: list[Diagnostic]


class Schedule(TypedDict):
    """A start that recurs. It is a run itself, and what is secure in the flow that it starts is masked."""

    name: str
    workflow: str
    recurrence: dict[str, Any]
    input: Any
    parameters: dict[str, Any] | None
    variables: dict[str, Any] | None
    tags: dict[str, str]
    catch_up: bool
    trigger: str | None
    next_at: Moment | None
    last_at: Moment | None
    last_run_id: str | None
    last_error: str | None
    paused: bool
    run_id: str


class CalledBack(TypedDict):
    """The call is stored; a repeated one changes nothing."""

    duplicate: bool

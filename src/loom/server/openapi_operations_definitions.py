"""The operations of `/v1` on definitions and schedules. May import the shapes and the words for operations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from loom.server.openapi_model import (
    ANY,
    CURSOR,
    IF_NONE_MATCH,
    JSON,
    LIMIT,
    TEXT,
    YAML,
    Answer,
    Body,
    Operation,
    Operations,
    Param,
    Seconds,
)
from loom.server.shapes import Page
from loom.server.shapes_definitions import (
    CalledBack,
    Definition,
    DefinitionSchemas,
    DefinitionVersion,
    Graph,
    PutDefinition,
    Schedule,
    Validation,
)
from loom.server.shapes_requests import NoFields, ScheduleRequest

_SAID = Answer("What the flow's Response action says.", Any, (ANY,))
_WAIT = Param("wait", Seconds, "Wait for the answer, at most so many seconds, and at most 60.")


def _invoked(operation_id: str, summary: str) -> Operation:
    return Operation(
        operation_id,
        "definitions",
        summary,
        {
            202: Answer("No answer came in time: the `Run`, or a page of those that splitOn has started.", Any, (ANY,)),
            "default": _SAID,
        },
        ("not-found", "method-not-allowed", "run-exists", "draining", "memory-exceeded"),
        params=(_WAIT,),
        body=Body(Any, required=False, media=(ANY,)),
        description="The request is the trigger's: its body, its headers without credentials, its query.",
    )


def _called_back(operation_id: str, body: Body | None) -> Operation:
    return Operation(
        operation_id,
        "definitions",
        "Call back an action of a flow, at the address that it gave out",
        {202: Answer("The call is stored.", CalledBack)},
        ("unauthenticated", "method-not-allowed", "run-not-found", "run-finished"),
        params=(Param("sig", str, "The signature, which the address has.", required=True),),
        body=body,
        description="Needs no key: its signature is for one action of one run, until the address expires. By GET only "
        "if the action asked for that.",
    )


_Version = Annotated[int, Meta(ge=1, le=2**53)]
_VERSION = Param("version", _Version, "The number of a version; without one, the current version.")
_DOCUMENT = Body(dict[str, Any], media=(JSON, YAML))
_CONDITIONS = (
    Param("If-Match", str, "An ETag: only if the stored definition has it; `*`: only if there is one.", "header"),
    Param("If-None-Match", str, "`*`: only if there is none yet.", "header"),
)

DEFINITIONS: Operations = {
    ("GET", "/v1/definitions"): Operation(
        "listDefinitions",
        "definitions",
        "List workflows by name",
        {200: Answer("A page of workflows that can be started.", Page[Definition])},
        params=(LIMIT, CURSOR),
    ),
    ("POST", "/v1/definitions/validate"): Operation(
        "validateDefinition",
        "definitions",
        "Judge a definition; nothing is stored, and nothing is executed",
        {200: Answer("Whether it can be used, and all that is to be said about it.", Validation)},
        body=_DOCUMENT,
    ),
    ("PUT", "/v1/definitions/{name}"): Operation(
        "putDefinition",
        "definitions",
        "Store a flow, in either dialect",
        {
            201: Answer("It is new.", PutDefinition, headers=("ETag", "Location")),
            200: Answer("It is the current version now, or was it before.", PutDefinition, headers=("ETag",)),
        },
        ("name-taken", "version-mismatch", "definition-invalid"),
        params=_CONDITIONS,
        body=_DOCUMENT,
    ),
    ("GET", "/v1/definitions/{name}"): Operation(
        "getDefinition",
        "definitions",
        "Get the document of a flow, or the events of a workflow in Python",
        {
            200: Answer("The document as it was put.", dict[str, Any], headers=("ETag",)),
            304: Answer("Nothing has changed.", headers=("ETag",)),
        },
        ("definition-invalid",),
        params=(_VERSION, IF_NONE_MATCH),
    ),
    ("DELETE", "/v1/definitions/{name}"): Operation(
        "deleteDefinition",
        "definitions",
        "Let nothing new start under a name; runs under way keep their version",
        {204: Answer("It is gone.")},
        ("name-taken", "version-mismatch"),
        params=_CONDITIONS,
    ),
    ("GET", "/v1/definitions/{name}/versions"): Operation(
        "listVersions",
        "definitions",
        "List the versions of a flow, newest first",
        {200: Answer("A page of versions; a workflow in Python has none.", Page[DefinitionVersion])},
        params=(LIMIT, CURSOR),
    ),
    ("GET", "/v1/definitions/{name}/graph"): Operation(
        "getGraph",
        "definitions",
        "Get a workflow as a graph",
        {200: Answer("Nodes and edges, or text that Mermaid draws.", Graph, (JSON, TEXT))},
        ("definition-invalid",),
        params=(_VERSION, Param("format", Literal["json", "mermaid"], "JSON if nothing is said.")),
    ),
    ("GET", "/v1/definitions/{name}/schema"): Operation(
        "getSchema",
        "definitions",
        "Get the JSON Schemas of what a workflow takes and gives",
        {200: Answer("JSON Schemas.", DefinitionSchemas)},
        ("definition-invalid",),
        params=(_VERSION,),
    ),
    ("POST", "/v1/definitions/{name}/invoke"): _invoked("invoke", "Fire a flow's trigger, and get its answer"),
    ("POST", "/v1/definitions/{name}/invoke/{path:path}"): _invoked(
        "invokePath", "The same, for a trigger that has a relative path"
    ),
    ("GET", "/v1/callbacks/{token}"): _called_back("callBackByGet", None),
    ("POST", "/v1/callbacks/{token}"): _called_back("callBack", Body(Any, required=False, media=(ANY,))),
}

_TURNED = Answer("It is stored; the schedule as it is now.", Schedule)

SCHEDULES: Operations = {
    ("GET", "/v1/schedules"): Operation(
        "listSchedules",
        "schedules",
        "List schedules by name",
        {200: Answer("A page of schedules.", Page[Schedule])},
        params=(LIMIT, CURSOR),
    ),
    ("POST", "/v1/schedules"): Operation(
        "putSchedule",
        "schedules",
        "Start runs again and again",
        {201: Answer("It is new.", Schedule), 200: Answer("It was there, or another was replaced.", Schedule)},
        ("definition-not-found", "name-taken"),
        body=Body(ScheduleRequest),
    ),
    ("GET", "/v1/schedules/{schedule_id}"): Operation(
        "getSchedule", "schedules", "Get a schedule", {200: Answer("The schedule.", Schedule)}
    ),
    ("DELETE", "/v1/schedules/{schedule_id}"): Operation(
        "deleteSchedule",
        "schedules",
        "End a schedule; what it has started goes on",
        {204: Answer("It is gone.")},
    ),
    ("POST", "/v1/schedules/{schedule_id}/pause"): Operation(
        "pauseSchedule", "schedules", "Pause a schedule", {202: _TURNED}, body=Body(NoFields, required=False)
    ),
    ("POST", "/v1/schedules/{schedule_id}/resume"): Operation(
        "resumeSchedule",
        "schedules",
        "Let a paused schedule go on",
        {202: _TURNED},
        body=Body(NoFields, required=False),
    ),
}

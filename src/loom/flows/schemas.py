"""The JSON Schema of definitions, for editors, generated from the table of action types.

It accepts what loading accepts: unknown types and keys, and expressions in place of anything. What it refuses, such as
a `runAfter` that is no object, loading refuses too.
"""

from __future__ import annotations

from typing import Any, Literal

from loom.flows.action_types import ACTION_TYPES, LOOM_TRIGGERS, ActionType, Field
from loom.flows.program import STATUS_BITS

Dialect = Literal["loom", "logicapps"]
Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_EXPRESSION = {"type": "string", "description": "An expression such as @variables('x')."}
_COMPUTED = {**_EXPRESSION, "pattern": r"@|^\["}
"""An expression in place of a number that loading checks."""
_ACTIONS = {"$ref": "#/$defs/actions"}
_TRIGGERS = ("Request", "Recurrence", "Http", "HttpWebhook", "ApiConnection", "ApiConnectionWebhook")
_PARAMETERS = ("string", "securestring", "int", "float", "bool", "array", "object", "secureobject")

_NEEDS = {
    "If": ("expression", "condition"),
    "Until": ("expression", "condition"),
    "While": ("condition", "expression"),
    "DoUntil": ("condition", "expression"),
    "Switch": ("expression", "on"),
    "Foreach": ("foreach", "items"),
    "Retry": ("action",),
    "SetVariable": ("name",),
    "InitializeVariable": ("variables", "name"),
    "ParseJson": ("content",),
    "Terminate": ("runStatus",),
    "Wait": ("interval", "until"),
}
"""Fields without which loading refuses an action: one of them, in the action or under `inputs`."""

_KINDS: dict[str, Schema] = {
    "value": {},
    "text": {"type": "string"},
    "array": {"anyOf": [{"type": "array"}, _EXPRESSION]},
    "object": {"anyOf": [{"type": ["object", "null"]}, _EXPRESSION]},
    "condition": {"type": ["string", "boolean", "object"]},
    "actions": _ACTIONS,
    "branch": {"type": "object", "properties": {"actions": {"type": "object"}}},
    "cases": {"type": "object", "additionalProperties": {"$ref": "#/$defs/case"}},
    "action": {"$ref": "#/$defs/action"},
    "count": {"anyOf": [{"type": "integer"}, _EXPRESSION]},
    "duration": {
        "type": ["string", "null"],
        "pattern": r"^P|@|^\[",
        "description": "An ISO 8601 duration such as PT30S.",
    },
    "timeout": {"type": ["string", "number"], "description": "An ISO 8601 duration such as PT30S, or seconds."},
    "interval": {"$ref": "#/$defs/interval"},
    "limit": {"$ref": "#/$defs/limit"},
    "retry": {"$ref": "#/$defs/retryPolicy"},
    "delay": {"anyOf": [{"type": "object", "properties": {"interval": {"$ref": "#/$defs/interval"}}}, _EXPRESSION]},
    "variables": {"type": "array", "items": {"$ref": "#/$defs/variable"}},
    "schema": {"type": ["object", "boolean", "string", "null"]},
}


def flow_schema(dialect: Dialect | None = None) -> Schema:
    """Make the schema of a document in one dialect; None: in both."""
    types = [known for known in ACTION_TYPES.values() if dialect != "logicapps" or not known.loom_only]
    return {
        "$schema": _DRAFT,
        "title": {"loom": "A Loom flow", "logicapps": "A Logic Apps workflow"}.get(dialect or "", "A workflow"),
        "type": "object",
        **_shapes(),
        "$defs": {
            "definition": _definition(dialect),
            "actions": {"type": "object", "additionalProperties": {"$ref": "#/$defs/action"}},
            "action": _action(types, dialect),
            **{_name(known): _type(known, dialect) for known in types if known.fields},
            **_parts(),
        },
    }


def _shapes() -> Schema:
    """Make the schema of a bare definition, a wrapped one, or only its actions, told apart as loading does.

    It is a chain of conditions and no choice, so that an editor names the mistake and not every alternative.
    """
    definition = {"$ref": "#/$defs/definition"}
    wrapped = {"required": ["definition"], "properties": {"definition": definition, "kind": {"type": "string"}}}
    resource = {"required": ["properties"], "properties": {"properties": wrapped}}
    action = {"$ref": "#/$defs/action"}
    schema: Schema = {"minProperties": 1, "additionalProperties": action}
    for asked, then in (
        ({"anyOf": [{"required": [key]} for key in ("actions", "triggers", "$schema", "contentVersion")]}, definition),
        (_has("type", {"type": "string"}), action),
        (_has("definition", {"type": "object"}), wrapped),
        (_has("properties", _has("definition", {"type": "object"})), resource),
        (_has("resources", {"type": "array"}), {}),
    ):
        schema = {"if": asked, "then": then, "else": schema}
    return schema


def _has(key: str, value: Schema) -> Schema:
    return {"type": "object", "required": [key], "properties": {key: value}}


def _definition(dialect: Dialect | None) -> Schema:
    loom = () if dialect == "logicapps" else tuple(sorted(LOOM_TRIGGERS))
    azure = () if dialect == "loom" else _TRIGGERS
    trigger = {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"anyOf": [{"enum": [*loom, *azure]}, {"type": "string"}]},
            "recurrence": {"type": "object"},
            "conditions": {"type": "array"},
            "splitOn": {},
        },
    }
    parameter = {
        "type": "object",
        "properties": {
            "type": {"anyOf": [{"enum": list(_PARAMETERS)}, {"type": "string"}]},
            "defaultValue": {},
            "allowedValues": {"type": "array"},
        },
    }
    output = {"type": "object", "properties": {"type": {"type": "string"}, "value": {}}}
    return {
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "contentVersion": {"type": "string"},
            "description": {"type": "string"},
            "parameters": _map_of(parameter),
            "triggers": _map_of(trigger),
            "actions": _ACTIONS,
            "outputs": _map_of(output),
            "staticResults": _map_of({"type": "object", "properties": {"status": {"type": "string"}, "outputs": {}}}),
        },
    }


def _map_of(schema: Schema) -> Schema:
    return {"type": ["object", "null"], "additionalProperties": schema}


def _action(types: list[ActionType], dialect: Dialect | None) -> Schema:
    status = {"anyOf": [{"enum": list(STATUS_BITS)}, {"type": "string"}]}
    statuses = {"anyOf": [{"type": "array", "items": status}, {"type": ["string", "null"]}]}
    return {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"anyOf": [{"enum": _spellings(types, dialect)}, {"type": "string", "minLength": 1}]},
            "kind": {"type": "string"},
            "description": {"type": "string"},
            "runAfter": {"type": ["object", "null"], "additionalProperties": statuses},
            "operationOptions": {"type": "string"},
            "runtimeConfiguration": {"type": "object"},
            "trackedProperties": {},
            "retry": {"$ref": "#/$defs/retryPolicy"},
            "retryPolicy": {"$ref": "#/$defs/retryPolicy"},
        },
        "allOf": [_when(known) for known in types if known.fields],
    }


def _spellings(types: list[ActionType], dialect: Dialect | None) -> list[str]:
    azure = [known.name for known in types if not known.loom_only] if dialect != "loom" else []
    loom = [known.name[0].lower() + known.name[1:] for known in types] if dialect != "logicapps" else []
    return [*loom, *azure]


def _when(known: ActionType) -> Schema:
    """Make the schema of a type's fields. It holds for the type in any case of letters."""
    pattern = "".join(f"[{letter.lower()}{letter.upper()}]" for letter in known.name)
    asked = {"required": ["type"], "properties": {"type": {"type": "string", "pattern": f"^{pattern}$"}}}
    return {"if": asked, "then": {"$ref": f"#/$defs/{_name(known)}"}}


def _name(known: ActionType) -> str:
    return f"action{known.name}"


def _type(known: ActionType, dialect: Dialect | None) -> Schema:
    fields = {one.name: _field(one) for one in known.fields if dialect != "logicapps" or not one.loom_only}
    inputs: Schema = {"properties": {"inputs": {"properties": fields}}}
    schema: Schema = {"description": known.about}
    if known.home == "action" or (dialect != "logicapps" and "type" not in fields):
        schema["properties"] = fields
    if known.home == "inputs" or dialect != "logicapps":
        schema["allOf"] = [inputs]
    if {"condition", "expression"} <= {one.name for one in known.fields}:
        schema["not"] = {"required": ["condition", "expression"]}
    if known.name in _NEEDS:
        anywhere = [{"required": [key]} for key in _NEEDS[known.name]]
        schema["anyOf"] = [*anywhere, {"required": ["inputs"], "properties": {"inputs": {"anyOf": anywhere}}}]
    return schema


def _field(one: Field) -> Schema:
    return {**_KINDS[one.kind], "description": one.about} if one.about else _KINDS[one.kind]


def _parts() -> Schema:
    number = {"anyOf": [{"type": "number"}, _COMPUTED]}
    duration = _KINDS["duration"]
    policies = {"enum": ["none", "fixed", "exponential", "default"]}
    return {
        "case": {"type": "object", "properties": {"case": {}, "actions": _ACTIONS}},
        "interval": {
            "type": ["object", "string"],
            "required": ["count", "unit"],
            "properties": {"count": number, "unit": {"type": "string"}},
        },
        "limit": {
            "type": "object",
            "properties": {
                "count": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}, _COMPUTED]},
                "timeout": duration,
            },
        },
        "retryPolicy": {
            "type": ["object", "string", "null"],
            "properties": {
                "type": {"anyOf": [policies, {"type": "string"}]},
                "count": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}, _COMPUTED]},
                "interval": duration,
                "minimumInterval": duration,
                "maximumInterval": duration,
                "maxInterval": duration,
                "on": {"type": "array", "items": {"type": ["string", "integer"]}},
            },
        },
        "variable": {
            "type": "object",
            "required": ["name", "type"],
            "properties": {"name": {"type": "string"}, "type": {"type": "string"}, "value": {}},
        },
    }

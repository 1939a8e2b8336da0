"""The JSON Schema of definitions, for editors: generated from the table of action types. Pure.

It is generous where the language is: types that nobody knows, expressions in place of anything, unknown keys. What it
does refuse, such as a `runAfter` that is no object, loading refuses too.
"""

from __future__ import annotations

from typing import Any, Literal

from loom.flows.dialect import LOOM_TRIGGERS
from loom.flows.program import STATUS_BITS
from loom.flows.schemas_table import ACTION_TYPES, ActionType, Field

Dialect = Literal["loom", "logicapps"]
Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_EXPRESSION = {"type": "string", "description": "An expression such as @variables('x')."}
_ACTIONS = {"$ref": "#/$defs/actions"}
_TRIGGERS = ("Request", "Recurrence", "Http", "HttpWebhook", "ApiConnection", "ApiConnectionWebhook")
_PARAMETERS = ("string", "securestring", "int", "float", "bool", "array", "object", "secureobject")

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
    "duration": {"type": "string", "description": "An ISO 8601 duration such as PT30S."},
    "interval": {"$ref": "#/$defs/interval"},
    "limit": {"$ref": "#/$defs/limit"},
    "retry": {"$ref": "#/$defs/retryPolicy"},
    "delay": {"anyOf": [{"type": "object", "properties": {"interval": {"$ref": "#/$defs/interval"}}}, _EXPRESSION]},
    "variables": {"type": "array", "items": {"$ref": "#/$defs/variable"}},
    "schema": {"type": ["object", "boolean", "string", "null"]},
}


def flow_schema(dialect: Dialect | None = None) -> Schema:
    """The schema of a document in one dialect, or in both."""
    types = [known for known in ACTION_TYPES.values() if dialect != "logicapps" or not known.loom_only]
    return {
        "$schema": _DRAFT,
        "title": {"loom": "A Loom flow", "logicapps": "A Logic Apps workflow"}.get(dialect or "", "A workflow"),
        "type": "object",
        "anyOf": _shapes(),
        "$defs": {
            "definition": _definition(dialect),
            "actions": {"type": "object", "additionalProperties": {"$ref": "#/$defs/action"}},
            "action": _action(types, dialect),
            **{_name(known): _type(known, dialect) for known in types if known.fields},
            **_parts(),
        },
    }


def _shapes() -> list[Schema]:
    """A definition bare, in one of its wrappers, or only its actions."""
    definition = {"$ref": "#/$defs/definition"}
    wrapped = {"required": ["definition"], "properties": {"definition": definition, "kind": {"type": "string"}}}
    resource = {"required": ["properties"], "properties": {"properties": wrapped}}
    template = {"required": ["resources"], "properties": {"resources": {"type": "array"}}}
    return [
        {**definition, "anyOf": [{"required": [key]} for key in ("actions", "triggers", "$schema", "contentVersion")]},
        wrapped,
        resource,
        template,
        {"required": ["type"], "$ref": "#/$defs/action"},
        {"minProperties": 1, "additionalProperties": {"$ref": "#/$defs/action"}},
    ]


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
    """The fields of a type, where the type is that one in any case."""
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
    return schema


def _field(one: Field) -> Schema:
    return {**_KINDS[one.kind], "description": one.about} if one.about else _KINDS[one.kind]


def _parts() -> Schema:
    number = {"anyOf": [{"type": "number"}, _EXPRESSION]}
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
            "properties": {"count": {"anyOf": [{"type": "integer", "minimum": 1}, _EXPRESSION]}, "timeout": duration},
        },
        "retryPolicy": {
            "type": ["object", "string", "null"],
            "properties": {
                "type": {"anyOf": [policies, {"type": "string"}]},
                "count": {"anyOf": [{"type": "integer", "minimum": 0}, _EXPRESSION]},
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

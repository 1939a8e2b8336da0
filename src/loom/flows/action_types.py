"""The vocabulary of definitions: action types with their fields, and the two dialects.

The JSON Schema and the checks of keys are made from the table, so a type is described in one place. Logic Apps and Loom
write their containers alike. So each container is asked for its dialect: by a field or type that only Loom has, or
because it stands in a container of Loom's.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Home = Literal["action", "inputs"]
"""The place of a type's fields in both dialects: the action itself, or `inputs`. Loom's dialect takes either."""

Kind = Literal[
    "value", "text", "array", "object", "condition", "actions", "branch", "cases", "action", "count", "duration",
    "interval", "limit", "retry", "delay", "variables", "schema", "timeout",
]  # fmt: skip
"""Kinds of values that a field holds. An expression may take their place where that makes sense."""


class Field(NamedTuple):
    """A field of an action type."""

    name: str
    kind: Kind = "value"
    about: str = ""
    loom_only: bool = False


class ActionType(NamedTuple):
    """An action type."""

    name: str
    """As Logic Apps spells it; in Loom's dialect the first letter is small."""
    about: str
    home: Home = "inputs"
    fields: tuple[Field, ...] = ()
    loom_only: bool = False
    is_call: bool = False
    """True if the effects do it, outside of the planner."""
    retries: bool = False
    """True if Logic Apps tries it again when the document says nothing."""


_ACTIONS = Field("actions", "actions", "The actions inside, by their names.")
_TEST = (
    Field("condition", "condition", "When the loop ends, tested before each iteration.", loom_only=True),
    Field("expression", "condition", "When the loop ends, tested after each iteration."),
)
_LOOP = (
    _ACTIONS,
    Field("limit", "limit", "At most so many iterations and so much time: 60 and PT1H by default."),
    Field("delay", "delay", "How long to wait between two iterations.", loom_only=True),
)
_VARIABLE = (Field("name", "text", "The variable."), Field("value"))
_FROM = Field("from", "array", "The array.")

_TYPES = (
    ActionType("Compose", "A value, as it is."),
    ActionType("ParseJson", "Data that keeps to a schema.", fields=(Field("content"), Field("schema", "schema"))),
    ActionType("Select", "Another value for each element of an array.", fields=(_FROM, Field("select"))),
    ActionType("Query", "The elements of an array that a condition holds for.", fields=(_FROM, Field("where"))),
    ActionType("Join", "The elements of an array as one text.", fields=(_FROM, Field("joinWith", "text"))),
    ActionType(
        "Table",
        "The elements of an array as CSV or HTML.",
        fields=(_FROM, Field("format", "text", "CSV or HTML."), Field("columns", "array")),
    ),
    ActionType("Expression", "A time, by its kind: CurrentTime, AddToTime, ConvertTimeZone, …"),
    ActionType("InitializeVariable", "Variables and their first values.", fields=(Field("variables", "variables"),)),
    ActionType("SetVariable", "Another value for a variable.", fields=_VARIABLE),
    ActionType("IncrementVariable", "Adds to a number, 1 by default.", fields=_VARIABLE),
    ActionType("DecrementVariable", "Takes from a number, 1 by default.", fields=_VARIABLE),
    ActionType("AppendToArrayVariable", "One more element for an array.", fields=_VARIABLE),
    ActionType("AppendToStringVariable", "More text for a text.", fields=_VARIABLE),
    ActionType("Scope", "Actions that are looked at as one.", "action", (_ACTIONS,)),
    ActionType("Parallel", "Actions that all start at once.", "action", (_ACTIONS,), loom_only=True),
    ActionType(
        "If",
        "A condition and two branches.",
        "action",
        (
            Field("condition", "condition", "What decides.", loom_only=True),
            Field("expression", "condition", "What decides."),
            _ACTIONS,
            Field("else", "branch", "The actions if the condition does not hold."),
        ),
    ),
    ActionType(
        "Switch",
        "A value and a branch for each of its literals.",
        "action",
        (
            Field("on", "value", "The value.", loom_only=True),
            Field("expression", "value", "The value."),
            Field("cases", "cases", "The branches."),
            Field("default", "branch", "The actions if no case matches."),
        ),
    ),
    ActionType(
        "Foreach",
        "A body for each element of an array.",
        "action",
        (Field("foreach", "array", "The array."), Field("items", "array", "The array.", loom_only=True), _ACTIONS),
    ),
    ActionType("Until", "A body, again and again until a condition holds.", "action", (*_TEST, *_LOOP)),
    ActionType("While", "A body, again and again while a condition holds.", "action", (*_TEST, *_LOOP), loom_only=True),
    ActionType("DoUntil", "A body, then again until a condition holds.", "action", (*_TEST, *_LOOP), loom_only=True),
    ActionType(
        "Retry",
        "An action that is tried again if it fails.",
        "action",
        (Field("action", "action", "The action."), Field("retryPolicy", "retry")),
        loom_only=True,
    ),
    ActionType(
        "Wait",
        "Waits for some time, or until some time.",
        fields=(Field("interval", "interval"), Field("until", "object", "{timestamp}")),
    ),
    ActionType(
        "Terminate",
        "Ends the run.",
        fields=(Field("runStatus", "text", "Succeeded, Failed or Cancelled."), Field("runError", "object")),
    ),
    ActionType(
        "Response",
        "Answers the caller.",
        fields=(Field("statusCode", "count"), Field("headers", "object"), Field("body")),
    ),
    ActionType(
        "Http",
        "A request.",
        fields=(
            Field("method", "text"),
            Field("uri", "text"),
            Field("url", "text", "The same as uri.", loom_only=True),
            Field("headers", "object"),
            Field("queries", "object"),
            Field("body"),
            Field("cookie", "text"),
            Field("authentication", "object"),
            Field("retryPolicy", "retry"),
        ),
        retries=True,
        is_call=True,
    ),
    ActionType(
        "HttpWebhook",
        "A subscription, and what comes back.",
        fields=(
            Field("subscribe", "object"),
            Field("unsubscribe", "object"),
            Field("callback", "object", "How the address is called: method (POST or GET) and expires.", loom_only=True),
        ),
        retries=True,
        is_call=True,
    ),
    ActionType("Workflow", "Another flow.", fields=(Field("host", "object"), Field("body")), is_call=True),
    ActionType(
        "Activity",
        "A registered function.",
        fields=(Field("activityType", "text"), Field("input")),
        loom_only=True,
        is_call=True,
    ),
    ActionType(
        "Actor",
        "A message to a registered actor.",
        fields=(Field("actorType", "text"), Field("actorId", "text"), Field("input")),
        loom_only=True,
        is_call=True,
    ),
    ActionType(
        "Ai",
        "A question to a language model.",
        fields=(
            Field("prompt"),
            Field("system"),
            Field("messages", "array"),
            Field("provider", "text"),
            Field("model", "text"),
        ),
        loom_only=True,
        is_call=True,
    ),
    ActionType(
        "WaitForEvent",
        "Waits for an event from outside, such as a person's answer.",
        fields=(Field("event", "text"), Field("schema", "schema"), Field("timeout", "timeout"), Field("prompt")),
        loom_only=True,
        is_call=True,
    ),
)

_CONNECTORS = (
    "ApiConnection", "ApiConnectionWebhook", "ApiConnectionNotification", "ApiManagement", "AppService", "Batch",
    "Agent", "Function", "IntegrationAccountArtifactLookup", "JavaScriptCode", "CSharpScriptCode", "PowerShellCode",
    "InlineCode", "Liquid", "OpenApiConnection", "OpenApiConnectionWebhook", "OpenApiConnectionNotification",
    "SendToBatch", "ServiceProvider", "SlidingWindow", "XmlCompose", "XmlParse", "XmlValidation", "Xslt",
    "FlatFileDecoding", "FlatFileEncoding", "As2Decode", "As2Encode", "EdifactDecode", "EdifactEncode", "X12Decode",
    "X12Encode", "X12BatchEncode", "EdifactBatchEncode", "RosettaNetDecode", "RosettaNetEncode", "Rule",
    "SwiftDecode", "SwiftEncode", "HL7Decode", "HL7Encode", "DataMapper", "ChunkText", "ParseDocument", "McpServer",
    "InvokeAgent", "NestedAgent",
)  # fmt: skip
"""Types of Logic Apps that a handler must supply."""

ACTION_TYPES: dict[str, ActionType] = {
    known.name.lower(): known
    for known in (
        *_TYPES,
        *(ActionType(name, "Done by a registered handler.", is_call=True, retries=True) for name in _CONNECTORS),
    )
}
"""All types that Loom knows, by their names in lower case."""


LOOP_TYPES = frozenset({"foreach", "until", "while", "dountil"})
"""Types of loops, in lower case."""

LOOP_VARIABLES = ("loopIndex", "loopCount", "loopResult", "loopStartTime")
"""Variables that a loop sets for its body and its condition. An outer loop's are read as `<loop>_loopIndex`, …"""
_LOOP_VARIABLES = frozenset(name.lower() for name in LOOP_VARIABLES)


def is_loop_variable(name: str) -> bool:
    """Tell whether loops set a variable of this name, with or without the name of a loop before it."""
    return name.lower().rpartition("_")[2] in _LOOP_VARIABLES


def spelt(kind: str) -> str:
    """Spell a type as Logic Apps does; an unknown one stays as it is."""
    known = ACTION_TYPES.get(kind)
    return known.name if known is not None else kind


def type_words(kind: str) -> str:
    """Spell a type as Loom's dialect does: `doUntil`, `http`. Answers of the API have it so."""
    name = spelt(kind)
    return name[:1].lower() + name[1:]


def is_call(kind: str) -> bool:
    """Tell whether an action of this type leaves the planner, as unknown ones do."""
    known = ACTION_TYPES.get(kind)
    return known is None or known.is_call


def retries_by_default(kind: str) -> bool:
    """Tell whether Logic Apps retries such an action when the document says nothing. Unknown types are connectors."""
    known = ACTION_TYPES.get(kind)
    return known is None or known.retries


# -- dialects ----------------------------------------------------------------------------------------------------------

LOOM_TRIGGERS = frozenset({"manual", "schedule", "event"})
"""Types of triggers, in lower case, that only Loom has."""

_LOOM_CONTAINERS = frozenset({"while", "dountil", "retry", "parallel"})
_LOOM_FIELDS = frozenset({"condition", "items", "on", "delay"})
_CONTAINERS = {
    "until": frozenset({"expression", "actions", "limit"}),
    "if": frozenset({"expression", "actions", "else"}),
    "switch": frozenset({"expression", "cases", "default"}),
    "foreach": frozenset({"foreach", "actions"}),
    "scope": frozenset({"actions"}),
}
"""Containers that both dialects have, with the fields that they have in both."""


def top_level_is_loom(definition: dict[str, Any]) -> bool:
    """Tell whether the top level is Loom's: without a trigger, or with none but Loom's own."""
    triggers = definition.get("triggers")
    if not isinstance(triggers, dict):
        return True
    return all(
        isinstance(trigger, dict) and str(trigger.get("type", "")).lower() in LOOM_TRIGGERS
        for trigger in triggers.values()
    )


def container_is_loom(kind: str, action: dict[str, Any], *, around: bool) -> bool:
    """Tell whether a container is Loom's. `around`: whether the container around it is."""
    if around or kind in _LOOM_CONTAINERS:
        return True
    fields = _CONTAINERS.get(kind)
    if fields is None:
        return False
    inputs = action.get("inputs")
    inner = inputs.keys() if isinstance(inputs, dict) else ()
    return not _LOOM_FIELDS.isdisjoint(action) or not (_LOOM_FIELDS | fields).isdisjoint(inner)

"""A definition, taken out of the wrapper that it was published in. Pure: text or data in, never a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any, Literal

from loom.expressions.template import is_opaque
from loom.flows.diagnostics import DefinitionError, Problem, at, suggestion
from loom.flows.document_text import check_plain, parse_text
from loom.flows.limits import Limits
from loom.flows.plain import copy_of

COMPILER = 1
"""Goes up when the same document would be compiled to another program, so that stored runs can tell."""

_RESOURCE = "microsoft.logic/workflows"
_NAMED_BY_THEMSELVES = "variable"
"""Types that end so use their `name` for something else."""

_DEFINITION_KEYS = ("actions", "triggers", "$schema", "contentVersion")

Shape = Literal["definition", "actions", "action"]


@dataclass(frozen=True, slots=True)
class Document:
    """A definition and where it comes from."""

    definition: dict[str, Any]
    name: str = ""
    kind: str = ""
    """Of Standard: Stateful, Stateless, …"""
    path: str = ""
    """Where the definition stands in the author's file."""
    shape: Shape = "definition"
    """Whether the author wrote a whole definition, only a map of actions, or a single action."""

    @property
    def actions_path(self) -> str:
        """Where the map of actions stands in the author's file."""
        return at(self.path, "actions") if self.shape == "definition" else self.path


def read_document(source: dict[str, Any] | str, *, name: str = "") -> Document:
    """The definition in a text or in plain data, in any of its wrappers. Raises `DefinitionError`."""
    data = parse_text(source) if isinstance(source, str) else source
    if data is None and isinstance(source, str):
        raise DefinitionError([Problem("", "the document is empty")])
    if not isinstance(data, dict):
        raise DefinitionError([Problem("", f"a definition is an object, not {_kind_of(data)}")])
    check_plain(data)
    # Data may be changed by whoever gave it; the program is made of what it is now.
    return _unwrap(data if isinstance(source, str) else copy_of(data), name)


def document_text(document: Document, limits: Limits | None = None) -> str:
    """The text that a document is stored as: compact, in the author's order, which means something, with its limits."""
    facts = {one.name: getattr(document, one.name) for one in fields(document)}
    facts |= {"limits": asdict(limits or Limits()), "compiler": COMPILER}
    return json.dumps(facts, separators=(",", ":"), allow_nan=False)


def digest_of(text: str) -> str:
    """The digest by which a stored text is known."""
    return sha256(text.encode()).hexdigest()


def stored_document(text: str) -> tuple[Document, Limits]:
    """A document and its limits from their stored text."""
    facts = json.loads(text)
    limits = Limits(**facts.pop("limits"))
    compiler = facts.pop("compiler")
    if compiler != COMPILER:
        raise ValueError(f"this document was stored for compiler {compiler}; this one is {COMPILER}")
    return Document(**facts), limits


def _unwrap(data: dict[str, Any], name: str) -> Document:
    if isinstance(data.get("resources"), list):
        return _arm(data, name)
    properties = data.get("properties")
    if isinstance(properties, dict) and isinstance(properties.get("definition"), dict):
        wrapped_name = data.get("name") or properties.get("displayName")
        return Document(
            _with_values(properties), name or _text(wrapped_name), _text(data.get("kind")), "properties.definition"
        )
    if isinstance(data.get("definition"), dict):
        return Document(data["definition"], name or _text(data.get("name")), _text(data.get("kind")), "definition")
    if not isinstance(data.get("type"), str) and any(key in data for key in _DEFINITION_KEYS):
        return Document(data, name or _text(data.get("name")))
    return _bare_actions(data, name)


def _arm(data: dict[str, Any], name: str) -> Document:
    found = [
        (index, resource)
        for index, resource in enumerate(data["resources"])
        if isinstance(resource, dict) and str(resource.get("type", "")).lower() == _RESOURCE
    ]
    if len(found) != 1:
        message = (
            f"an ARM template needs exactly one resource of type Microsoft.Logic/workflows, this one has {len(found)}"
        )
        raise DefinitionError([Problem("resources", message)])
    index, resource = found[0]
    properties = resource.get("properties")
    path = at(at("resources", index), "properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("definition"), dict):
        raise DefinitionError([Problem(at(path, "definition"), "the workflow has no definition")])
    return Document(_with_values(properties), name or _text(resource.get("name")), "", at(path, "definition"))


def _with_values(properties: dict[str, Any]) -> dict[str, Any]:
    """The definition of a resource, whose parameters have the values beside it, `$connections` for instance.

    They take the place of the defaults. Those that a deployment would have to evaluate are not known here.
    """
    definition: dict[str, Any] = properties["definition"]
    given, declared = properties.get("parameters"), definition.get("parameters")
    if isinstance(given, dict) and isinstance(declared, dict):
        for name, entry in given.items():
            if isinstance(declared.get(name), dict) and _has_value(entry):
                declared[name] = {**declared[name], "defaultValue": entry["value"]}
    return definition


def _has_value(entry: Any) -> bool:
    if not isinstance(entry, dict) or "value" not in entry:
        return False
    return not (isinstance(entry["value"], str) and is_opaque(entry["value"]))


def _bare_actions(data: dict[str, Any], name: str) -> Document:
    kind = data.get("type")
    if isinstance(kind, str):
        own = "" if kind.lower().endswith(_NAMED_BY_THEMSELVES) else _text(data.get("name"))
        return Document({"actions": {own or kind: data}}, name or own, shape="action")
    if data and all(isinstance(value, dict) and isinstance(value.get("type"), str) for value in data.values()):
        return Document({"actions": data}, name, shape="actions")
    raise DefinitionError(_no_definition(data))


def _no_definition(data: dict[str, Any]) -> list[Problem]:
    """What keeps data from being a definition or a map of actions; the latter, if some of it looks like actions."""
    looks = [key for key, value in data.items() if isinstance(value, dict) and "type" in value]
    if looks:
        wrong = {key: value for key, value in data.items() if key not in looks or not isinstance(value["type"], str)}
        words = {True: "an action needs a 'type'", False: "an action must be an object"}
        return [Problem(at("", key), words[isinstance(value, dict)]) for key, value in wrong.items()]
    near = next((key for key in data if suggestion(key, _DEFINITION_KEYS[:1])), None)
    hint = f"did you mean 'actions' by '{near}'?" if near is not None else "a definition has an object `actions`"
    return [Problem("", "there is no workflow definition in this document", hint)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and not value.startswith("[") else ""


def _kind_of(data: Any) -> str:
    kinds = {list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(data), "a number")

"""Published definitions, made ready to run: deployed, with parameters, connections, a trigger's body and a world.

The file itself is loaded elsewhere as it is. What is changed here is what a deployment changes: expressions of the
resource template become values, an app's parameters are declared, and the identity that only a cloud can give becomes
a token. What the world answers is guessed by `definition_shapes`, unless `OVERRIDES` knows better.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from definition_shapes import Shapes

from loom.expressions.parser import is_opaque
from loom.flows.document import read_document
from loom.flows.nodes.external import ExternalCall
from loom.runtime.flow import Flow, load

_HOST = "https://deployed.example"
_KINDS: dict[str, Any] = {
    "string": _HOST, "int": 1, "float": 1.0, "bool": True, "array": [], "object": {},
}  # fmt: skip
_NAMES = {str: "String", int: "Int", float: "Float", bool: "Bool", list: "Array", dict: "Object", type(None): "String"}


@dataclass(frozen=True)
class Override:
    """What is not guessed for one definition."""

    headers: dict[str, Any] = field(default_factory=dict)
    bodies: dict[str, Any] = field(default_factory=dict)
    polled: frozenset[str] = frozenset()
    """Actions whose requests are accepted with 202 and a location first."""


_CONNECTORS = ("sharepointonline", "office365", "office365users", "approvals", "teams", "onedriveforbusiness")
_TOKENS = {"$ConnectionKey": "key", "$connections": {f"shared_{name}": {"connectionId": name} for name in _CONNECTORS}}
_FROM_POWER_AUTOMATE = {
    "X-MS-APIM-Tokens": base64.b64encode(json.dumps(_TOKENS).encode()).decode(),
    "x-ms-user-email-encoded": base64.b64encode(b"ada@example.com").decode(),
}
OVERRIDES = {
    "C59": Override(headers=_FROM_POWER_AUTOMATE),
    "C60": Override(headers=_FROM_POWER_AUTOMATE),
    "L26": Override(polled=frozenset({"Get_IP_NetworkInterfaces"})),
}


@dataclass(frozen=True)
class Prepared:
    """A flow with everything that it needs to run."""

    flow: Flow
    shapes: Shapes
    override: Override
    body: Any
    parameters: dict[str, Any]
    stubs: frozenset[str]
    """The types that need a handler."""

    def answer(self, action: str) -> Any:
        """What the world answers to an action."""
        return self.override.bodies[action] if action in self.override.bodies else self.shapes.body(action)


def prepared(path: Path) -> Prepared:
    """Read and prepare a file."""
    number = path.name[:3]
    override = OVERRIDES.get(number, Override())
    data = deployed(json.loads(path.read_text(encoding="utf-8-sig")))
    definition = read_document(data, name=number).definition
    shapes = Shapes(definition)
    flow = load(definition if _declare(definition, shapes) else data, name=number)
    calls = {node.type for node in flow.program.nodes if isinstance(node.operation, ExternalCall)}
    return Prepared(
        flow, shapes, override, shapes.trigger_body(), _parameters(flow, shapes), frozenset(calls - {"http"})
    )


def deployed(value: Any, key: str = "") -> Any:
    """A part of a document as a deployment would leave it."""
    if isinstance(value, dict):
        if str(value.get("type", "")).lower() == "managedserviceidentity":
            return {"type": "Raw", "value": "Bearer identity"}
        return {name: deployed(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [deployed(inner, key) for inner in value]
    if isinstance(value, str) and key in ("uri", "url", "value") and is_opaque(value):
        return _HOST
    return value


def _declare(definition: dict[str, Any], shapes: Shapes) -> bool:
    """Declare parameters that an app has in a file of its own; whether there are any."""
    declared = definition.setdefault("parameters", {})
    known = {name.lower() for name in declared}
    missing = {name: shape for name, shape in shapes.parameters.items() if name.lower() not in known}
    declared |= {name: {"type": _NAMES[type(shape.example())]} for name, shape in missing.items()}
    return bool(missing)


def _parameters(flow: Flow, shapes: Shapes) -> dict[str, Any]:
    """Values for parameters that have none, or only one that a deployment replaces."""
    given: dict[str, Any] = {}
    for parameter in flow.program.parameters.values():
        default = parameter.default
        usable = default not in ({}, None, "") and not (isinstance(default, str) and is_opaque(default))
        if parameter.has_default and usable:
            continue
        kind = _KINDS[parameter.type.removeprefix("secure")]
        shape = shapes.parameters.get(parameter.name)
        guess = shape.example() if shape is not None else None
        fits = type(guess) is type(kind) and not (isinstance(guess, str) and guess.startswith("some "))
        given[parameter.name] = guess if fits else kind
    return given

"""Connections of a document: which one an action or a trigger names, and what a check of it needs to know. Pure.

A connection is named in four ways: by the reference of a Standard project, by the `$connections` parameter of
Consumption, by the connection and API of Power Automate, and by the configuration of a service provider or a function.
Consumption names it inside an expression, so the text of the expression is what tells it before a run.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

CONNECTION_TYPES = frozenset({
    "apiconnection", "apiconnectionwebhook", "apiconnectionnotification", "openapiconnection",
    "openapiconnectionwebhook", "openapiconnectionnotification", "serviceprovider", "function", "apimanagement",
})  # fmt: skip
"""Types, in lower case, of actions and triggers that name a connection."""

_IN_EXPRESSION = re.compile(r"\$connections'[\])]+\??\[\s*'((?:[^']|'')+)'\s*\]")
"""`parameters('$connections')['name']`, also where it is taken out of a token: `…['$connections']['name']`."""


_PARAMETER = re.compile(r"parameters\(\s*'(\$connections)'\s*\)", re.IGNORECASE)


class ConnectionUse(Struct, frozen=True):
    """An action or a trigger that calls a connection, as the document has it."""

    type: str
    """Its type in lower case."""
    path: str
    """JSON path of the action or trigger."""
    inputs: Any
    """Its inputs, with their expressions."""
    inputs_path: str
    names: tuple[str, ...]
    """Names that the connection goes by, the closest first; empty if only a run can tell."""
    key: str = ""
    """Key in the parameter `$connections` that its inputs read; empty: they do not read it."""
    page_items: int = 0
    """`minimumItemCount` of the pagination policy: pages are fetched until there are as many items; 0: one page."""


def connection_names(kind: str, inputs: Any) -> tuple[str, ...]:
    """List the names that the connection of an action goes by, the closest first.

    The inputs are those of the document or of a run. In a run an expression has become the id of the connection, whose
    last part is its name.
    """
    if not isinstance(inputs, dict):
        return ()
    if kind == "serviceprovider":
        return _texts(inputs.get("serviceProviderConfiguration"), "connectionName")
    if kind == "function":
        return _texts(inputs.get("function"), "connectionName")
    if kind == "apimanagement":
        return _texts(inputs.get("apiManagement"), "connection")
    host = inputs.get("host")
    if not isinstance(host, dict):
        return ()
    found = [
        *_texts(host.get("connection"), "referenceName"),
        *_of_id(host.get("connection")),
        *_texts(host, "connectionReferenceName", "connectionName"),
        *_of_api(host.get("apiId")),
    ]
    return tuple(dict.fromkeys(found))


def connection_key(inputs: Any) -> str:
    """Read the key in the parameter `$connections` that inputs read their connection from; empty if they do not."""
    host = inputs.get("host") if isinstance(inputs, dict) else None
    connection = host.get("connection") if isinstance(host, dict) else None
    text = connection.get("name") if isinstance(connection, dict) else None
    return _of_id(connection)[0] if isinstance(text, str) and _PARAMETER.search(text) and _of_id(connection) else ""


def _texts(holder: Any, *keys: str) -> tuple[str, ...]:
    given = [holder.get(key) for key in keys] if isinstance(holder, dict) else []
    return tuple(text for text in given if isinstance(text, str) and text and "@" not in text)


def _of_id(connection: Any) -> tuple[str, ...]:
    """Read `connection.name`: an expression over `$connections`, or the id that it had become."""
    text = connection.get("name") if isinstance(connection, dict) else None
    if not isinstance(text, str):
        return ()
    found = _IN_EXPRESSION.search(text)
    if found is not None:
        return (found[1].replace("''", "'"),)
    last = text.rstrip("/").rpartition("/")[2]
    return (last,) if last and "@" not in text and not text.startswith("[") else ()


def _of_api(api: Any) -> tuple[str, ...]:
    """Read an API's id: its last part, also without the `shared_` that Power Automate puts before it."""
    last = api.rstrip("/").rpartition("/")[2] if isinstance(api, str) and "@" not in api else ""
    return tuple(name for name in (last, last.removeprefix("shared_")) if name)

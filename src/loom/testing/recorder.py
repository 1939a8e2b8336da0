"""Answers of a real run as static results: the definition of a flow, with what services said in it.

    result = await flow.run(...)
    Path("recorded.json").write_text(json.dumps(record_static_results(flow, result)))

The definition that comes out runs without a network. Credentials are masked: what this process has registered for
connectors, headers that carry them, and fields and parameters of addresses that are named like them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loom.effects.actions.connections import Secret, SecretUnavailable
from loom.effects.actions.handlers import HANDLERS, ActionHandlers
from loom.flows.action_types import retries_by_default
from loom.flows.calls import MASK
from loom.flows.document import stored_document
from loom.flows.nodes.external import ExternalCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.effects.flow_result import ActionResult, FlowResult
    from loom.runtime.flow import Flow

MASKED = "*** masked ***"
"""Text in the place of a credential."""
_NAMES = re.compile(
    r"(^|[-_.])(authorization|cookie|password|passwd|pwd|secret|token|api-?key|access-?key|shared-?key|credentials?"
    r"|connection-?string|signature|sig|sas)$"
)
"""Ends of names, in words with hyphens, whose values are credentials."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IN_ADDRESS = re.compile(
    r"(?i)([?&;](?:sig|code|key|token|access_token|api[-_]?key|client_secret|password)=)[^&;#\s\"']+"
)
_SCHEME = re.compile(r"(?i)\b(bearer|basic|sharedkey|sharedaccesssignature) +[A-Za-z0-9._~+/=:-]{6,}")


def record_static_results(flow: Flow, result: FlowResult, *, handlers: ActionHandlers | None = None) -> dict[str, Any]:
    """Make a definition whose requests and connectors answer as they did in a run, credentials masked.

    An action that ran in a loop answers as it did the last time. One whose data is secure is left as it is: its answer
    is not known. `handlers` has the connectors whose secrets are looked for; None: those of `loom.connector`.
    """
    document, _ = stored_document(flow.document)
    definition = document.definition
    secrets = _secrets(handlers if handlers is not None else HANDLERS)
    results: dict[str, Any] = dict(definition.get("staticResults") or {})
    for name, action in _actions(definition):
        node = flow.program.find(name)
        ended = result.actions.get(node.name) if node is not None else None
        if node is None or ended is None or not isinstance(node.operation, ExternalCall):
            continue
        is_known = ended.status in ("Succeeded", "Failed", "TimedOut") and not (
            node.secure_inputs or node.secure_outputs
        )
        if node.static_result is not None or not retries_by_default(node.type) or not is_known:
            continue
        key = _free(f"{node.name} (recorded)", results)
        results[key] = _literal(_masked(_static(ended), secrets))
        configuration = action.get("runtimeConfiguration")
        action["runtimeConfiguration"] = {
            **(configuration if isinstance(configuration, dict) else {}),
            "staticResult": {"name": key, "staticResultOptions": "Enabled"},
        }
    return {**definition, "staticResults": results}


def _static(ended: ActionResult) -> dict[str, Any]:
    facts = {"status": ended.status, "outputs": ended.outputs, "code": ended.code, "error": ended.error}
    return {key: value for key, value in facts.items() if value}


def _free(name: str, taken: dict[str, Any]) -> str:
    count = 1
    while (found := name if count == 1 else f"{name} {count}") in taken:
        count += 1
    return found


def _actions(holder: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """List the actions of a definition with their names, those inside others included."""
    if not isinstance(holder, dict):
        return
    for name, action in _mapped(holder.get("actions")):
        yield name, action
        yield from _actions(action)
    other = holder.get("else")
    if isinstance(other, dict):
        yield from _actions(other if "actions" in other else {"actions": other})
    for branch in (*dict(_mapped(holder.get("cases"))).values(), holder.get("default"), holder.get("inputs")):
        yield from _actions(branch)


def _mapped(value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(name, item) for name, item in value.items() if isinstance(item, dict)] if isinstance(value, dict) else []


def _literal(value: Any) -> Any:
    """Write a value so that a definition means it as it is: its texts are templates there."""
    if isinstance(value, str):
        return f"@{value}" if value.startswith("@") else value.replace("@{", "@@{")
    if isinstance(value, dict):
        return {_literal(key): _literal(item) for key, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, list) else value


# --- masks ------------------------------------------------------------------------------------------------------------


def _secrets(handlers: ActionHandlers) -> list[str]:
    found: set[str] = set()
    for spec in handlers.connectors.values():
        for name in getattr(spec.auth, "__struct_fields__", ()):
            secret = getattr(spec.auth, name)
            if isinstance(secret, Secret):
                try:
                    found.add(secret.read())
                except SecretUnavailable:
                    continue  # what cannot be read was not sent either
    return sorted(found, key=len, reverse=True)


def _masked(value: Any, secrets: list[str], name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _masked(item, secrets, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, secrets, name) for item in value]
    if not isinstance(value, str):
        return value
    if value and value != MASK and _NAMES.search(_WORDS.sub("-", name).lower().replace("_", "-")):
        return MASKED
    for secret in secrets:
        value = value.replace(secret, MASKED)
    value = _IN_ADDRESS.sub(rf"\g<1>{MASKED}", value)
    return _SCHEME.sub(rf"\g<1> {MASKED}", value)

"""The flows of the cases, as their authors would write them."""

from __future__ import annotations

from typing import Any

_SCHEMA = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"


def logic_app(actions: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """A definition in Logic Apps' dialect, which begins with a request."""
    request = {"type": "Request", "kind": "Http", "inputs": {"schema": {}}}
    return {
        "definition": {
            "$schema": _SCHEMA,
            "contentVersion": "1.0.0.0",
            "triggers": {"manual": request},
            "actions": actions,
            "outputs": {},
            **parts,
        }
    }


def until(iterations: int) -> dict[str, Any]:
    """Loom's loop: the test comes first, and the body is one compose."""
    loop = {
        "type": "until",
        "condition": f"@equals(variables('loopIndex'), {iterations})",
        "limit": {"count": iterations, "timeout": "PT24H"},
        "actions": {"count": {"type": "compose", "inputs": "@add(variables('loopIndex'), 1)"}},
    }
    return {"actions": {"loop": loop}}


def azure_until(iterations: int) -> dict[str, Any]:
    """The loop of Logic Apps: the test comes after the body, and reads what that has left."""
    count = {"type": "Compose", "inputs": "@add(iterationIndexes('loop'), 1)", "runAfter": {}}
    loop = {
        "type": "Until",
        "expression": f"@equals(outputs('count'), {iterations})",
        "limit": {"count": iterations, "timeout": "PT1H"},
        "actions": {"count": count},
        "runAfter": {},
    }
    return logic_app({"loop": loop})


def foreach(items: int) -> dict[str, Any]:
    """A loop over so many items, as many at a time as Logic Apps begins by itself: 20; an activity for each."""
    inputs = {"activityType": "work", "input": "@item()"}
    work = {"type": "activity", "inputs": inputs, "runAfter": {}}
    each = {"type": "Foreach", "foreach": f"@range(0, {items})", "actions": {"work": work}, "runAfter": {}}
    return logic_app({"each": each})

"""A long definition in Logic Apps' dialect, of the kinds of actions that real ones have."""

from __future__ import annotations

from typing import Any

from bench.cases._flow_documents import logic_app

_ACTIONS_OF_A_GROUP = 11


def mixed(actions: int) -> dict[str, Any]:
    """A definition of at least so many actions, of the kinds that real ones have, each group after the one before.

    Every group has texts of its own: a real definition repeats few of its expressions.
    """
    found: dict[str, Any] = {
        "total": {
            "type": "InitializeVariable",
            "inputs": {"variables": [{"name": "total", "type": "integer", "value": 0}]},
            "runAfter": {},
        },
        "found": {
            "type": "InitializeVariable",
            "inputs": {"variables": [{"name": "found", "type": "array", "value": []}]},
            "runAfter": {"total": ["Succeeded"]},
        },
    }
    before, count, number = "found", len(found), 0
    while count < actions:
        group, before = _group(number, before)
        found |= group
        count += _ACTIONS_OF_A_GROUP
        number += 1
    return logic_app(found, parameters={"endpoint": {"type": "String", "defaultValue": "https://orders.example.com"}})


def _group(number: int, before: str) -> tuple[dict[str, Any], str]:
    """A request, what is made of its answer, and what is done in a case of error; and the action to go on after."""
    fetch, parse, pick, names, each, check = (
        f"{name}_{number}" for name in ("Get_orders", "Parse", "Pick", "Names", "For_each", "Check")
    )
    group = {
        fetch: {
            "type": "Http",
            "inputs": {
                "method": "GET",
                "uri": f"@{{parameters('endpoint')}}/orders/{number}?since=@{{formatDateTime(utcNow(), 'yyyy-MM-dd')}}",
                "headers": {"x-request-id": f"@concat(workflow()['run']['name'], '-{number}')"},
                "retryPolicy": {"type": "exponential", "count": 4, "interval": "PT7S"},
            },
            "runAfter": _after(before),
        },
        parse: {
            "type": "ParseJson",
            "inputs": {"content": f"@body('{fetch}')", "schema": _orders_schema(number)},
            "runAfter": _after(fetch),
        },
        pick: {
            "type": "Query",
            "inputs": {
                "from": f"@body('{parse}')?['orders']",
                "where": f"@and(greater(item()?['amount'], {number}), equals(item()?['state'], 'open'))",
            },
            "runAfter": _after(parse),
        },
        names: {
            "type": "Select",
            "inputs": {
                "from": f"@body('{pick}')",
                "select": {"id": "@item()?['id']", "label": f"@toUpper(concat(item()?['name'], '-{number}'))"},
            },
            "runAfter": _after(pick),
        },
        each: _each(number, names),
        check: _check(number, parse, names) | {"runAfter": {each: ["Succeeded", "Failed"]}},
    }
    return group, check


def _each(number: int, names: str) -> dict[str, Any]:
    """A loop with three actions in it, one iteration after the other."""
    add, note, label = f"Add_{number}", f"Note_{number}", f"Label_{number}"
    text = f"@concat(items('For_each_{number}')?['label'], ' {number}')"
    body = {
        label: {"type": "Compose", "inputs": text, "runAfter": {}},
        note: {
            "type": "AppendToArrayVariable",
            "inputs": {"name": "found", "value": f"@outputs('{label}')"},
            "runAfter": _after(label),
        },
        add: {"type": "IncrementVariable", "inputs": {"name": "total", "value": 1}, "runAfter": _after(note)},
    }
    return {
        "type": "Foreach",
        "foreach": f"@body('{names}')",
        "actions": body,
        "runtimeConfiguration": {"concurrency": {"repetitions": 1}},
        "runAfter": _after(names),
    }


def _check(number: int, parse: str, names: str) -> dict[str, Any]:
    """A condition with an action on either side."""
    tell = f"@{{variables('total')}} of @{{length(body('{parse}')?['orders'])}} in group {number}"
    none = {"equals": [f"@length(body('{names}'))", 0]}
    wait = {"interval": {"count": 5, "unit": "Second"}}
    return {
        "type": "If",
        "expression": {"and": [{"greater": ["@variables('total')", number]}, {"not": none}]},
        "actions": {f"Tell_{number}": {"type": "Compose", "inputs": tell, "runAfter": {}}},
        "else": {"actions": {f"Wait_{number}": {"type": "Wait", "inputs": wait, "runAfter": {}}}},
    }


def _after(name: str) -> dict[str, list[str]]:
    return {name: ["Succeeded"]}


def _orders_schema(number: int) -> dict[str, Any]:
    order = {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "amount": {"type": "number", "minimum": number},
        "state": {"enum": ["open", "paid", "sent"]},
    }
    rows = {"type": "array", "items": {"type": "object", "properties": order, "required": ["id", "amount"]}}
    return {"type": "object", "properties": {"orders": rows}, "required": ["orders"]}

"""Folders in the shape of Logic Apps Standard projects, for tests that load, validate and serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"
HOST = {
    "version": "2.0",
    "extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle.Workflows", "version": "[1.*, 2.0.0)"},
}
HANDLERS = """
import loom


@loom.action("ApiConnection")
def managed(inputs, context: loom.ActionContext):
    return {"body": {"sent": inputs["body"], "over": context.connection["connectionRuntimeUrl"]}}


@loom.action("ServiceProvider")
def provider(inputs, context: loom.ActionContext):
    return {"body": {"operation": inputs["serviceProviderConfiguration"]["operationId"],
                     "knows": len(context.connection["parameterValues"]["connectionString"])}}


@loom.action("Function")
def function(inputs, context: loom.ActionContext):
    return {"body": {"called": context.connection["displayName"], "with": inputs["body"]}}
"""
"""Handlers for all connections of the shapes."""


class Shape(NamedTuple):
    """A project, and what its first workflow answers."""

    name: str
    files: dict[str, Any]
    """Data by the path of the file; texts as they are."""
    workflow: str
    body: Any
    answer: Any
    settings: dict[str, str]
    """Settings that it finds in the environment only."""
    method: str = "POST"
    """The method that its trigger takes, and no other."""
    path: str = ""
    """What comes after its address, for a trigger with a relative path; `{id}` is any value."""

    def write(self, root: Path) -> Path:
        """Write the project below a folder, and return its own."""
        folder = root / self.name
        for path, data in self.files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(data if isinstance(data, str) else json.dumps(data, indent=2))
        return folder


def workflow(actions: dict[str, Any], answer: Any, kind: str = "Stateful", **trigger: Any) -> dict[str, Any]:
    """Make a workflow that does actions one after the other, pauses if its body says so, and answers."""
    chained: dict[str, Any] = {}
    last: str | None = None
    hold = {
        "type": "If",
        "expression": {"and": [{"equals": ["@triggerBody()?['pause']", True]}]},
        "actions": {"Pause": {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Hour"}}}},
    }
    response = {"type": "Response", "kind": "Http", "inputs": {"statusCode": 200, "body": answer}}
    for name, action in {**actions, "Hold": hold, "Answer": response}.items():
        chained[name] = {**action, "runAfter": {last: ["Succeeded"]} if last is not None else {}}
        last = name
    request = {"type": "Request", "kind": "Http", "inputs": {"schema": {}}, **trigger}
    definition = {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "actions": chained,
        "outputs": {},
        "triggers": {"When_called": request},
    }
    return {"definition": definition, "kind": kind}


def compose(value: Any) -> dict[str, Any]:
    """Make an action that gives a value."""
    return {"type": "Compose", "inputs": value}


def local(**values: str) -> dict[str, Any]:
    """Make a `local.settings.json`."""
    return {"IsEncrypted": False, "Values": {"FUNCTIONS_WORKER_RUNTIME": "node", **values}}


def text(value: str, kind: str = "String") -> dict[str, Any]:
    """Make an entry of `parameters.json`."""
    return {"type": kind, "value": value}


MANAGED = {
    "managedApiConnections": {
        "office365": {
            "api": {"id": "/subscriptions/@{appsetting('SUBSCRIPTION')}/managedApis/office365"},
            "connection": {"id": "/subscriptions/@{appsetting('SUBSCRIPTION')}/connections/office365"},
            "connectionRuntimeUrl": "@appsetting('MAIL_URL')",
            "authentication": {"type": "Raw", "scheme": "Key", "parameter": "@appsetting('MAIL_KEY')"},
        }
    }
}
PROVIDED = {
    "serviceProviderConnections": {
        "bus": {
            "parameterValues": {"connectionString": "@appsetting('BUS_CONNECTION')"},
            "serviceProvider": {"id": "/serviceProviders/serviceBus"},
            "displayName": "the bus",
        }
    }
}
FUNCTIONS = {
    "functionConnections": {
        "pricing": {
            "function": {"id": "/sites/@{parameters('site')}/functions/price"},
            "triggerUrl": "https://@{parameters('site')}.example.com/api/price",
            "authentication": {"type": "QueryString", "name": "Code", "value": "@appsetting('PRICING_KEY')"},
            "displayName": "prices of @{parameters('site')}",
        }
    }
}


METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
"""Methods of requests that triggers take."""


def shapes() -> list[Shape]:
    """Make twenty projects. Their workflows have different names, so that one server can serve all of them.

    Their triggers take one method each, in turn; the first five name none. Every third has a relative path.
    """
    made = [*_of_values(), *_of_connections(), *_of_actions()]
    return [_fired(shape, number) for number, shape in enumerate(made)]


def _fired(shape: Shape, number: int) -> Shape:
    """Give a project the method and the path of its number."""
    method = METHODS[number % len(METHODS)] if number >= len(METHODS) else "POST"
    path = "items/{id}" if number % 3 == 0 else ""
    inputs = shape.files[f"{shape.workflow}/workflow.json"]["definition"]["triggers"]["When_called"]["inputs"]
    named = {"method": method} if number >= len(METHODS) else {}
    inputs |= {**named, **({"relativePath": f"/{path}"} if path else {})}
    return shape._replace(method=method, path=path)


def _project(name: str, main: dict[str, Any], body: Any, answer: Any, **more: Any) -> Shape:
    settings = more.pop("settings", {})
    files = {f"{name}/workflow.json": main, "host.json": HOST, **more.pop("files", {})}
    named = {"parameters": "parameters.json", "connections": "connections.json", "local": "local.settings.json"}
    files |= {named[key]: value for key, value in more.items()}
    return Shape(f"project_{name}", files, name, body, answer, settings)


def _of_values() -> list[Shape]:
    greet = {"Greet": compose("@concat(parameters('greeting'), ' ', triggerBody()['name'])")}
    token = {"Token": compose("@length(parameters('token'))")}
    return [
        _project(
            "Constant", workflow(greet, "@outputs('Greet')"), {"name": "Ada"}, "Hello Ada",
            parameters={"greeting": text("Hello")},
        ),
        _project(
            "FromSetting", workflow(token, "@outputs('Token')"), {}, 6,
            parameters={"token": text("@appsetting('TOKEN')")}, local=local(TOKEN="t0ken-"),
        ),
        _project(
            "Inside", workflow(token, "@outputs('Token')"), {}, 13,
            parameters={"token": text("Bearer @{appsetting('TOKEN2')}")}, local=local(TOKEN2="abcdef"),
        ),
        _project(
            "Direct", workflow({"Read": compose("@appsetting('REGION')")}, "@concat('in ', outputs('Read'))"),
            {}, "in north", local=local(REGION="north"),
        ),
        _project(
            "Environment", workflow({"Read": compose("@{appsetting('LOOM_TEST_ZONE')}!")}, "@outputs('Read')"),
            {}, "outer!", local=local(LOOM_TEST_ZONE="inner"), settings={"LOOM_TEST_ZONE": "outer"},
        ),
        _project(
            "Typed",
            workflow({"Add": compose("@add(parameters('base'), parameters('more'))")}, "@outputs('Add')"), {}, 42,
            parameters={"base": {"type": "Int", "value": 40}, "more": {"type": "Int", "value": "@appsetting('MORE')"}},
            local=local(MORE="2"),
        ),
        _project(
            "Whole", workflow({"Read": compose("@parameters('conf')['url']")}, "@outputs('Read')"), {},
            "https://x.example.com/a",
            parameters={"conf": {"type": "Object", "value": {"url": "https://@{appsetting('HOST1')}/a", "n": 1}}},
            local=local(HOST1="x.example.com"),
        ),
    ]  # fmt: skip


def _of_connections() -> list[Shape]:
    mail = {
        "type": "ApiConnection",
        "inputs": {
            "host": {"connection": {"referenceName": "office365"}},
            "method": "post",
            "path": "/v2/Mail",
            "body": {"To": "@triggerBody()['to']"},
        },
    }
    send = {
        "type": "ServiceProvider",
        "inputs": {
            "parameters": {"entityName": "orders", "message": {"contentData": "@triggerBody()"}},
            "serviceProviderConfiguration": {
                "connectionName": "bus",
                "operationId": "sendMessage",
                "serviceProviderId": "/serviceProviders/serviceBus",
            },
        },
    }
    price = {
        "type": "Function",
        "inputs": {"body": "@triggerBody()['item']", "function": {"connectionName": "pricing"}, "method": "POST"},
    }
    keys = {"SUBSCRIPTION": "s-1", "MAIL_URL": "https://mail.example.com", "MAIL_KEY": "k-mail-secret"}
    return [
        _project(
            "Mail", workflow({"Send": mail}, "@body('Send')"), {"to": "ada"},
            {"sent": {"To": "ada"}, "over": "https://mail.example.com"}, connections=MANAGED, local=local(**keys),
        ),
        _project(
            "Bus", workflow({"Send": send}, "@body('Send')['operation']"), {"n": 1}, "sendMessage",
            connections=PROVIDED, local=local(BUS_CONNECTION="Endpoint=sb://x;Key=k-bus-secret"),
        ),
        _project(
            "Price", workflow({"Ask": price}, "@body('Ask')"), {"item": "tea"},
            {"called": "prices of shop", "with": "tea"}, connections=FUNCTIONS, parameters={"site": text("shop")},
            local=local(PRICING_KEY="k-price-secret"),
        ),
        _project(
            "Both", workflow({"Send": mail, "Tell": send}, "@body('Tell')['knows']"), {"to": "bob"}, 6,
            connections={**MANAGED, **PROVIDED}, local=local(**keys, BUS_CONNECTION="secret"),
        ),
    ]  # fmt: skip


def _of_actions() -> list[Shape]:
    item = {"type": "Foreach", "foreach": "@triggerBody()['n']", "actions": {"Twice": compose("@mul(item(), 2)")}}
    each = {"Each": item}
    child = {"type": "Workflow", "inputs": {"host": {"workflow": {"id": "Kid"}}, "body": {"name": "kid"}}}
    choose = {
        "type": "Switch",
        "expression": "@triggerBody()['kind']",
        "cases": {"A": {"case": "a", "actions": {"First": compose("@parameters('first')")}}},
        "default": {"actions": {"Other": compose("other")}},
    }
    fetch = {
        "type": "Http",
        "inputs": {"method": "GET", "uri": "@{parameters('base')}/rates"},
        "runtimeConfiguration": {"staticResult": {"name": "rates", "staticResultOptions": "Enabled"}},
    }
    mocked = workflow({"Fetch": fetch}, "@body('Fetch')['rate']")
    mocked["definition"]["staticResults"] = {
        "rates": {"status": "Succeeded", "outputs": {"statusCode": "OK", "body": {"rate": 2}}}
    }
    counted = {
        "Init": {"type": "InitializeVariable", "inputs": {"variables": [{"name": "n", "type": "integer", "value": 0}]}},
        "Count": {
            "type": "Until",
            "expression": "@equals(variables('n'), 3)",
            "limit": {"count": 10, "timeout": "PT1H"},
            "actions": {"More": {"type": "IncrementVariable", "inputs": {"name": "n", "value": 1}}},
        },
    }
    scope = {"Try": {"type": "Scope", "actions": {"Make": compose("@{triggerBody()['name']}-made")}}}
    parse = {
        "type": "ParseJson",
        "inputs": {"content": "@triggerBody()['text']", "schema": {"type": "object"}},
    }
    kid = workflow({"Say": compose("@parameters('word')")}, "@{outputs('Say')} @{triggerBody()['name']}")
    checked = {"operationOptions": "EnableSchemaValidation", "inputs": {"schema": {"type": "object"}}}
    noise = {
        "workflow-designtime/host.json": "{",
        "Artifacts/Maps/map.json": "[]",
        "lib/custom/workflow.json": "{",
        "node_modules/x/workflow.json": "{",
        ".vscode/settings.json": "{",
        ".funcignore": "# left out\nDrafts/\n",
        "Drafts/workflow.json": "{",
    }
    return [
        _project("Stateless", workflow(scope, "@outputs('Make')", "Stateless"), {"name": "x"}, "x-made"),
        _project("Loop", workflow(each, "@outputs('Each')"), {"n": [1, 2]}, [{"Twice": 2}, {"Twice": 4}]),
        _project(
            "Parent", workflow({"Call": child}, "@body('Call')"), {}, "hello kid",
            files={"Kid/workflow.json": kid}, parameters={"word": text("hello")},
        ),
        _project(
            "Choice", workflow({"Choose": choose}, "@outputs('First')"), {"kind": "a"}, "one",
            parameters={"first": text("one")},
        ),
        _project("Mocked", mocked, {}, 2, parameters={"base": text("https://rates.example.com")}),
        _project("Until", workflow(counted, "@string(variables('n'))"), {}, "3"),
        _project("Parsed", workflow({"Parse": parse}, "@body('Parse')['a']"), {"text": '{"a": "b"}'}, "b"),
        _project("Checked", workflow(scope, "@outputs('Make')", **checked), {"name": "y"}, "y-made"),
        _project("Noisy", workflow(scope, "@outputs('Make')"), {"name": "z"}, "z-made", files=noise),
    ]  # fmt: skip

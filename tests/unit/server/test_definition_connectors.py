"""Definitions that are put are checked against the connectors of the server's process."""

from __future__ import annotations

from typing import Any

from server_serving import Served

import loom
from loom.server.settings import ServerSettings


def calling(path: str) -> dict[str, Any]:
    inputs = {"host": {"connection": {"referenceName": "mail"}}, "method": "get", "path": path}
    trigger = {"manual": {"type": "Request", "inputs": {}}}
    return {"triggers": trigger, "actions": {"Read": {"type": "ApiConnection", "inputs": inputs, "runAfter": {}}}}


async def test_a_definition_with_an_unknown_operation_is_refused_with_its_path() -> None:
    handlers = loom.ActionHandlers()
    document = {"swagger": "2.0", "host": "x.example.com", "paths": {"/mail": {"get": {}}}}
    handlers.connector("mail", openapi=document)
    runtime = loom.connect("memory://", definitions=True, handlers=handlers)
    async with runtime:
        client = Served(runtime, ServerSettings()).client()
        bad = await client.put("/v1/definitions/f", json=calling("/mial"))
        assert bad.status_code == 422, bad.text
        assert '"/actions/Read/inputs/path"' in bad.text
        assert "has no operation GET /mial" in bad.text
        assert (await client.put("/v1/definitions/f", json=calling("/mail"))).status_code in (200, 201)
        judged = await client.post("/v1/definitions/validate", json=calling("/mial"))
        assert "has no operation GET /mial" in judged.text

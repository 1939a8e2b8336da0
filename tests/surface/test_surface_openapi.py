"""The OpenAPI document of the server, with keys and without."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount
from surface_golden import Compare, without_margins

import loom
from loom.server import ServerSettings, create_app


async def _document(settings: ServerSettings, prefix: str = "") -> dict[str, Any]:
    async with loom.connect("memory://") as runtime:
        app: Any = create_app(runtime, settings)
        if prefix:
            app = Starlette(routes=[Mount(prefix, app)])
        transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1234))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get(f"{prefix}/openapi.json")
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found


async def test_the_document_is_what_it_was(golden: Compare) -> None:
    found = without_margins(await _document(ServerSettings()))
    golden("openapi.json", json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


async def test_the_document_is_the_same_where_keys_are_asked_for() -> None:
    assert await _document(ServerSettings(require_key=True)) == await _document(ServerSettings())


async def test_a_mounted_server_describes_itself_the_same_but_for_its_address() -> None:
    mounted = await _document(ServerSettings(), "/loom")
    assert mounted == {**await _document(ServerSettings()), "servers": [{"url": "/loom"}]}

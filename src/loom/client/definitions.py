"""What a server knows beside runs: definitions, and how it is. May import the rest of loom.client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.client.exchange import Call, act, decoded, read, segment
from loom.client.models import Definition, DefinitionVersion, Health, ItemT, Page, PutDefinition, Validation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.client.exchange import Exchange

_UNAVAILABLE = 503


class DefinitionCalls:
    """What can be asked of a server about definitions and its health."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    # -- definitions --------------------------------------------------------------------------------------------------

    async def definitions(self) -> Sequence[Definition]:
        """The workflows that the server knows."""
        return await self._all("/v1/definitions", Page[Definition])

    async def versions(self, name: str) -> Sequence[DefinitionVersion]:
        """The versions of a flow, newest first; Python steps have none."""
        return await self._all(f"{_path(name)}/versions", Page[DefinitionVersion])

    async def _all(self, path: str, kind: type[Page[ItemT]]) -> list[ItemT]:
        """All items of a list that comes in pages."""
        found: list[ItemT] = []
        cursor: str | None = None
        while True:
            page = await self._exchange.ask(read(path, params={"cursor": cursor}), kind)
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found

    async def definition(self, name: str, *, version: str | int | None = None) -> dict[str, Any]:
        """The document of a flow; of Python steps their events and schemas."""
        return await self._exchange.ask(read(_path(name), params={"version": version}), dict[str, Any])

    async def put_definition(
        self, name: str, document: Mapping[str, Any] | str, *, if_match: str | None = None
    ) -> PutDefinition:
        """Store a flow: a document, or the text of one in JSON or YAML. Raises `DefinitionError` with all problems.

        With `if_match` only if the stored one still has that etag.
        """
        headers = {"If-Match": if_match} if if_match is not None else {}
        call = Call(method="PUT", path=_path(name), **_document(document, headers))
        return await self._exchange.ask(call, PutDefinition)

    async def delete_definition(self, name: str) -> None:
        """Let nothing new start under a name. Runs under way keep their version."""
        await self._exchange.send(Call(method="DELETE", path=_path(name)))

    async def validate(self, document: Mapping[str, Any] | str) -> Validation:
        """Whether a document could be stored, and what is to be said about it. Nothing is stored."""
        call = act("/v1/definitions/validate")
        sent = _document(document, dict(call.headers))
        return await self._exchange.ask(msgspec.structs.replace(call, **sent), Validation)

    async def graph(self, name: str) -> dict[str, Any]:
        """The nodes and edges of a workflow."""
        return await self._exchange.ask(read(f"{_path(name)}/graph"), dict[str, Any])

    async def mermaid(self, name: str) -> str:
        """The graph of a workflow as text for Mermaid."""
        return (await self._exchange.send(read(f"{_path(name)}/graph", params={"format": "mermaid"}))).text

    async def schema(self, name: str) -> dict[str, Any]:
        """JSON Schemas of what a workflow takes and gives."""
        return await self._exchange.ask(read(f"{_path(name)}/schema"), dict[str, Any])

    # -- health -------------------------------------------------------------------------------------------------------

    async def health(self) -> Health:
        """Whether the server takes work. A server that does not is an answer too, and nothing is tried again."""
        response = await self._exchange.send(read("/v1/health/ready", accepts=frozenset({_UNAVAILABLE})))
        said = decoded(response, dict[str, Any])
        reasons = said.get("reasons") or []
        texts = [f"{name}: {why}" for name, why in reasons.items()] if isinstance(reasons, dict) else reasons
        return Health(ready=response.is_success, reasons=[str(text) for text in texts])


def _path(name: str) -> str:
    return f"/v1/definitions/{segment(name, 'name of a workflow')}"


def _document(document: Mapping[str, Any] | str, headers: dict[str, str]) -> dict[str, Any]:
    """The body and headers that carry a document."""
    if not isinstance(document, str):
        return {"body": document, "headers": headers}
    is_json = document.lstrip().startswith("{")
    kind = "application/json" if is_json else "application/yaml"
    return {"body": document.encode("utf-8"), "headers": {**headers, "Content-Type": kind}}

"""Flows of a store as operators see them: which there are, whether their triggers fire, and signed addresses of those.

What is said here holds for all processes on the store from the moment it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from loom.api.definitions import FlowAddress, TriggerFired
from loom.api.times import maybe_moment
from loom.effects.off_loop import aside
from loom.flows.diagnostics import DefinitionError
from loom.flows.document import digest_of
from loom.flows.triggers import fires_by_request, relative_path, request_methods, request_trigger
from loom.runtime.durable.addresses import TriggerAddress, base_url
from loom.runtime.durable.stored_definitions import (
    DEFINITIONS,
    DefinitionNotFound,
    DefinitionUnreadable,
    read_definition,
)
from loom.runtime.flow import flow_of
from loom.runtime.render_definitions import flow_status, flow_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.api.definitions import Definition, FlowStatus, TriggerHistory
    from loom.flows.program import Program
    from loom.runtime.durable.addresses import Signer
    from loom.runtime.durable.listeners import ListenerClient
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.durable.stored_definitions import StoredDefinition

_PAGE = 200


class NoRequestTrigger(ValueError):
    """No request fires a trigger of the flow, so there is no address for one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The flow {name!r} has no trigger that a request fires.")


class FlowClient:
    """The flows of one store."""

    def __init__(self, runs: RunClient, signer: Signer, listeners: Callable[[], ListenerClient]) -> None:
        self._runs = runs
        self._listeners = listeners
        self._signer = signer

    async def all(self) -> list[Definition]:
        """List the flows by their names."""
        await self._runs.ready()
        found: list[Definition] = []
        after = ""
        while entries := await self._runs.store.entries(DEFINITIONS, after, _PAGE):
            for entry in entries:
                served = entry.key in self._runs.codes
                try:
                    definition = read_definition(entry)
                except DefinitionUnreadable:
                    found.append(flow_view(entry.key, None, served=served))
                    continue
                if definition.deleted_at is None:
                    found.append(flow_view(entry.key, definition, served=served))
            after = entries[-1].key
        return found

    async def status(self, name: str) -> FlowStatus:
        """Tell whether a flow is enabled, and what starts its runs."""
        await self._runs.ready()
        return await self._status(name, await self._stored(name))

    async def enable(self, name: str) -> FlowStatus:
        """Let the triggers of a flow fire again. What they have missed is not made up for."""
        await self._runs.ready()
        definition = await self._runs.definitions.stored.enable(name)
        await self._listeners().turned(name)
        return await self._status(name, definition)

    async def disable(self, name: str) -> FlowStatus:
        """Let the triggers of a flow fire no more. Runs under way go on, and explicit starts work."""
        await self._runs.ready()
        definition = await self._runs.definitions.stored.disable(name)
        await self._listeners().turned(name)
        return await self._status(name, definition)

    async def trigger_history(self, name: str, trigger: str | None) -> TriggerHistory:
        """Tell what has become of a trigger, latest first."""
        from loom.runtime.durable.listeners import find_trigger

        await self._runs.ready()
        program = await self._program(name, await self._stored(name))
        return await self._listeners().history(name, find_trigger(name, program, trigger))

    async def fire_trigger(self, name: str, trigger: str | None) -> TriggerFired:
        """Fire a trigger by hand."""
        from loom.runtime.durable.listeners import TriggerRefused, find_trigger

        await self._runs.ready()
        definition = await self._stored(name)
        found = find_trigger(name, await self._program(name, definition), trigger)
        if definition.is_disabled:
            raise TriggerRefused(f"The flow {name!r} is disabled: its triggers do not fire.")
        return TriggerFired(name=found.name, run_id=await self._listeners().fire(name, found))

    async def address(
        self, name: str, url: str, *, expires_in: float | None = None, rotate: bool = False
    ) -> FlowAddress:
        """Give out a signed address of the trigger that requests fire, below the address of a server.

        `expires_in` is in seconds; without, the address is good until the key is rotated. To `rotate` ends all
        addresses that were given out before.
        """
        await self._runs.ready()
        program = await self._program(name, await self._stored(name))
        trigger = request_trigger(program)
        if not fires_by_request(trigger):
            raise NoRequestTrigger(name)
        stored = self._runs.definitions.stored
        definition = await (stored.rotate_address(name) if rotate else self._stored(name))
        until = int(self._runs.now() + expires_in) if expires_in is not None else None
        address = TriggerAddress(name, trigger.name if trigger is not None else "", definition.address_key, until)
        query = await address.query(self._signer)
        path = relative_path(trigger)  # as Azure gives it: the caller puts values in
        below = f"/{quote(path, safe='/{}')}" if path is not None else ""
        return FlowAddress(
            name=name,
            trigger=address.trigger,
            methods=list(request_methods(trigger)),
            url=f"{base_url(url)}/v1/definitions/{quote(name, safe='')}/invoke{below}?{query}",
            key=address.key,
            expires_at=maybe_moment(until),
        )

    async def _stored(self, name: str) -> StoredDefinition:
        definition = await self._runs.definitions.stored.get(name)
        if definition is None or definition.deleted_at is not None:
            raise DefinitionNotFound(name)
        return definition

    async def _status(self, name: str, definition: StoredDefinition) -> FlowStatus:
        program = await self._program(name, definition)
        return flow_status(name, definition, program, served=name in self._runs.codes)

    async def _program(self, name: str, definition: StoredDefinition) -> Program:
        """Compile the current version, unless this process works for it."""
        current = definition.latest
        code = self._runs.codes.get(name)
        if code is not None and code.program is not None and (code.document or ("",))[0] == current.digest:
            return code.program
        text = ((await self._runs.store.document(current.digest)) or b"").decode(errors="replace")
        if digest_of(text) != current.digest:
            raise DefinitionUnreadable(name, current.number, "its text is missing or damaged")
        try:
            return (await aside("replay", flow_of, text)).program
        except (DefinitionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DefinitionUnreadable(name, current.number, " ".join(str(error).split())) from error

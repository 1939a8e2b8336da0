"""The versions of definitions: their texts, and the flows that they are.

May import loom.flows, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.effects.threads import aside
from loom.flows.diagnostics import DefinitionError
from loom.flows.document import digest_of
from loom.runtime.durable.definitions_numbers import DefinitionNumbers
from loom.runtime.durable.definitions_stored import DefinitionUnreadable
from loom.runtime.load import flow_of
from loom.runtime.planners import flow_planner

if TYPE_CHECKING:
    from loom.runtime.durable.definitions_stored import Version
    from loom.runtime.durable.working import WorkingRuntime
    from loom.runtime.flow import Flow


class DefinitionVersions(DefinitionNumbers):
    """The versions of the definitions in a runtime's store."""

    def __init__(self, runtime: WorkingRuntime) -> None:
        super().__init__(runtime.store, runtime.now)
        self._runtime = runtime

    async def text_of(self, name: str, version: Version) -> str:
        """The text that a version is stored as; `DefinitionUnreadable` if it is not there as it was put."""
        text = ((await self._runtime.store.document(version.digest)) or b"").decode(errors="replace")
        if digest_of(text) != version.digest:
            raise DefinitionUnreadable(name, version.number, "its text is missing or damaged")
        return text

    async def load(self, name: str, version: Version) -> Flow:
        """A stored version as a flow; `DefinitionUnreadable` if it cannot be one here."""
        text = await self.text_of(name, version)
        try:
            # In a thread, for a large document takes its time.
            return await aside("replay", _ready_flow, text)
        except (DefinitionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DefinitionUnreadable(name, version.number, " ".join(str(error).split())) from error


def _ready_flow(text: str) -> Flow:
    """A flow whose planner is made too, for those who will work for it."""
    flow = flow_of(text)
    flow_planner(flow.document.encode())
    return flow

"""A client of a store without an engine, for commands, which must start fast."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from loom.runtime.durable.run_client import RunClient
from loom.runtime.durable.settings import Settings
from loom.store.hash_chain import Links

if TYPE_CHECKING:
    from types import TracebackType

    from loom.store.ports import Store


class StoreClient(RunClient):
    """Looks at stored runs, and tells them something. It starts none, and works on none."""

    def __init__(self, store: Store, settings: Settings | None = None) -> None:
        super().__init__(store, time.time)
        self.links = Links((settings or Settings()).keyring)

    async def __aenter__(self) -> Self:
        await self._open_store()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        self._end_changes()
        await self.committer.close()
        await self.store.close()

"""Streams and waits end with the key that opened them: a request shows its key once, and may last for an hour."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.server.auth import Keys
    from loom.server.stream_sending import OpenStreams
    from loom.server.waiting import Waits

KEYS_S = 0.5
"""How often the keys of open streams and waits are looked up: a caller who lost one is out within a second."""

_log = logging.getLogger("loom.server")


class KeyWatch:
    """Breaks the streams and ends the waits of keys that were revoked or have expired.

    It works while there are streams or waits, and only then, so that it does so in an application of the user's too,
    which nothing tells when it begins and ends.
    """

    def __init__(self, keys: Keys, streams: OpenStreams, waits: Waits) -> None:
        self._keys = keys
        self._streams = streams
        self._waits = waits
        self._task: asyncio.Task[None] | None = None
        streams.on_open = waits.on_open = self._begin

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            # In a context of its own: the one of the request belongs to the request.
            self._task = asyncio.get_running_loop().create_task(self.watch(), name="loom keys", context=Context())

    def _holders(self) -> list[str]:
        return list(dict.fromkeys((*self._streams.holders(), *self._waits.holders())))

    async def watch(self) -> None:
        """Look the keys up until nothing is open."""
        while self._holders():
            await asyncio.sleep(KEYS_S)
            for holder in self._holders():
                try:
                    if not await self._keys.is_good(holder):
                        self._streams.break_for(holder)
                        self._waits.end_for(holder)
                except Exception as error:  # noqa: BLE001 - whatever it is, the streams of others are still looked after
                    _log.warning("Whether the key of a request is still good is not known: %s", error)

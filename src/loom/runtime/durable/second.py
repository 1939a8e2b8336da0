"""A process beside the one that works on a SQLite file: a client for good, or a standby that takes over.

The lock of the file belongs to the operating system, which frees it when its process ends, in order or by kill -9. So
a standby needs no lease and no clock: it asks for the lock again and again. A try costs about 15 microseconds.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal

from loom.store.errors import StoreError, StoreLocked
from loom.store.loop_time import until_look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("loom.durable")

TRY_S = 0.2
"""Seconds between two tries of a standby to get the place."""


class Second:
    """What a process does that found the place taken. As a standby it has a task that tries to get it."""

    def __init__(
        self,
        name: str,
        role: Literal["client", "standby"],
        holder: str,
        take_place: Callable[[], Awaitable[None]],
        on_taken: Callable[[], None],
    ) -> None:
        self.role = role
        self._name = name
        self._take_place = take_place
        self._on_taken = on_taken
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False
        if role == "client":
            _log.info("%s is a client: %s works on the runs of the store.", name, holder)
            return
        _log.info("%s is a standby: %s works on the runs of the store until it ends.", name, holder)
        self._task = asyncio.get_running_loop().create_task(self._stand_by(), name="loom standby")

    async def close(self) -> None:
        """Stop trying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _stand_by(self) -> None:
        nothing = asyncio.get_running_loop().create_future
        await until_look(TRY_S, nothing())
        while not await self._has_place():
            await until_look(TRY_S, nothing())
        self._task = None  # from here on nothing is to be stopped
        _log.info("%s takes over: the process that worked on the runs of the store has ended.", self._name)
        self._on_taken()

    async def _has_place(self) -> bool:
        """Try to get the place."""
        try:
            await self._take_place()
        except StoreLocked:
            self._is_failing = False
            return False
        except StoreError as error:
            if not self._is_failing:
                _log.error("%s cannot take over, and tries again every %s s: %s", self._name, TRY_S, error)
            self._is_failing = True
            return False
        except Exception:  # noqa: BLE001 - whatever it is, the log tells it
            # Without this task no process would take over, and nobody would know why.
            _log.exception("%s cannot take over, and tries again every %s s.", self._name, TRY_S)
            self._is_failing = True
            return False
        return True

"""Runs that were begun with other code than a worker has are told of it. May import temporalio and its room."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from loom.temporal.link import ClientLink, RunGone, RunUnreachable
from loom.temporal.names import SIGNAL_CODE
from loom.temporal.payloads import NewCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from temporalio.client import Client

    from loom.core.config import BrokerConfig
    from loom.runtime.durable.registered import Registered
    from loom.temporal.runner import LoomRunner

_log = logging.getLogger("loom.temporal")

_REMEMBERED = 10_000


class CodeNews:
    """Tells each run once, and once more if it is parked. What is older than what a run was told, it does not take."""

    def __init__(self, codes: Mapping[str, Registered], client: Callable[[], Client]) -> None:
        self._codes = codes
        self._client = client
        self._since = time.time()
        """How new the code of this process is."""
        self._told: dict[str, tuple[BrokerConfig, bool]] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def listen(self, runner: LoomRunner) -> None:
        """Hear of runs with other code, from whichever thread; on the event loop that runs now."""
        loop = asyncio.get_running_loop()
        runner.on_other_code = lambda *run: on_loop(loop, self._has_other_code, *run)

    async def close(self) -> None:
        """Tell nobody any more."""
        for each in self._telling:
            each.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _has_other_code(self, run_id: str, name: str, is_parked: bool) -> None:
        code = self._codes.get(name)
        if code is None:
            return
        told = self._told.get(run_id)
        # Whatever parks a run again and again, it is not tried again and again.
        if told is not None and told[0] == code.config and (told[1] or not is_parked):
            return
        self._told[run_id] = (code.config, is_parked)
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        news = NewCode(code.config, self._since, code.keeps_timeout)
        task = asyncio.get_running_loop().create_task(self._tell(run_id, news))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, run_id: str, news: NewCode) -> None:
        try:
            await ClientLink(self._client(), run_id).signal(SIGNAL_CODE, news)
        except (RunGone, RunUnreachable) as error:
            self._told.pop(run_id, None)  # whoever has it in memory next tries again
            _log.debug("Run %s was not told of new code: %s", run_id, error)


def on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call it on the event loop. A worker that is being shut down may still work when the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, *arguments)

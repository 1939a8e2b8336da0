"""What `loom worker` and `loom run` share: taking work, and stopping in order. May import every room."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from loom.cli.problems import WrongUse
from loom.cli.session import opened, store_at
from loom.steps.errors import WorkflowConfigurationError, WorkflowValidationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from loom.runtime.durable.runtime import DurableRuntime
    from loom.steps.workflow import Workflow

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@asynccontextmanager
async def engine(
    url: str, workflows: Mapping[str, Workflow], log_level: int, **settings: Any
) -> AsyncIterator[tuple[DurableRuntime, asyncio.Event]]:
    """A process that works for workflows, and the event that SIGTERM and SIGINT set."""
    # Until it works, whatever goes wrong is raised; it need not be in the log too.
    logging.getLogger("loom").addHandler(logging.NullHandler())
    stopped = _stop_on_signals()
    async with opened(store_at(url, upgrade=True), **settings) as runtime:
        for name, workflow in workflows.items():
            try:
                runtime.register(workflow, name=name)
            except (WorkflowValidationError, WorkflowConfigurationError) as error:
                raise WrongUse(f"{name} cannot be run: {error}") from error
        await runtime.ready()
        logging.basicConfig(level=log_level, format=_FORMAT)
        yield runtime, stopped


def _stop_on_signals() -> asyncio.Event:
    """Let signals be told to the event loop, so that what is under way can be put down in order."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stopped.set)
        except NotImplementedError:  # event loops on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    return stopped

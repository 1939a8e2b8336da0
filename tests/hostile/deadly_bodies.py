"""Workflows whose bodies end their process in every way, and one that needs its process to live for long."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Self

from pydantic import model_validator

from loom import StartEvent, StopEvent, Workflow, step

DEADLY = ("exit", "segfault", "kill", "stop", "cancel", "hang", "class")
"""What no process can contain."""
HANGING = "hanging"
"""Tells an operator that a body holds the event loop of a process, whose id comes after it."""
MAY_END = Path("may-end")
"""Until it is there, long steps go on."""


def _hang() -> None:
    Path(f"{HANGING}-{os.getpid()}").touch()
    time.sleep(1000)


class Deadly(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        match ev.kind:
            case "exit":
                os._exit(9)
            case "segfault":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                asyncio.get_running_loop().stop()
            case "cancel":
                for task in asyncio.all_tasks():
                    task.cancel()
            case "hang":
                _hang()
            case "SystemExit":
                raise SystemExit(7)
            case "child":
                await asyncio.gather(self._child())
        await asyncio.sleep(1000)
        return StopEvent()

    async def _child(self) -> None:
        raise SystemExit(8)


class DeadlyStart(StartEvent):
    """A class whose validation kills the process: a run of it never begins."""

    @model_validator(mode="after")
    def kill(self) -> Self:
        os._exit(9)


class DeadlyClass(Workflow):
    @step
    async def work(self, ev: DeadlyStart) -> StopEvent:
        return StopEvent()


class Long(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        while not os.path.exists(MAY_END):  # noqa: ASYNC110, ASYNC240 - other processes say so by a file
            await asyncio.sleep(0.05)
        return StopEvent(result="done")

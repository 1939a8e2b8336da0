"""The default runtime, under the names that programs know it by. May import loom.runtime.memory."""

from __future__ import annotations

from loom.runtime.memory import MemoryRuntime
from loom.steps import ports


class BasicRuntime(MemoryRuntime):
    """The runtime in memory."""


basic_runtime = BasicRuntime()


def get_current_runtime() -> ports.RuntimePort:
    """The runtime of an enclosing `with runtime.registering():`, else the default one."""
    return ports.registering_runtime.get() or basic_runtime

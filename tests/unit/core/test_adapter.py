"""Adapters that wrap adapters."""

from __future__ import annotations

from typing import Any

import pytest

from loom.core.adapter import RunAdapterDecorator
from loom.runtime.control_loop import effective


class Recorder:
    """An adapter that remembers how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def wait_receive(self) -> str:
        return "tick"

    async def wait_for_next_task(self, tasks: Any, until: float | None) -> list[Any]:
        return [tasks, until]

    async def commit(self, batch: Any) -> None:
        self.calls.append(("commit", batch))

    def get_now(self) -> float:
        return 12.5

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


async def test_decorator_passes_everything_on() -> None:
    inner = Recorder()
    outer = RunAdapterDecorator(RunAdapterDecorator(inner))
    assert await outer.wait_receive() == "tick"
    assert await outer.wait_for_next_task("tasks", 3.0) == ["tasks", 3.0]
    assert outer.get_now() == 12.5
    await outer.commit("batch")
    outer.on_tick("t")
    outer.write_to_event_stream(0, "e")
    outer.send_event("s")
    outer.finalize_step("c")
    outer.close()
    assert inner.calls == [
        ("commit", "batch"),
        ("on_tick", "t"),
        ("write_to_event_stream", 0, "e"),
        ("send_event", "s"),
        ("finalize_step", "c"),
        ("close",),
    ]


async def test_subclass_changes_what_it_cares_about() -> None:
    class Refusing(RunAdapterDecorator):
        async def commit(self, batch: Any) -> None:
            raise OSError("disk full")

    inner = Recorder()
    with pytest.raises(OSError, match="disk full"):
        await RunAdapterDecorator(Refusing(inner)).commit("batch")
    assert inner.calls == []


async def test_pull_looks_through_decorators_that_leave_it_alone() -> None:
    class Pulling(RunAdapterDecorator):
        async def wait_receive(self) -> str:
            return f"own {await self.inner.wait_receive()}"

    inner = Recorder()
    assert effective(RunAdapterDecorator(RunAdapterDecorator(inner)), "wait_receive") == inner.wait_receive
    assert await effective(RunAdapterDecorator(Pulling(RunAdapterDecorator(inner))), "wait_receive")() == "own tick"

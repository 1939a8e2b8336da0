"""The effects of a body on their way out: in order, in pieces, and not too often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loom.core.ticks import TickEndWait, WorkflowTick
from loom.temporal.activity.outbox import Outbox, size_of
from loom.temporal.rpc import RunUnreachable
from loom.temporal.settings import ActivitySettings


class Line:
    """A link that keeps what it is told, and may be slow or broken."""

    def __init__(self) -> None:
        self.told: list[tuple[list[str], int]] = []
        self.is_broken = False
        self.free = asyncio.Event()
        self.free.set()

    async def signal(self, name: str, value: Any) -> None:
        await self.free.wait()
        if self.is_broken:
            raise RunUnreachable("Run a could not be told.")
        self.told.append(([tick.key for tick in value.ticks], value.unlocks))

    async def query(self, name: str, value: Any, expected: type[Any]) -> Any:
        raise AssertionError("an outbox asks nothing")


def tick(key: str) -> WorkflowTick:
    return TickEndWait(at=0.0, step="s", item=1, seq=1, key=key)


def outbox(line: Line, **given: Any) -> Outbox:
    def fail(error: Exception) -> None:
        raise AssertionError("nothing is wrong with the line") from error

    return Outbox(line, ActivitySettings(**given), fail)


def put(box: Outbox, *keys: str) -> None:
    for key in keys:
        box.add(tick(key), size_of(tick(key)))


async def test_a_flush_sends_all_there_is_and_unlocks_with_the_last_piece() -> None:
    line = Line()
    box = outbox(line, signal_bytes=2 * size_of(tick("a")))
    put(box, *"abcde")
    await box.flush(unlocks=7)
    assert line.told == [(["a", "b"], 0), (["c", "d"], 0), (["e"], 7)]


async def test_nothing_to_send_sends_nothing_and_an_unlock_alone_goes_out() -> None:
    line = Line()
    box = outbox(line)
    await box.flush()
    await box.flush(unlocks=3)
    assert line.told == [([], 3)]


async def test_what_is_on_its_way_arrives_before_what_comes_with_the_result() -> None:
    line = Line()
    line.free.clear()
    box = outbox(line)
    put(box, "a")
    box.send_later(unlocks=7)
    resting = asyncio.create_task(box.rest(tick("last")))
    await asyncio.sleep(0)
    put(box, "b")
    line.free.set()
    rest = await resting
    assert line.told == [(["a"], 7)]
    assert [each.key for each in rest] == ["b"]


async def test_a_flush_goes_on_if_whoever_waits_for_it_is_cancelled() -> None:
    line = Line()
    line.free.clear()
    box = outbox(line)
    put(box, "a")
    flushing = asyncio.create_task(box.flush())
    await asyncio.sleep(0)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    line.free.set()
    assert await box.rest(tick("last")) == ()
    assert line.told == [(["a"], 0)]


async def test_what_could_not_be_sent_is_kept_and_the_trouble_is_told() -> None:
    line, told = Line(), asyncio.Event()
    line.is_broken = True
    troubles: list[Exception] = []
    box = Outbox(line, ActivitySettings(), lambda error: (troubles.append(error), told.set())[0])
    put(box, "a")
    with pytest.raises(RunUnreachable):
        await box.flush()
    assert not troubles
    box.send_later()
    await told.wait()
    assert [each.key for each in await box.rest(tick("last"))] == ["a"]


async def test_a_body_that_tells_much_sends_signals_less_and_less_often() -> None:
    line, loop = Line(), asyncio.get_running_loop()
    box = outbox(line, flush_after_s=100.0, flush_max_s=500.0)
    delays = []
    for _ in range(60):
        put(box, "a")
        box.arm()
        assert box._due is not None
        delays.append(round(box._due.when() - loop.time()))
        box._disarm()
        await box.flush()
    assert (delays[0], delays[10], delays[20], delays[-1]) == (100, 200, 300, 500)


async def test_effects_that_nobody_wants_are_dropped_even_while_some_are_sent() -> None:
    line = Line()
    line.free.clear()
    box = outbox(line, signal_bytes=1)
    put(box, "a", "b", "c")
    flushing = asyncio.create_task(box.flush())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    box.close()
    line.free.set()
    await flushing
    assert line.told == [(["a"], 0)]

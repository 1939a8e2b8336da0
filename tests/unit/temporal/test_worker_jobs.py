"""Whose turn it is among the children that a worker watches, and what goes wrong. How they are seen is tried on a real
server, in `tests/integration/temporal/test_temporal_traps.py`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from loom.temporal import worker_jobs
from loom.temporal.rpc import RunGone, RunUnreachable
from loom.temporal.worker_jobs import ChildWatch


class Watch(ChildWatch):
    """A watch whose children are as the test says."""

    def __init__(self, how: Callable[[str, int], bool]) -> None:
        super().__init__(lambda: pytest.fail("no server is needed"))
        self.seen: Counter[str] = Counter()
        self._how = how

    async def _look(self, child: Any, run_id: str) -> bool:
        self.seen[run_id] += 1
        return self._how(run_id, self.seen[run_id])

    async def until_done(self) -> None:
        assert self._looking is not None
        async with asyncio.timeout(60):
            await self._looking


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_jobs, "_PAUSE_S", 0.001)


def rpc_error(status: RPCStatusCode) -> RPCError:
    return RPCError("trouble", status, b"")


async def test_a_child_is_looked_at_until_it_has_closed_and_named_twice_it_is_watched_once() -> None:
    watch = Watch(lambda _run_id, times: times == 3)
    for _ in range(2):
        watch.add("a", {1: "a:1"})
    await watch.until_done()
    assert watch.seen == {"a:1": 3}
    watch.add("a", {2: "a:2"})
    await watch.until_done()
    assert watch.seen["a:2"] == 3, "it begins again"


async def test_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_jobs, "_AT_ONCE", 2)
    watch = Watch(lambda run_id, _times: watch.seen.total() > 20)
    watch.add("a", {number: f"a:{number}" for number in range(5)})
    await watch.until_done()
    assert max(watch.seen.values()) - min(watch.seen.values()) <= 1


@pytest.mark.parametrize(
    ("trouble", "looks", "is_logged"),
    [
        (rpc_error(RPCStatusCode.NOT_FOUND), 1, True),
        (RunGone("the parent has ended"), 1, False),
        (rpc_error(RPCStatusCode.UNAVAILABLE), 2, False),
        (RunUnreachable("the parent"), 2, False),
        (ValueError("a bug"), 2, True),
    ],
)
async def test_trouble_is_no_reason_to_forget_a_child(
    trouble: Exception, looks: int, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def how(_run_id: str, times: int) -> bool:
        if times == 1:
            raise trouble
        return True

    watch = Watch(how)
    with caplog.at_level(logging.WARNING, "loom.temporal"):
        watch.add("a", {1: "a:1", 2: "a:2"})
        await watch.until_done()
    assert watch.seen == {"a:1": looks, "a:2": looks}
    assert len(caplog.records) == (2 if is_logged else 0)


async def test_a_worker_that_has_too_many_says_so_once_and_forgets_the_oldest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_jobs, "_WATCHED", 3)
    watch = Watch(lambda _run_id, _times: True)
    with caplog.at_level(logging.WARNING, "loom.temporal"):
        watch.add("a", {number: f"a:{number}" for number in range(5)})
    await watch.until_done()
    assert sorted(watch.seen) == ["a:2", "a:3", "a:4"]
    assert len(caplog.records) == 1


async def test_a_watch_that_is_closed_looks_at_nothing() -> None:
    watch = Watch(lambda _run_id, _times: False)
    watch.add("a", {1: "a:1"})
    await watch.close()
    seen = watch.seen.total()
    await asyncio.sleep(0.01)
    assert watch.seen.total() == seen

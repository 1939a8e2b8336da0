"""What a process that works on runs tells of itself: every process over the same store sees it."""

from __future__ import annotations

import os
import socket

import pytest
from runtime_deployments import DATABASES, Deployment
from runtime_watching import Watched, Witness, until

import loom
from loom import StartEvent, StopEvent, step
from loom.api.workers import Worker
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.workers import WORKERS

pytestmark = pytest.mark.parametrize("deployment", DATABASES, indirect=True)

_SOON = {"poll_interval": 0.05}


class Held(Watched):
    """Stays in memory until it is let go."""

    @step
    async def stay(self, _ev: StartEvent) -> StopEvent:
        await self.witness.at("stay")
        return StopEvent()


async def test_another_process_sees_what_a_worker_works_for(deployment: Deployment, witness: Witness) -> None:
    worker = await deployment.open({"held": Held(witness)}, name="one", **_SOON)
    client = await deployment.open()
    seen = await _seen(client, ["held"])
    assert (seen.name, seen.alive, seen.role, seen.is_this) == ("one", True, "worker", False)
    assert (seen.host, seen.pid, seen.version) == (socket.gethostname(), os.getpid(), loom.__version__)
    [own] = await worker.workers()
    assert (own.is_this, seen.since, seen.runs_in_memory) == (True, own.since, 0)
    worker.register(Held(witness), name="later")
    await _seen(client, ["held", "later"])


async def test_another_process_sees_how_many_runs_are_in_memory(deployment: Deployment, witness: Witness) -> None:
    witness.hold("stay")
    worker = await deployment.open({"held": Held(witness)}, **_SOON)
    client = await deployment.open()
    await _seen(client, ["held"])
    handler = await worker.start("held")
    await witness.came("stay")
    deployment.clock.ahead_s += 11.0  # the number is told now and then only
    await _seen(client, ["held"], in_memory=1)
    witness.let("stay")
    await handler


async def test_a_worker_that_ends_in_order_takes_back_what_it_told(deployment: Deployment, witness: Witness) -> None:
    worker = await deployment.open({"held": Held(witness)}, **_SOON)
    client = await deployment.open()
    await _seen(client, ["held"])
    assert len(await client.store.entries(WORKERS)) == 1
    await deployment.close(worker)
    assert await client.store.entries(WORKERS) == []
    assert all(each.workflows is None for each in await client.workers())


async def test_a_dead_worker_has_no_runs_in_memory_and_its_successor_tells_its_own(
    deployment: Deployment, witness: Witness
) -> None:
    worker = await deployment.open({"old": Held(witness)}, name="first", **_SOON)
    client = await deployment.open()
    await _seen(client, ["old"])
    await deployment.crash(worker)
    assert len(await client.store.entries(WORKERS)) == 1  # it could not take it back
    # SQLite takes an engine for dead after 30 s of silence. On other stores its lease is over, or it is forgotten.
    await deployment.pass_time(31.0)
    for dead in await client.workers():
        assert (dead.alive, dead.runs_in_memory) == (False, None)
    await deployment.open({"new": Held(witness)}, name="second", **_SOON)
    seen = await _seen(client, ["new"])
    assert (seen.name, seen.alive) == ("second", True)
    assert not [each for each in await client.workers() if each.alive and each.name == "first"]


_TOLD = (
    b'{"since":"2026-01-01T00:00:00Z","workflows":["a"],"runs_in_memory":1,"host":"h","pid":1,"version":"1","later":0}'
)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        _TOLD[:-1],
        b"null",
        b"{}",
        _TOLD.replace(b'"a"', b"7"),
        _TOLD.replace(b'"a"', b'"\xff"'),
        _TOLD.replace(b':1,"host"', b':-1,"host"'),
        _TOLD.replace(b'"pid":1', b'"pid":' + b"9" * 400),
        _TOLD.replace(b"00Z", b"00"),
        _TOLD.replace(b":0}", b":" + b"[" * 100_000),
    ],
    ids=["empty", "cut", "null", "fields", "types", "bytes", "negative", "large", "no-zone", "deep"],
)
async def test_a_damaged_entry_is_shown_as_not_known(
    deployment: Deployment, witness: Witness, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await deployment.open({"held": Held(witness)}, name="one")
    client = await deployment.open()
    await _seen(client, ["held"])
    [entry] = await client.store.entries(WORKERS)
    await client.store.put_entry(WORKERS, entry.key, _TOLD)
    assert (await _only(client)).workflows == ["a"]  # a later version may tell more
    await client.store.put_entry(WORKERS, entry.key, damaged)
    seen = await _only(client)
    assert (seen.name, seen.alive, seen.workflows, seen.host, seen.pid) == ("one", True, None, None, None)
    assert "What the worker 'one' tells of itself cannot be read" in caplog.text


async def _only(client: DurableRuntime) -> Worker:
    [worker] = await client.workers()
    return worker


async def _seen(client: DurableRuntime, workflows: list[str], in_memory: int = 0) -> Worker:
    """Return the worker for these workflows, once a client knows of it."""

    async def look() -> Worker | None:
        told = [each for each in await client.workers() if each.alive and each.workflows == workflows]
        return told[0] if told and told[0].runs_in_memory == in_memory else None

    found = await until(look, f"a worker for {workflows}")
    assert found is not None
    return found

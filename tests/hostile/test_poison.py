"""Bodies that take their process down: they are parked, and all that ran beside them finishes.

The short form has every kind at once. With LOOM_FULL=1 each kind is alone, under both commands and on both databases.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deadly_bodies import DEADLY
from poison_rig import HERE, LONG, Rig, poison, rig
from postgres_server import fresh_database_url
from temporal_server import fresh_temporal_url

FULL = "LOOM_FULL" in os.environ
OWN = 5


async def _all_parked(rig: Rig, *kinds: str, services: tuple[str, ...] = ("one",)) -> int:
    """Every deadly run is parked by five deaths of its own, and nothing else is. Tells how many deaths there were."""
    await rig.until_parked(*map(poison, kinds))
    await rig.finish()
    assert await rig.parked() == sorted(map(poison, kinds))
    for kind in kinds:
        info = await rig.runs.get(poison(kind))
        assert info.parked is not None
        assert info.parked.startswith(f"poison: {OWN} processes have died"), info.parked
        died_at = "No step was under way: it" if kind == "class" else "Under way: step 'work', attempt 1."
        assert died_at in info.parked
    deaths = [code for service in services for code in rig.deaths(service)]
    # Two deaths mark it, five more count for it. Where several are deadly, one may die in the place of another.
    assert OWN <= len(deaths) <= (OWN + 2) * len(kinds) + 2 * len(services), deaths
    assert all(code == 0 for code in rig.stop())
    return len(deaths)


async def test_every_deadly_kind_beside_long_steps(tmp_path: Path) -> None:
    async with rig(f"sqlite:///{tmp_path / 'runs.db'}", tmp_path) as store:
        # The others are gone as suddenly: `kill` is what becomes of one that hangs, and PostgreSQL has a segfault.
        kinds = ["exit", "stop", "cancel", "hang"]
        await store.begin(*kinds, "SystemExit", "child")
        store.work()
        await _all_parked(store, *kinds)
        for kind in ("SystemExit", "child"):
            assert (await store.runs.get(poison(kind))).status == "failed"
        log = store.log()
        for kind, words in (("stop", "stopped the event loop"), ("cancel", "cancelled every task")):
            told = [line for line in log.splitlines() if f"The process ends: a body has {words}." in line]
            assert all(f"It was step 'work' of run {poison(kind)}. At work: " in line for line in told), told
            assert len(told) >= OWN
        assert "A task that a body has begun ended with SystemExit: 8: this process goes on." in log
        why = await store.runs.why(poison("exit"))
        assert why.sentence.startswith("It is parked until it is resumed: poison: 5 processes have died"), why.sentence
        await _let_go(store)


async def _let_go(store: Rig) -> None:
    """A restart leaves poison alone, a resume lets it go, and a cancel ends it although it was resumed."""
    run_id = poison("exit")
    deaths = len(store.deaths())
    store.work()
    await store.runs.cancel(poison("hang"))

    async def cancelled() -> bool:
        return (await store.runs.get(poison("hang"))).status == "cancelled"

    await store.until(cancelled, "the cancel")
    assert len(store.deaths()) == deaths
    await store.runs.resume(run_id)

    async def died_again() -> bool:
        return len(store.deaths()) >= deaths + 2

    await store.until(died_again, "the resumed run")
    await store.runs.cancel(run_id)

    async def ended() -> bool:
        return (await store.runs.get(run_id)).status == "cancelled"

    await store.until(ended, "the cancel of the resumed run")


async def test_two_workers_on_postgres(tmp_path: Path) -> None:
    """What kills one worker is taken over by the other, and kills that one too."""
    async with rig(fresh_database_url(), tmp_path) as store:
        await store.begin("segfault")
        for name in ("one", "two"):
            store.work("--lease", "1.5s", name=name)
        await _all_parked(store, "segfault", services=("one", "two"))


async def test_on_temporal_a_step_is_given_up_after_lost_heartbeats(tmp_path: Path) -> None:
    async with rig(fresh_temporal_url(), tmp_path) as store:
        await store.begin("exit", long=len(LONG) if FULL else 3)
        store.serve("one", str(HERE / "temporal_deadly.py"), store.url)
        await store.until_parked(poison("exit"))
        await store.finish()
        assert await store.parked() == [poison("exit")]
        info = await store.runs.get(poison("exit"))
        assert info.parked is not None
        assert info.parked.startswith(f"poison: {OWN} workers have died while step 'work' was on probation"), info
        assert OWN <= len(store.deaths()) <= OWN + 4
        await store.runs.resume(poison("exit"))
        deaths = len(store.deaths())
        await store.until(partial(store.has_ended, deaths + 1), "the resumed run")
        await store.runs.cancel(poison("exit"))

        async def ended() -> bool:
            return (await store.runs.get(poison("exit"))).status == "cancelled"

        await store.until(ended, "the cancel")


@pytest.mark.full(reason="a lost heartbeat for each death")
async def test_on_temporal_a_start_that_kills_its_workers_fails(tmp_path: Path) -> None:
    async with rig(fresh_temporal_url(), tmp_path) as store:
        await store.begin("class", long=3)
        store.serve("one", str(HERE / "temporal_deadly.py"), store.url)

        async def failed() -> bool:
            return (await store.runs.get(poison("class"))).status == "failed"

        await store.until(failed, "the start")
        info = await store.runs.get(poison("class"))
        assert f"poison: {OWN} workers have died while its start was on probation" in (info.error or "")
        assert OWN <= len(store.deaths()) <= OWN + 4
        await store.finish()


async def test_orderly_restarts_and_the_kills_of_an_operator_park_nothing(tmp_path: Path) -> None:
    async with rig(f"sqlite:///{tmp_path / 'runs.db'}", tmp_path) as store:
        await store.begin()
        service = store.work()
        for restarts in range(1, 6):
            await store.until(store.all_at_work, "at work")
            service.send_signal(signal.SIGHUP)
            await store.until(partial(store.has_ended, restarts), "the restart")
            stored = await store.runs.store.load(LONG[0])
            assert stored is not None
            assert stored.deaths is None
        for kills in range(1, 4):
            await store.until(store.all_at_work, "at work")
            service.send_signal(signal.SIGUSR1)
            await store.until(partial(store.has_ended, 5 + kills), "the kill")
        await store.finish()
        assert await store.parked() == []
        assert store.deaths() == [-9, -9, -9]


async def test_a_worker_in_safe_mode_only_cancels(tmp_path: Path) -> None:
    async with rig(f"sqlite:///{tmp_path / 'runs.db'}", tmp_path) as store:
        await store.begin("exit", "class")
        store.work("--safe")
        for kind in ("exit", "class"):
            await store.runs.cancel(poison(kind))

        async def cancelled() -> bool:
            return (await store.runs.store.counts())["cancelled"] == 2

        await store.until(cancelled, "the cancels")
        counts = await store.runs.store.counts()
        assert (counts["running"], counts["owned"], counts["completed"]) == (len(LONG), 0, 0)
        assert store.stop() == [0]
        assert store.ends() == [0]


async def test_safe_mode_looks_and_cancels(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with rig(f"sqlite:///{tmp_path / 'runs.db'}", tmp_path) as store:
        await store.begin("exit")
        await store.runs.cancel(LONG[0])
        store.work("--safe", "--port", str(port), command="serve")

        async def cancelled() -> bool:
            return (await store.runs.get(LONG[0])).status == "cancelled"

        await store.until(cancelled, "the cancel from before")
        await store.until(lambda: _listens(port), "the server")
        address = f"http://127.0.0.1:{port}/v1/runs/{poison('exit')}"
        why = await asyncio.to_thread(_asked, f"{address}/why")
        assert why["kind"] == "not_started"
        await asyncio.to_thread(_asked, f"{address}/cancel", b"")

        async def ended() -> bool:
            return (await store.runs.get(poison("exit"))).status == "cancelled"

        await store.until(ended, "the cancel")
        assert store.deaths() == []
        counts = await store.runs.store.counts()
        assert (counts["running"], counts["owned"], counts["completed"]) == (len(LONG) - 1, 0, 0)
        assert store.stop() == [0]


def _asked(url: str, data: bytes | None = None) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
        return json.load(answer)


async def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.full(reason="each kind alone, under both commands, on both databases")
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize("kind", DEADLY)
async def test_each_kind_alone(
    kind: str, command: str, database: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    url = fresh_database_url() if database == "postgres" else f"sqlite:///{tmp_path / 'runs.db'}"
    services = ("one", "two") if database == "postgres" else ("one",)
    async with rig(url, tmp_path) as store:
        await store.begin(kind)
        for number, name in enumerate(services):
            port = ["--port", str(20_000 + os.getpid() % 10_000 * 2 + number)] if command == "serve" else []
            store.work("--lease", "1.5s", *port, name=name, command=command)
        record_property("deaths of processes", await _all_parked(store, kind, services=services))

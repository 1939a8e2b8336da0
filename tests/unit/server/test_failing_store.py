"""A store that fails now and then, in all ways: nothing acknowledged is lost, nothing happens twice, no 503 lies."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import httpx2
import pytest
from server_serving import Asks, Served

import loom
from loom.client.errors import ClientError
from loom.client.retries import Retries
from loom.server.settings import ServerSettings
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing.faults import FaultPlan, FaultyStore

URL = "http://127.0.0.1"
PLAN = FaultPlan(fail_before=0.1, fail_after=0.1, fail_read=0.1, slow=0.2, slow_s=0.005, drop_news=0.2)
RETRIES = Retries(attempts=8, first_delay=0.005, max_delay=0.02)


class Failing(FaultyStore):
    """A store whose entries fail as well, from when on it is told to."""

    def __init__(self, seed: int) -> None:
        super().__init__(MemoryStore(MemoryDatabase()), FaultPlan(seed=seed))
        self._random = Random(seed)

    def begin(self) -> None:
        self._plan = PLAN

    def _fail(self, *, unknown: bool) -> None:
        if self._plan is PLAN and self._random.random() < 0.1:
            raise StoreUnavailable("on purpose", outcome_unknown=unknown)

    async def put_entry(self, *args: Any, **options: Any) -> int | None:
        self._fail(unknown=False)
        version = await super().put_entry(*args, **options)
        self._fail(unknown=True)
        return version

    async def drop_entry(self, *args: Any, **options: Any) -> bool:
        self._fail(unknown=False)
        return await super().drop_entry(*args, **options)


class Load:
    """Callers with keys, who come again, and callers without, who do not. Each start has a tag of its own."""

    def __init__(self, served: Served) -> None:
        self._transport = httpx2.ASGITransport(app=served.app, client=("127.0.0.1", 1))
        self.started: dict[str, str] = {}
        """Runs whose start was acknowledged, by tag."""
        self.told: list[str] = []
        """Runs whose event was acknowledged."""
        self.codes: dict[str, int] = {}
        """What callers without keys were told, by tag."""
        self.refusals: set[str] = set()
        """What callers with keys were told who gave up."""

    async def put(self) -> None:
        async with (
            loom.Client(URL, retries=RETRIES, transport=self._transport) as client,
            httpx2.AsyncClient(base_url=URL, transport=self._transport) as plain,
        ):
            await asyncio.gather(
                *(self._with_key(client, f"k{number}") for number in range(40)),
                *(self._without(plain, f"p{number}") for number in range(60)),
            )

    async def _with_key(self, client: loom.Client, tag: str) -> None:
        try:
            run = await client.start("asks", {"topic": "tea"}, tags={"n": tag})
            self.started[tag] = run.run_id
            await client.send_event(run.run_id, "Approval", {"by": tag})
            self.told.append(run.run_id)
        except ClientError as error:
            self.refusals.add(error.code)

    async def _without(self, client: httpx2.AsyncClient, tag: str) -> None:
        body = {"workflow": "asks", "input": {"topic": "now"}, "tags": {"n": tag}}
        self.codes[tag] = (await client.post("/v1/runs", json=body)).status_code


@pytest.mark.parametrize("seed", [2, 4])
async def test_what_is_acknowledged_has_happened_once(seed: int) -> None:
    store = Failing(seed)
    async with loom.connect(store, poll_interval=0.05) as runtime, asyncio.timeout(50):
        runtime.register(Asks(), name="asks")
        await runtime.ready()
        load = Load(Served(runtime, ServerSettings(retry_after=0)))
        store.begin()
        await load.put()
        store.calm()
        found = {info.run_id: info.tags["n"] async for info in runtime.list()}
        counts = Counter(found.values())
        assert max(counts.values()) == 1
        assert {tag: found[run_id] for tag, run_id in load.started.items()} == {tag: tag for tag in load.started}
        assert {load.codes[tag] for tag in load.codes if tag not in counts} <= {500, 503}
        assert {load.codes[tag] for tag in load.codes if tag in counts} <= {201, 500}
        assert load.refusals <= {"store-unavailable"}
        assert load.told
        for run_id in load.told:
            assert (await (await runtime.handler(run_id))).text == f"tea by {found[run_id]}"

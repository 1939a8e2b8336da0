"""What a retention setting has pruned is gone, which is neither a failure of the server nor of whoever asks."""

from __future__ import annotations

import pytest
from server_serving import Served

import loom
from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable import adapter
from loom.server.settings import ServerSettings


class Again(Event):
    number: int


class Counts(Workflow):
    @step
    async def count(self, ev: StartEvent | Again) -> Again | StopEvent:
        number = ev.number if isinstance(ev, Again) else 0
        return StopEvent(result=number) if number == 40 else Again(number=number + 1)


async def test_every_tick_can_be_looked_at_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", 5)
    async with loom.connect("memory://", prune=True) as runtime:
        runtime.register(Counts(), name="counts")
        await (await runtime.start("counts", run_id="c"))
        row = await runtime.row("c")
        assert row.first_tick > 0, "nothing was pruned"
        async with Served(runtime, ServerSettings()).client() as client:
            told = [await client.get(f"/v1/runs/c/state?tick={tick}") for tick in range(row.head.ticks)]
            assert {answer.status_code for answer in told} == {200, 410}
            assert [answer.status_code for answer in told] == sorted((a.status_code for a in told), reverse=True)
            assert told[0].json()["code"] == "history-gone"
            assert "were pruned" in told[0].json()["detail"]
            forked = await client.post("/v1/runs/c/fork", json={"tick": row.head.ticks - 1})
            assert (forked.status_code, forked.json()["code"]) == (410, "history-gone")
            for query in ("", "?commands=true"):
                whole = await client.get(f"/v1/runs/c/history{query}")
                assert (whole.status_code, whole.json()["code"]) == (410, "history-gone")
            kept = await client.get(f"/v1/runs/c/history?after={row.first_tick - 1}")
            assert [item["seq"] for item in kept.json()["items"]] == list(range(row.first_tick, row.head.ticks))
            assert (await client.get("/v1/runs/c/state")).status_code == 200
            assert (await client.get("/v1/runs/c/replay")).status_code == 200

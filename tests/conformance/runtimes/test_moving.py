"""Runs that move: exported from one kind of store, imported into another one. And runs that are deleted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from runtime_deployments import KINDS, Deployment, new_deployment
from runtime_watching import Watched, Witness, failure, result, soon, stored, until, until_idle, until_status

from loom import Context, Event, HumanResponseEvent, RunExists, RunNotFound, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.store.errors import StoreError


class Word(HumanResponseEvent):
    text: str = ""


class Note(Event):
    n: int


class Talk(Watched):
    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("begin")
        ctx.write_event_to_stream(Note(n=1))
        await ctx.store.set("kept", ("a", 1))
        billed = await ctx.once("bill", lambda: self.witness.saw("bill"))
        word = await ctx.wait_for_event(Word, timeout=3600)
        if word.text == "fail":
            raise LookupError("as told")
        return StopEvent(result=[word.text, billed, await ctx.store.get("kept")])


@pytest.fixture(params=KINDS)
async def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    """Another database."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    other = new_deployment(request.param, folder)
    try:
        yield other
    finally:
        await other.dispose()


async def test_a_run_goes_on_in_another_store(deployment: Deployment, elsewhere: Deployment, witness: Witness) -> None:
    here = await deployment.open({"talk": Talk(witness)})
    await here.start("talk", {"x": "y"}, run_id="a", tags={"t": "1"})
    await here.send_event("a", Note(n=0), event_id="seen")
    before = await until_idle(here, "a")
    ticks = [entry async for entry in here.history("a")]
    data = await here.export_run("a")
    there = await elsewhere.open({"talk": Talk(witness)})
    assert await there.import_run(data) == "a"
    assert [entry async for entry in there.history("a")][: len(ticks)] == ticks
    after = await there.get("a")
    assert (after.workflow, after.tags, after.created_at) == (before.workflow, before.tags, before.created_at)
    await there.send_event("a", Word(text="there"))
    assert await result(await there.handler("a")) == ["there", 1, ("a", 1)]
    handler = await there.handler("a")
    assert [event.n async for event in handler.stream_events() if isinstance(event, Note)] == [1]
    assert witness.count("bill") == 1
    # An event that was sent before the export is known there too.
    await there.send_event("a", Note(n=0), event_id="seen")
    # The one that was exported is as it was.
    assert (await here.get("a")).status == "running"
    await here.send_event("a", Word(text="here"))
    assert await result(await here.handler("a")) == ["here", 1, ("a", 1)]


async def test_an_ended_run_is_kept_elsewhere(deployment: Deployment, elsewhere: Deployment) -> None:
    here = await deployment.open({"talk": Talk()})
    for run_id, text in (("good", "x"), ("bad", "fail")):
        await here.start("talk", run_id=run_id)
        await here.send_event(run_id, Word(text=text))
    await until_status(here, "good", "completed")
    await until_status(here, "bad", "failed")
    client = await elsewhere.open_reader({"talk": Talk()})
    for run_id in ("good", "bad"):
        assert await client.import_run(await here.export_run(run_id)) == run_id
        assert await client.get(run_id) == await here.get(run_id)
        there, then = await client.export_run(run_id), await here.export_run(run_id)
        assert _lasting(there, elsewhere) == _lasting(then, elsewhere)
    ended = await result(await client.handler("good"))
    assert ended == await result(await here.handler("good"))
    assert (ended[0], ended[2]) == ("x", ("a", 1))  # which of the two runs was billed first is chance
    assert isinstance(await failure(await client.handler("bad")), LookupError)
    assert await stored(client, "good") == {"kept": ("a", 1)}


def _lasting(exported: bytes, elsewhere: Deployment) -> object:
    """What is exported, but for when, and for what a store knows of its own time."""
    entry = json.loads(exported)
    del entry["at"], entry["run"]["row"]["head"]["downtime"]
    if elsewhere.kind == "temporal":  # it makes a snapshot of the ticks at once, and keeps what is traced by itself
        del entry["run"]["snapshot"], entry["run"]["row"]["head"]["link"]
    return entry


async def test_the_time_on_the_way_does_not_count(deployment: Deployment, elsewhere: Deployment) -> None:
    here = await deployment.open({"talk": Talk(timeout=600)})
    await here.start("talk", run_id="a")
    await until_idle(here, "a")
    data = await here.export_run("a")
    elsewhere.clock.ahead_s = 1800
    there = await elsewhere.open({"talk": Talk(timeout=600)})
    await there.import_run(data)
    await there.send_event("a", Word(text="late"))
    assert (await result(await there.handler("a")))[0] == "late"


async def test_what_cannot_be_imported(deployment: Deployment) -> None:
    runtime = await deployment.open({"talk": Talk()})
    await runtime.start("talk", run_id="a")
    await until_idle(runtime, "a")
    data = await runtime.export_run("a")
    with pytest.raises(RunExists, match="'a' exists already, so the exported one cannot take its place"):
        await runtime.import_run(data)
    for bad in (b"", b"{}", b"[1]", b'{"loom_run": 1, "run": {}}', b"\xff\x00"):
        with pytest.raises(StoreError, match="This is not an exported run"):
            await runtime.import_run(bad)
    newer = {**json.loads(data), "loom_run": 999}
    with pytest.raises(StoreError, match="exported in format 999"):
        await runtime.import_run(json.dumps(newer).encode())
    with pytest.raises(RunNotFound):
        await runtime.export_run("nobody")


async def _listed(runtime: DurableRuntime) -> set[str]:
    return {info.run_id async for info in runtime.list()}


@pytest.mark.parametrize(
    "forged",
    [{"run_id": "\0"}, {"run_id": "x" * 5000}, {"run_id": ""}, {"workflow": "a\0"}, {"tags": {"": "x"}}],
)
async def test_names_that_no_store_could_keep_are_not_imported(deployment: Deployment, forged: dict[str, Any]) -> None:
    """Such a run would be in lists, and nobody could ask for it, cancel it or delete it."""
    runtime = await deployment.open({"talk": Talk()})
    await runtime.start("talk", run_id="a")
    await until_idle(runtime, "a")
    export = json.loads(await runtime.export_run("a"))
    export["run"]["row"] |= {"run_id": "b", **forged}
    with pytest.raises(StoreError, match="This is not an exported run: "):
        await runtime.import_run(json.dumps(export).encode())
    assert [info.run_id async for info in runtime.list()] == ["a"]


async def test_ended_runs_are_purged_without_a_trace(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"talk": Talk(witness)})
    for run_id in ("a", "b", "c"):
        await runtime.start("talk", run_id=run_id, tags={"t": "1"})
    for run_id in ("a", "b"):
        await runtime.send_event(run_id, Word(text="x"), event_id="1")
        await until_status(runtime, run_id, "completed")
    with pytest.raises(StoreError, match="'c' is running: cancel it before you purge it"):
        await runtime.purge("c")
    with pytest.raises(RunNotFound):
        await runtime.purge("nobody")
    with pytest.raises(ValueError, match="needs a run_id, or ended_before"):
        await runtime.purge()
    assert await runtime.purge("a") == 1
    with pytest.raises(RunNotFound):
        await runtime.get("a")
    with pytest.raises(RunNotFound):
        await runtime.send_event("a", Word(text="x"), event_id="1")
    assert await _listed(runtime) == {"b", "c"}
    # Its name is free, and nothing of it is left.
    billed = witness.count("bill")
    handler = await runtime.start("talk", {"another": 1}, run_id="a")
    await runtime.send_event("a", Word(text="y"), event_id="1")
    assert (await result(handler))[0] == "y"
    assert witness.count("bill") == billed + 1


async def test_runs_are_purged_by_their_age(deployment: Deployment) -> None:
    runtime = await deployment.open({"talk": Talk(timeout=None)}, lease=10_000)
    for run_id in ("old", "young", "running"):
        await runtime.start("talk", run_id=run_id)
        if run_id != "running":
            await runtime.send_event(run_id, Word(text="x"))
            await until_status(runtime, run_id, "completed")
        deployment.clock.ahead_s += 100
    assert await runtime.purge(ended_before=deployment.clock() - 1000) == 0
    assert await runtime.purge(ended_before=deployment.clock() - 250) == 1
    assert await _listed(runtime) == {"young", "running"}
    assert await runtime.purge(ended_before=deployment.clock() + 1000) == 1
    assert await _listed(runtime) == {"running"}


async def test_ended_runs_are_kept_for_as_long_as_was_asked(deployment: Deployment) -> None:
    first = await deployment.open({"talk": Talk()}, retention=1000)
    await first.start("talk", run_id="ended")
    await first.send_event("ended", Word(text="x"))
    await until_status(first, "ended", "completed")
    await first.start("talk", run_id="running")
    await deployment.close(first)
    await deployment.pass_time(500)
    second = await deployment.open({"talk": Talk(timeout=None)}, retention=1000)
    assert await _listed(second) == {"ended", "running"}
    await deployment.close(second)
    await deployment.pass_time(501)
    third = await deployment.open({"talk": Talk(timeout=None)}, retention=1000)

    async def is_gone() -> bool:
        return await _listed(third) == {"running"}

    await until(is_gone)


async def test_a_reader_of_a_purged_run_is_told(deployment: Deployment) -> None:
    runtime = await deployment.open({"talk": Talk()})
    client = await deployment.open()
    handler = await runtime.start("talk", run_id="a")
    other = await client.handler("a")
    await runtime.send_event("a", Word(text="x"))
    await result(handler)
    await runtime.purge("a")
    with pytest.raises(RunNotFound):
        await soon(other)

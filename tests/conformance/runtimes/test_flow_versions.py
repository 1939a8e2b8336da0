"""Versions of a flow: an unfinished run keeps the document that it began with, wherever it goes on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from applicable import not_on
from flow_samples import flow, install, work
from runtime_deployments import Deployment, Postgres, Sqlite
from runtime_watching import Watched, Witness, result, until_idle, until_info, until_released

import loom
from loom import FlowEvent, StartEvent, StopEvent, step


def version(name: str, **more: Any) -> loom.Flow:
    """Asks, and says which version it is."""
    ask = {"type": "waitForEvent", "inputs": {"event": "Word"}}
    said = {"type": "compose", "inputs": f"{name} heard @{{body('ask').text}}, @{{triggerBody()?['x']}}"}
    actions = {"ask": ask, "said": said, **more}
    return flow(actions, outputs={"said": {"type": "string", "value": "@outputs('said')"}})


def one() -> loom.Flow:
    return version("one")


def two() -> loom.Flow:
    return version("two", another=work("another"))


WORD = FlowEvent(name="Word", data={"text": "hi"})


class Imposter(Watched):
    """A workflow in Python under the name of the flow."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="python")


async def test_a_new_version_beside_runs_of_the_old_one(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    runtime = await deployment.open({"flow": one()}, idle_timeout=0)
    for run_id in ("released", "in memory"):
        await runtime.start("flow", {"x": 1}, run_id=run_id)
        await until_idle(runtime, run_id)
    await until_released(runtime, "released")
    runtime.register(two(), name="flow")
    await runtime.start("flow", {"x": 2}, run_id="new")
    for run_id, words in (
        ("released", "one heard hi, 1"),
        ("in memory", "one heard hi, 1"),
        ("new", "two heard hi, 2"),
    ):
        await runtime.send_event(run_id, WORD)
        ended = await result(await runtime.handler(run_id))
        assert ended.outputs == {"said": words}
    assert witness.calls == ["another"]


@pytest.mark.parametrize("crashes", [True, False], ids=["crash", "close"])
async def test_a_process_that_knows_only_the_new_version(
    deployment: Deployment, crashes: bool, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    first = await deployment.open({"flow": one()})
    await first.start("flow", {"x": 1}, run_id="a")
    await until_idle(first, "a")
    await (deployment.crash(first) if crashes else deployment.close(first))
    for _ in range(2):
        second = await deployment.open({"flow": two()})
        await until_idle(second, "a")
        await deployment.crash(second)
    third = await deployment.open({"flow": two()})
    await third.send_event("a", WORD)
    assert (await result(await third.handler("a"))).outputs == {"said": "one heard hi, 1"}
    assert witness.calls == []


async def test_a_start_without_the_flow_at_hand(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    client = await deployment.open()
    await client.start("flow", {"x": 3}, run_id="a")
    info = await client.get("a")
    assert (info.status, info.ticks) == ("running", 0)
    first = await deployment.open({"flow": one()})
    await until_idle(first, "a")
    assert (await first.store.get("a")).document == one().digest  # type: ignore[union-attr]
    await deployment.crash(first)
    await deployment.open({"flow": two()})
    await client.send_event("a", WORD)
    assert (await result(await client.handler("a"))).outputs == {"said": "one heard hi, 3"}


async def test_what_a_client_may_start_a_flow_with(deployment: Deployment) -> None:
    actions = {"sum": {"type": "compose", "inputs": "@add(parameters('p'), variables('v'))"}}
    worker = await deployment.open({"flow": flow(actions, parameters={"p": {"type": "int"}})})
    client = await deployment.open()
    handler = await client.start("flow", {"x": 1}, run_id="a", parameters={"p": 2}, variables={"v": 3})
    assert (await result(handler)).actions["sum"].outputs == 5
    # The same start again is the same run.
    assert (
        await result(await worker.start("flow", {"x": 1}, run_id="a", parameters={"p": 2}, variables={"v": 3}))
    ).status == "Succeeded"


async def _damage(deployment: Deployment, text: bytes) -> None:
    """Change the text of all documents."""
    if isinstance(deployment, Postgres):
        await deployment._execute("UPDATE documents SET data = $1", text)
        return
    assert isinstance(deployment, Sqlite)
    with closing(sqlite3.connect(deployment._path)) as connection, connection:
        connection.execute("UPDATE documents SET data = ?", (text,))


@not_on("memory", reason="There is nothing to be damaged.")
@pytest.mark.parametrize("text", [b"{}", b"\xff\xfe", b"", None], ids=["other", "no text", "empty", "half"])
async def test_a_damaged_document_parks_the_run(deployment: Deployment, text: bytes | None) -> None:
    first = await deployment.open({"flow": one()})
    await first.start("flow", run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    await _damage(deployment, one().document.encode()[:40] if text is None else text)
    second = await deployment.open({"flow": two()})
    await second.send_event("a", WORD)
    info = await until_info(second, "a", lambda info: info.parked)
    assert info.parked is not None
    assert "document" in info.parked
    assert one().digest in info.parked
    # The process goes on with others, and one that has the flow itself goes on with this one.
    await second.start("flow", run_id="b")
    await until_idle(second, "b")
    await deployment.close(second)
    third = await deployment.open({"flow": one()})
    assert (await result(await third.handler("a"))).status == "Succeeded"


async def test_a_workflow_in_python_does_not_take_a_flows_runs(deployment: Deployment) -> None:
    first = await deployment.open({"flow": one()})
    await first.start("flow", run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    second = await deployment.open({"flow": Imposter()})
    client = await deployment.open()
    await client.send_event("a", WORD)
    info = await until_info(second, "a", lambda info: info.parked)
    assert "is a flow in the store and a workflow in Python here" in str(info.parked)
    second.register(two(), name="flow")
    assert (await result(await second.handler("a"))).outputs["said"].startswith("one")

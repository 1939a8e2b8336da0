"""Definitions in a store: their numbers, who works for them, and what becomes of those that are deleted."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import msgspec
import pytest
from applicable import not_on
from flow_samples import flow
from runtime_deployments import Deployment
from runtime_watching import Watched, result, until, until_idle

import loom
from loom import FlowEvent, StartEvent, StopEvent, step
from loom.flows.document import digest_of
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.stored_definitions import DefinitionNotFound, DefinitionUnreadable, NameTaken
from loom.runtime.flow import flow_of

GO = FlowEvent(name="Go", data={})


def version(word: str, **more: Any) -> loom.Flow:
    """Waits, and says which version it is."""
    actions = {
        "ask": {"type": "waitForEvent", "inputs": {"event": "Go"}},
        "said": {"type": "compose", "inputs": word, "runAfter": {"ask": ["Succeeded"]}},
    }
    return flow(actions, outputs={"said": {"type": "string", "value": "@outputs('said')"}}, **more)


class Python(Watched):
    """A workflow in Python."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="python")


async def said(runtime: DurableRuntime, run_id: str) -> str:
    """What a run says once it may go on."""
    await runtime.send_event(run_id, GO)
    word: str = (await result(await runtime.handler(run_id))).outputs["said"]
    return word


async def numbers(runtime: DurableRuntime, name: str = "flow") -> tuple[list[int], int]:
    """The numbers of a name's versions, and the current one."""
    definition = await runtime.definitions.stored.get(name)
    assert definition is not None
    return [each.number for each in definition.versions], definition.current


async def number_of_run(runtime: DurableRuntime, run_id: str) -> int | None:
    row = await runtime.row(run_id)
    return await runtime.definitions.number_of(row.workflow, row.document)


async def test_every_flow_that_is_registered_has_a_number(deployment: Deployment) -> None:
    for word, known in (("one", ([1], 1)), ("two", ([1, 2], 2)), ("one", ([1, 2], 1))):
        runtime = await deployment.open({"flow": version(word), "py": Python()})
        await runtime.start("flow", run_id=f"{word}-{known[1]}-{len(known[0])}")
        assert await numbers(runtime) == known
        await deployment.close(runtime)
    client = await deployment.open_reader({"flow": version("one")})
    assert [await number_of_run(client, each) for each in ("one-1-1", "two-2-2", "one-1-2")] == [1, 2, 1]
    assert await client.definitions.number_of("flow", "no such digest") is None
    assert await client.definitions.stored.get("py") is None


async def test_what_was_put_is_worked_for_after_a_restart(deployment: Deployment) -> None:
    first = await deployment.open(definitions=True)
    before, after = await first.definitions.put("flow", version("one"))
    assert (before, after.current, after.latest.number) == (None, 1, 1)
    await first.start("flow", run_id="a")
    await until_idle(first, "a")
    before, after = await first.definitions.put("flow", version("two"))
    assert before is not None
    assert (before.current, after.current) == (1, 2)
    await first.start("flow", run_id="b")
    await until_idle(first, "b")
    await deployment.crash(first)
    second = await deployment.open(definitions=True)
    await second.start("flow", run_id="c")
    assert [await said(second, each) for each in ("a", "b", "c")] == ["one", "two", "two"]
    assert [await number_of_run(second, each) for each in ("a", "b", "c")] == [1, 2, 2]


@not_on("sqlite", reason="One process works at a time.")
async def test_another_process_works_for_what_was_put(deployment: Deployment) -> None:
    first = await deployment.open(definitions=True)
    second = await deployment.open(definitions=True, poll_interval=0.05)
    await first.definitions.put("flow", version("one"))
    await first.start("flow", run_id="a")
    await until_idle(first, "a")
    await deployment.close(first)
    await until(lambda: "flow" in second.codes)
    assert await said(second, "a") == "one"


@not_on("sqlite", reason="One process works at a time.")
async def test_a_start_has_the_version_that_was_put_elsewhere_just_now(deployment: Deployment) -> None:
    first = await deployment.open(definitions=True, poll_interval=60.0)
    second = await deployment.open(definitions=True, poll_interval=60.0)
    for word in ("one", "two"):
        await first.definitions.put("flow", version(word))
        await second.start("flow", run_id=word)
        assert await said(second, word) == word
    await first.definitions.delete("flow")
    with pytest.raises(DefinitionNotFound, match="was deleted"):
        await second.start("flow")


async def test_putting_at_once_gives_every_content_its_own_number(deployment: Deployment) -> None:
    kinds = 1 if deployment.kind == "sqlite" else 2
    processes = [await deployment.open(definitions=True) for _ in range(kinds)]
    flows = [version(f"v{number}") for number in range(6)]
    put = [processes[n % kinds].definitions.put("flow", each) for n, each in enumerate([*flows, *flows])]
    await asyncio.gather(*put)
    found = await processes[0].definitions.stored.get("flow")
    assert found is not None
    assert [each.number for each in found.versions] == [1, 2, 3, 4, 5, 6]
    assert {each.digest for each in found.versions} == {each.digest for each in flows}
    for process in processes:
        handler = await process.start("flow")
        assert await number_of_run(process, handler.run_id) == found.current


async def test_a_version_by_its_number(deployment: Deployment) -> None:
    runtime = await deployment.open(definitions=True)
    for word in ("one", "two"):
        await runtime.definitions.put("flow", version(word))
    await runtime.start("flow", run_id="a", version=1)
    await runtime.start("flow", run_id="b", version=2)
    assert [await said(runtime, each) for each in ("a", "b")] == ["one", "two"]
    with pytest.raises(DefinitionNotFound, match="no version 3: its current one is 2"):
        await runtime.start("flow", version=3)
    runtime.register(Python(), name="py")
    with pytest.raises(DefinitionNotFound, match="written in Python"):
        await runtime.start("py", version=1)
    # The same start again is the same run.
    assert (await runtime.start("flow", run_id="a", version=1)).run_id == "a"


async def test_a_deleted_flow_starts_nothing_and_finishes_what_has_begun(deployment: Deployment) -> None:
    first = await deployment.open(definitions=True)
    await first.definitions.put("flow", version("one"))
    for run_id in ("a", "b"):
        await first.start("flow", run_id=run_id)
        await until_idle(first, run_id)
    await first.definitions.delete("flow")
    with pytest.raises(DefinitionNotFound, match="was deleted"):
        await first.start("flow", run_id="c")
    assert (await first.start("flow", run_id="a")).run_id == "a"
    with pytest.raises(DefinitionNotFound):
        await first.definitions.delete("flow")
    assert await said(first, "a") == "one"
    await deployment.crash(first)
    second = await deployment.open(definitions=True)
    with pytest.raises(DefinitionNotFound, match="was deleted"):
        await second.start("flow", run_id="c")
    assert await said(second, "b") == "one"
    await second.definitions.put("flow", version("one"))
    assert await numbers(second) == ([1], 1)
    await second.start("flow", run_id="c")
    assert await said(second, "c") == "one"


async def test_triggers_come_and_go_with_the_definition(deployment: Deployment) -> None:
    recurrence = {"frequency": "Day", "interval": 1}
    timed = version("one", triggers={"daily": {"type": "Recurrence", "recurrence": recurrence}})
    runtime = await deployment.open(definitions=True)
    await runtime.definitions.put("flow", timed)
    assert [each.workflow for each in await runtime.schedules()] == ["flow"]
    await runtime.definitions.delete("flow")
    assert await runtime.schedules() == []
    await runtime.definitions.put("flow", timed)
    assert len(await runtime.schedules()) == 1
    await runtime.definitions.put("flow", version("two"))
    assert await runtime.schedules() == []


async def test_a_class_in_python_has_its_name(deployment: Deployment) -> None:
    runtime = await deployment.open({"py": Python()}, definitions=True)
    for change in (runtime.definitions.put("py", version("one")), runtime.definitions.delete("py")):
        with pytest.raises(NameTaken, match="belongs to a workflow in Python"):
            await change
    with pytest.raises(NameTaken, match="Loom itself"):
        await runtime.definitions.put("loom.schedule", version("one"))
    await runtime.definitions.put("both", version("one"))
    await deployment.close(runtime)
    again = await deployment.open({"both": Python()}, definitions=True)
    assert await result(await again.start("both")) == "python"


async def test_what_cannot_be_loaded_is_left_out_and_told_once(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    first = await deployment.open(definitions=True)
    await first.definitions.put("good", version("one"))
    newer = msgspec.json.decode(version("one").document)
    newer["compiler"] = 99
    text = msgspec.json.encode(newer)
    await first.definitions.stored.put("newer", digest_of(text.decode()), text)
    await first.definitions.stored.put("lost", "0" * 64, b"")
    await first.store.put_entry("definition", "odd", b"[]")
    await deployment.close(first)
    with caplog.at_level(logging.ERROR):
        second = await deployment.open(definitions=True)
        await second.start("good", run_id="a")
        assert await second.definitions.look() == []
    assert await said(second, "a") == "one"
    told = [record.message for record in caplog.records if "left out" in record.message]
    assert len(told) == 3
    assert any("compiler 99" in each for each in told)
    with pytest.raises(DefinitionUnreadable, match="Version 1 of the flow 'lost' cannot be loaded here"):
        await second.start("lost")


async def test_a_client_that_puts_works_for_nothing(deployment: Deployment) -> None:
    client = await deployment.open()
    await client.definitions.put("flow", version("one"))
    assert client.codes == {}
    worker = await deployment.open(definitions=True)
    await client.start("flow", run_id="a")
    assert await said(worker, "a") == "one"
    await client.definitions.delete("flow")
    with pytest.raises(DefinitionNotFound):
        await worker.start("flow")


async def test_an_odd_entry_does_not_keep_a_flow_from_running(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    client = await deployment.open()
    await client.store.put_entry("definition", "flow", b"[]")
    worker = await deployment.open({"flow": version("one")})
    await worker.start("flow", run_id="a")
    assert await said(worker, "a") == "one"
    assert "without a number" in caplog.text
    assert await number_of_run(worker, "a") is None


async def test_many_flows_get_their_numbers_together(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    """A process that begins records them some at a time, and one that cannot be is told and left out."""
    before = await deployment.open({"other": version("other")})
    await before.ready()
    await before.store.put_entry("definition", "flow7", b"[]")
    await deployment.close(before)
    worker = await deployment.open({f"flow{number}": version(str(number)) for number in range(40)})
    await worker.ready()
    for number in (0, 31, 32, 39):
        assert await numbers(worker, f"flow{number}") == ([1], 1)
    assert caplog.text.count("without a number") == 1


async def test_joining_again_makes_no_version_current(deployment: Deployment) -> None:
    runtime = await deployment.open({"flow": version("one")})
    await runtime.ready()
    await runtime.definitions.stored.put("flow", version("two").digest, version("two").document.encode())
    runtime._lease_lost()
    await runtime.ready()
    assert await numbers(runtime) == ([1, 2], 2)


def accepted_before(word: str) -> loom.Flow:
    """A version as an earlier Loom has stored it: today two things in it are refused."""
    facts = json.loads(version(word).document)
    actions = facts["definition"]["actions"]
    actions["said"]["name"] = "an alias"
    actions["check"] = {"type": "if", "expression": "no expression", "actions": {}, "runAfter": {"said": ["Skipped"]}}
    return flow_of(json.dumps(facts))


async def test_versions_that_would_be_refused_today_are_worked_for_and_warned_of(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = f"one on {deployment.kind}", f"two on {deployment.kind}"  # a process warns once of a text
    with pytest.raises(loom.DefinitionError):
        loom.load(json.loads(accepted_before(one).document)["definition"])
    first = await deployment.open(definitions=True)
    for word in (one, two):
        await first.definitions.put("flow", accepted_before(word))
        await first.start("flow", run_id=word)
        await until_idle(first, word)
    await deployment.crash(first)
    with caplog.at_level(logging.WARNING, "loom.durable"):
        second = await deployment.open(definitions=True)
        await second.start("flow", run_id="new")
        assert [await said(second, each) for each in (one, two, "new")] == [one, two, two]
    told = [record.message for record in caplog.records if "would be refused" in record.message]
    assert {each.partition(" is worked for")[0] for each in told} == {
        "Version 2 of the flow 'flow'", "An earlier version of the flow 'flow', with runs that are not over,"
    }  # fmt: skip
    assert all("actions.said.name: the action is named 'said' already" in each for each in told)
    assert all(each.endswith("It has 1 more such problem.") for each in told)

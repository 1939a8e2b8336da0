"""Starting runs: durable before the call returns, the same run for the same id, nothing stored for bad input."""

from __future__ import annotations

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result

from loom import (
    Context,
    HumanResponseEvent,
    RunExists,
    RunFinished,
    RunNotFound,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import StoreError


class Order(StartEvent):
    number: int
    note: str = ""


class Shop(Watched):
    @step
    async def take(self, ev: Order) -> StopEvent:
        await self.witness.at("take")
        return StopEvent(result=ev.number * 2)


class Bakery(Workflow):
    @step
    async def bake(self, ev: Order) -> StopEvent:
        return StopEvent(result=-ev.number)


class Word(HumanResponseEvent):
    text: str


class Diary(Workflow):
    """Gathers words until the last one."""

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        words: list[str] = []
        while not words or words[-1] != "end":
            words.append((await ctx.wait_for_event(Word, timeout=None)).text)
        return StopEvent(result=words)


async def test_a_started_run_is_there_after_a_crash(deployment: Deployment, witness: Witness) -> None:
    witness.hold("take")
    first = await deployment.open({"shop": Shop(witness)})
    await first.start("shop", {"number": 4}, run_id="a")
    await deployment.crash(first)
    witness.let("take")
    second = await deployment.open({"shop": Shop(witness)})
    assert await result(await second.handler("a")) == 8


async def test_a_client_starts_what_another_process_runs(deployment: Deployment, witness: Witness) -> None:
    client = await deployment.open()
    handler = await client.start("shop", {"number": 5}, run_id="a")
    assert (await client.get("a")).status == "running"
    assert witness.calls == []
    await deployment.open({"shop": Shop(witness)})
    assert await result(handler) == 10


async def test_the_same_start_again_is_the_same_run(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"shop": Shop(witness)})
    handlers = [await first.start("shop", {"number": 3}, run_id="a") for _ in range(3)]
    assert [await result(handler) for handler in handlers] == [6, 6, 6]
    assert await result(await first.start("shop", {"number": 3}, run_id="a")) == 6
    client = await deployment.open()
    assert await result(await client.start("shop", {"number": 3}, run_id="a")) == 6
    await deployment.close(first)
    second = await deployment.open({"shop": Shop(witness)})
    assert await result(await second.start("shop", {"number": 3}, run_id="a")) == 6
    assert witness.calls == ["take"]
    assert [info.run_id async for info in second.list()] == ["a"]


async def test_a_start_of_a_client_may_be_repeated_where_the_code_is(deployment: Deployment, witness: Witness) -> None:
    client = await deployment.open()
    await client.start("shop", {"number": 3}, run_id="a")
    runtime = await deployment.open({"shop": Shop(witness)})
    assert await result(await runtime.start("shop", {"number": 3}, run_id="a")) == 6
    with pytest.raises(RunExists, match="'a' exists already, with another input"):
        await runtime.start("shop", {"number": 4}, run_id="a")


async def test_another_start_under_the_same_id_is_refused(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"shop": Shop(witness), "bakery": Bakery()})
    handler = await runtime.start("shop", {"number": 3}, run_id="a")
    with pytest.raises(RunExists, match="'a' exists already, with another input"):
        await runtime.start("shop", {"number": 4}, run_id="a")
    with pytest.raises(RunExists, match="'a' exists already, as a run of 'shop'"):
        await runtime.start("bakery", {"number": 3}, run_id="a")
    assert await result(handler) == 6
    with pytest.raises(RunExists, match="with another input"):
        await runtime.start("shop", {"number": 3, "note": "x"}, run_id="a")
    assert witness.calls == ["take"]


async def test_bad_input_is_refused_and_nothing_is_stored(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"shop": Shop(witness)})
    with pytest.raises(Exception, match="number"):
        await runtime.start("shop", {"number": "many"}, run_id="a")
    with pytest.raises(TypeError, match="a dict or a StartEvent, not list"):
        await runtime.start("shop", [1], run_id="a")  # type: ignore[arg-type]
    with pytest.raises(RunNotFound, match="'a' was not found"):
        await runtime.get("a")
    assert [info async for info in runtime.list()] == []


async def test_a_start_event_and_tags(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"shop": Shop(witness)})
    handler = await runtime.start("shop", Order(number=7, note="é"), run_id="a", tags={"who": "me"})
    assert await result(handler) == 14
    info = await runtime.get("a")
    assert (info.workflow, info.status, info.tags) == ("shop", "completed", {"who": "me"})
    assert info.created_at <= info.updated_at
    assert info.ended_at is not None


async def test_runs_without_an_id_get_one_each(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"shop": Shop(witness)})
    handlers = [await runtime.start("shop", {"number": number}) for number in range(5)]
    assert [await result(handler) for handler in handlers] == [0, 2, 4, 6, 8]
    assert {info.run_id async for info in runtime.list()} == {handler.run_id for handler in handlers}


async def test_code_may_come_later(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"bakery": Bakery()})
    handler = await runtime.start("shop", {"number": 2}, run_id="a")
    assert await result(await runtime.start("bakery", {"number": 1})) == -1
    assert witness.calls == []
    runtime.register(Shop(witness), name="shop")
    assert await result(handler) == 4


async def test_a_workflow_of_this_runtime_is_stored_by_run(deployment: Deployment, witness: Witness) -> None:
    witness.hold("take")
    first = await deployment.open()
    handler = Shop(witness, runtime=first, workflow_name="shop").run(number=6, run_id="a")
    await witness.came("take")
    assert handler.run_id == "a"
    await deployment.crash(first)
    witness.let("take")
    second = await deployment.open({"shop": Shop(witness)})
    assert await result(await second.handler("a")) == 12


async def test_a_runtime_that_is_not_open_says_so(deployment: Deployment) -> None:
    runtime = await deployment.open()
    await deployment.close(runtime)
    with pytest.raises(StoreError, match="The runtime is closed"):
        await runtime.start("shop", {"number": 1})


# -- with an event ----------------------------------------------------------------------------------------------------


async def test_a_run_begins_with_an_event(deployment: Deployment) -> None:
    runtime = await deployment.open({"diary": Diary()})
    handler = await runtime.start_with_event("diary", Word(text="end"), run_id="a", tags={"who": "me"})
    assert await result(handler) == ["end"]
    assert (await runtime.get("a")).tags == {"who": "me"}


async def test_a_run_that_is_there_gets_the_event_once(deployment: Deployment) -> None:
    runtime = await deployment.open({"diary": Diary()})
    for _ in range(2):
        await runtime.start_with_event("diary", Word(text="one"), run_id="a", event_id="1")
    for _ in range(2):  # without an id they are two
        await runtime.start_with_event("diary", Word(text="more"), run_id="a")
    await runtime.send_event("a", Word(text="one"), event_id="1")
    handler = await runtime.start_with_event("diary", Word(text="end"), run_id="a", event_id="2")
    assert await result(handler) == ["one", "more", "more", "end"]


async def test_a_run_that_has_ended_takes_no_event_but_knows_those_it_had(deployment: Deployment) -> None:
    runtime = await deployment.open({"diary": Diary()})
    handler = await runtime.start_with_event("diary", Word(text="end"), run_id="a", event_id="1")
    assert await result(handler) == ["end"]
    again = await runtime.start_with_event("diary", Word(text="end"), run_id="a", event_id="1")
    assert await result(again) == ["end"]
    with pytest.raises(RunFinished, match=r"'a' has ended \(completed\)"):
        await runtime.start_with_event("diary", Word(text="late"), run_id="a", event_id="2")


async def test_a_refused_start_sends_no_event(deployment: Deployment) -> None:
    runtime = await deployment.open({"diary": Diary(), "notes": Diary()})
    handler = await runtime.start_with_event("diary", Word(text="one"), run_id="a", inputs={"page": 1})
    with pytest.raises(RunExists, match="'a' exists already, as a run of 'diary'"):
        await runtime.start_with_event("notes", Word(text="lost"), run_id="a", inputs={"page": 1})
    with pytest.raises(RunExists, match="'a' exists already, with another input"):
        await runtime.start_with_event("diary", Word(text="lost"), run_id="a", inputs={"page": 2})
    with pytest.raises(WorkflowRuntimeError, match="Only events can be sent into a run, not str"):
        await runtime.start_with_event("diary", "lost", run_id="b")  # type: ignore[arg-type]
    with pytest.raises(RunNotFound, match="'b' was not found"):
        await runtime.get("b")
    await runtime.send_event("a", Word(text="end"))
    assert await result(handler) == ["one", "end"]


async def test_a_client_starts_with_an_event_what_another_process_runs(deployment: Deployment) -> None:
    client = await deployment.open()
    await client.start_with_event("diary", Word(text="one"), run_id="a", event_id="1", inputs={"page": 1})
    runtime = await deployment.open({"diary": Diary()})
    handler = await runtime.start_with_event("diary", Word(text="end"), run_id="a", event_id="2", inputs={"page": 1})
    assert await result(handler) == ["one", "end"]


async def test_the_event_of_a_start_is_there_after_a_crash(deployment: Deployment) -> None:
    first = await deployment.open({"diary": Diary()})
    await first.start_with_event("diary", Word(text="end"), run_id="a")
    await deployment.crash(first)
    second = await deployment.open({"diary": Diary()})
    assert await result(await second.handler("a")) == ["end"]

"""What a waiter tells a person who may answer it: its kind, what is asked, and the schema of the answer."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle, until_info, until_released

import loom
from loom import Context, HumanResponseEvent, InputRequiredEvent, RunInfo, StartEvent, StopEvent, step
from loom.effects.flow_events import FlowEvent
from loom.runtime.durable.catalog import CATALOG
from loom.runtime.render import rendered_run, rendered_state
from loom.steps.registry import wire_name
from loom.steps.stand_ins import stand_in


class Question(InputRequiredEvent):
    text: str = ""


class Verdict(HumanResponseEvent):
    approved: bool
    note: str = ""


class Asking(Watched):
    """Waits for an answer to its question."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Verdict, waiter_event=Question(text=ev.text), waiter_id="boss", timeout=None)
        return StopEvent(result=answer.approved)


class Taking(Watched):
    """Asks by an event; a step takes the answer, and asks again if it is no."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question(text="well?")

    @step
    async def take(self, ev: Verdict) -> Question | StopEvent:
        return StopEvent(result="yes") if ev.approved else Question(text="sure?")


class Parent(Watched):
    """Waits for a child run."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child("asking", text="child?"))


SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


def waiting_flow(**inputs: Any) -> loom.Flow:
    """A flow that asks about a number of its trigger."""
    asks = {"type": "waitForEvent", "inputs": {"event": "Answer", **inputs}}
    return loom.load({"actions": {"ask": asks}}, name="flow")


def form(info: RunInfo) -> tuple[str, Any, list[str] | None]:
    """Of the only waiter: its kind, its prompt and the fields of its answer."""
    [waiter] = info.active_waiters
    schema = waiter["schema"]
    return waiter["kind"], waiter["prompt"], sorted(schema["properties"]) if schema is not None else None


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_a_wait_has_its_question_and_its_schema(
    deployment: Deployment, witness: Witness, idle_timeout: float | None
) -> None:
    runtime = await deployment.open({"asking": Asking(witness)}, idle_timeout=idle_timeout)
    handler = await runtime.start("asking", {"text": "ship it?"}, run_id="a")
    info = await (until_idle if idle_timeout is None else until_released)(runtime, "a")
    expected = ("event", {"text": "ship it?"}, ["approved", "note"])
    assert form(info) == expected
    [listed] = [each async for each in runtime.list(workflow="asking")]
    assert form(listed) == expected
    row = await runtime.row("a")
    [waiter] = (await rendered_run(runtime, row)).active_waiters or []
    [in_state] = (await rendered_state(runtime, row)).active_waiters
    assert (waiter.kind, waiter.prompt) == (in_state.kind, in_state.prompt) == ("event", {"text": "ship it?"})
    assert waiter.schema == in_state.schema == Verdict.model_json_schema()
    await runtime.send_event("a", Verdict(approved=True))
    assert await result(handler) is True


async def test_another_process_tells_it_too(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness), "taking": Taking(witness)})
    await runtime.start("asking", {"text": "ship it?"}, run_id="a")
    await runtime.start("taking", run_id="b")
    await until_idle(runtime, "a")
    await until_idle(runtime, "b")
    await until(lambda: runtime.store.entry(CATALOG, "taking"))
    reader = await deployment.open_reader({})
    reader.codes.clear()  # what a process without the code knows
    assert form(await reader.get("a")) == ("event", {"text": "ship it?"}, ["approved", "note"])
    assert form(await reader.get("b")) == ("input", {"text": "well?"}, ["approved", "note"])
    entry = await reader.catalog.entry("asking")
    assert entry is not None
    assert (entry.events, entry.start) == ((wire_name(Verdict),), wire_name(StartEvent))
    assert {"ask"} <= {node["id"] for node in entry.nodes}


async def test_the_question_of_a_step_is_the_last_one_that_is_open(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"taking": Taking(witness)})
    handler = await runtime.start("taking", run_id="a")
    assert form(await until_idle(runtime, "a")) == ("input", {"text": "well?"}, ["approved", "note"])
    await runtime.send_event("a", Verdict(approved=False))
    info = await until_info(
        runtime, "a", lambda it: it.idle_since and it.active_waiters[0]["prompt"]["text"] != "well?"
    )
    assert form(info) == ("input", {"text": "sure?"}, ["approved", "note"])
    await runtime.send_event("a", Verdict(approved=True))
    assert await result(handler) == "yes"


async def test_a_refused_answer_leaves_the_question(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness)})
    handler = await runtime.start("asking", {"text": "ship it?"}, run_id="a")
    await until_idle(runtime, "a")
    sender = await deployment.open_reader({})
    sender.codes.clear()
    await sender.send_event("a", stand_in(wire_name(Verdict))(approved="what?"))
    info = await until_info(runtime, "a", lambda it: it.active_waiters and it.active_waiters[0].get("refused"))
    assert form(info) == ("event", {"text": "ship it?"}, ["approved", "note"])
    await runtime.send_event("a", Verdict(approved=True))
    assert await result(handler) is True


async def test_a_flow_has_its_prompt_and_schema_also_after_a_refusal(deployment: Deployment) -> None:
    flow = waiting_flow(prompt="@concat('Ship ', triggerBody()?['what'], '?')", schema=SCHEMA)
    runtime = await deployment.open({"flow": flow})
    handler = await runtime.start("flow", {"what": "it"}, run_id="a")
    expected = ("event", "Ship it?", ["approved"])
    assert form(await until_idle(runtime, "a")) == expected
    since = (await runtime.get("a")).active_waiters[0]["since"]
    await runtime.send_event("a", FlowEvent(name="Answer", data={"approved": "maybe"}))
    info = await until_info(runtime, "a", lambda it: it.idle_since and it.active_waiters[0]["since"] > since)
    assert form(info) == expected
    await runtime.send_event("a", FlowEvent(name="Answer", data={"approved": True}))
    assert (await result(handler)).status == "Succeeded"


async def test_a_secure_wait_shows_neither_question_nor_schema(deployment: Deployment) -> None:
    asks = {
        "type": "waitForEvent",
        "inputs": {"event": "Answer", "prompt": "@parameters('key')", "schema": {**SCHEMA, "title": "s3cret"}},
    }
    document = {"parameters": {"key": {"type": "securestring", "defaultValue": "s3cret"}}, "actions": {"ask": asks}}
    runtime = await deployment.open({"flow": loom.load(document, name="flow")})
    await runtime.start("flow", run_id="a")
    assert form(await until_idle(runtime, "a")) == ("event", None, None)
    row = await runtime.row("a")
    assert b"s3cret" not in row.head.waiters
    assert "s3cret" not in str(await rendered_state(runtime, row))
    assert "s3cret" not in str(await runtime.waiters("a"))


async def test_a_long_prompt_is_cut(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness)})
    await runtime.start("asking", {"text": "x" * 20_000}, run_id="a")
    [waiter] = (await until_idle(runtime, "a")).active_waiters
    assert waiter["prompt"].startswith('{"text": "xxx')
    assert waiter["prompt"].endswith("…")
    assert len(waiter["prompt"]) <= 8 * 1024 + 1


async def test_a_child_run_is_no_form(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness), "parent": Parent(witness)})
    await runtime.start("parent", run_id="a")
    info = await until_info(runtime, "a", lambda it: it.active_waiters)
    assert form(info) == ("child", None, None)

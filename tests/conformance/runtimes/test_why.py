"""What holds a run, asked of every runtime: by the process that has it, and by another one after a release."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle

import loom
from loom import Context, Event, HumanResponseEvent, RunNotFound, StartEvent, StopEvent, step
from loom.api.why import Cause, Why
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Word(HumanResponseEvent):
    text: str = ""


class Next(Event):
    pass


class Held(Watched):
    """Is held by whatever it was started with."""

    @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(3)))
    async def hold(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
        match ev.by:
            case "waiter":
                word = await ctx.wait_for_event(Word, requirements={"text": "x"}, timeout=3600)
                return StopEvent(result=word.text)
            case "timer":
                await ctx.sleep(3600)
            case "backoff":
                raise KeyError("zz")
            case "busy":
                await self.witness.at("busy")
                return StopEvent()
            case "child":
                await ctx.run_child("held", by="waiter")
            case _:
                pass
        return None


FLOW: dict[str, Any] = {
    "definition": {
        "actions": {
            "Ask": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {}},
            "Rest": {"type": "Wait", "inputs": {"interval": {"count": 3, "unit": "Hour"}}, "runAfter": {}},
            "Bad": {
                "type": "activity",
                "inputs": {"activityType": "why_bad", "input": 1},
                "runAfter": {},
                "retryPolicy": {"type": "fixed", "count": 3, "interval": "PT2H"},
            },
            "Again": {
                "type": "Until",
                "expression": "@equals(1, 2)",
                "delay": "PT1H",
                "limit": {"count": 5, "timeout": "P1D"},
                "actions": {"One": {"type": "Compose", "inputs": 1}},
                "runAfter": {},
            },
        }
    }
}


@loom.activity("why_bad")
async def bad(_given: Any) -> None:
    raise ValueError("no good")


def of_kind(why: Why, kind: str) -> list[Cause]:
    return [cause for cause in why.causes if cause.kind == kind]


async def until_why(runtime: DurableRuntime, run_id: str, kind: str) -> Why:
    async def look() -> Why | None:
        why = await runtime.why(run_id)
        return why if why.kind == kind else None

    found = await until(look, f"{kind!r} of {run_id}")
    assert found is not None
    return found


async def test_each_cause_is_told_with_its_data(deployment: Deployment, witness: Witness) -> None:
    witness.hold("busy")
    runtime = await deployment.open({"held": Held(witness)}, idle_timeout=0, name="me")
    for by in ("waiter", "timer", "backoff", "busy", "child", "stuck"):
        await runtime.start("held", {"by": by}, run_id=by)
    found = {by: await until_why(runtime, by, by) for by in ("waiter", "timer", "backoff", "busy", "child", "stuck")}
    waiter, timer, backoff, busy, child, stuck = (why.causes[0] for why in found.values())
    assert waiter.sentence == found["waiter"].sentence
    assert waiter.sentence.startswith("Step 'hold' waits for event 'Word' since ")
    assert (waiter.step, waiter.requirements) == ("hold", {"text": "x"})
    assert (waiter.event_type or "").endswith(".Word")
    assert waiter.since is not None
    assert waiter.until is not None
    assert round((waiter.until - waiter.since).total_seconds()) == 3600
    assert timer.sentence.startswith("Step 'hold' sleeps until ")
    assert timer.until is not None
    assert backoff.sentence.startswith("Step 'hold' failed once, and attempt 2 of 3 is due at ")
    assert backoff.sentence.endswith(": KeyError: 'zz'")
    assert (backoff.attempt, backoff.error, backoff.step) == (2, "KeyError: 'zz'", "hold")
    assert busy.sentence.startswith("Step 'hold' executes since ")
    assert (busy.step, busy.attempt) == ("hold", 1)
    assert busy.since is not None
    if deployment.kind != "temporal":
        assert busy.owner == "me"
    assert child.sentence.startswith("Step 'hold' waits for run 'child:")
    assert child.child_id is not None
    assert stuck.sentence.endswith(": Step 'hold' returned None, and nothing else was left to do.")
    witness.let("busy")
    assert (await until_why(runtime, "busy", "ended")).sentence.startswith("It completed at ")
    with pytest.raises(RunNotFound):
        await runtime.why("nobody")


async def test_a_run_is_explained_by_another_process(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"held": Held(witness)}, idle_timeout=0)
    await runtime.start("held", {"by": "waiter"}, run_id="a")
    await until_idle(runtime, "a")
    other = await deployment.open_reader({"held": Held(witness)})
    assert (await other.why("a")).sentence.startswith("Step 'hold' waits for event 'Word' since ")
    await other.pause("a")
    why = await until_why(other, "a", "paused")
    assert [cause.kind for cause in why.causes] == ["paused", "waiter"]
    assert why.sentence == "It is paused: it keeps what comes, and starts nothing until it is resumed."
    await other.resume("a")
    await other.send_event("a", Word(text="x"))
    assert await result(await runtime.handler("a")) == "x"
    assert (await other.why("a")).kind == "ended"


async def test_a_flow_is_held_by_its_actions(deployment: Deployment) -> None:
    runtime = await deployment.open({"flow": loom.load(FLOW)}, idle_timeout=0)
    await runtime.start("flow", run_id="f")
    why = await until_why(runtime, "f", "backoff")

    async def all_wait() -> Why | None:
        why = await runtime.why("f")
        return why if {cause.kind for cause in why.causes} >= {"backoff", "timer", "waiter"} else None

    why = await until(all_wait) or why
    assert why.sentence.startswith("Action 'Bad' failed once, and attempt 2 of 4 is due at ")
    assert "no good" in (of_kind(why, "backoff")[0].error or "")
    assert [cause.step for cause in of_kind(why, "timer")] == ["Rest", "Again[0]"]
    assert [(cause.step, cause.event_type) for cause in of_kind(why, "waiter")] == [("Ask", "Go")]
    assert of_kind(why, "waiter")[0].sentence.startswith("Action 'Ask' waits for event 'Go' since ")

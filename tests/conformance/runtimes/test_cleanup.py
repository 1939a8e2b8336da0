"""The step that runs when a run is cancelled: after what was stopped, once, also over a crash, and on every runtime."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle, until_info, until_status

from loom import (
    Context,
    HumanResponseEvent,
    RunCancelledEvent,
    StartEvent,
    StopEvent,
    on_cancel,
    retry_policy,
    step,
    stop_after_attempt,
    wait_fixed,
)
from loom.steps.errors import WorkflowCancelledByUser


class Booked(Watched):
    """Works until it is cancelled, and takes back what it had done."""

    @step
    async def book(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("booked", "room 12")
        self.witness.saw("booked")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.witness.saw("stopped")
            raise
        return StopEvent()

    @on_cancel
    async def undo(self, ctx: Context, ev: RunCancelledEvent) -> None:
        self.witness.saw(f"{ev.reason}: {', '.join(ev.steps)}, {await ctx.store.get('booked')}")
        await self.witness.at("undo")

        async def refund() -> str:
            self.witness.saw(f"refund {ctx.idempotency_key}")
            return "r1"

        await ctx.once("refund", refund)
        await self.witness.at("refunded")


class Failing(Watched):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent, timeout=None)
        return StopEvent()

    @on_cancel(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def undo(self, ev: RunCancelledEvent) -> None:
        self.witness.saw("undo")
        raise ValueError("no such booking")


class Slow(Watched):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent, timeout=None)
        return StopEvent()

    @on_cancel(timeout=0.2)
    async def undo(self, ev: RunCancelledEvent) -> None:
        self.witness.saw("undo")
        await asyncio.Event().wait()


class Parent(Watched):
    def __init__(self, witness: Witness | None = None) -> None:
        super().__init__(witness)
        self.child = Booked(witness)

    @step
    async def both(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.run_child("booked")
        return StopEvent()


async def test_the_step_runs_after_the_work_was_stopped_and_the_run_ends_cancelled(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"booked": Booked(witness)})
    handler = await runtime.start("booked", {}, run_id="a")
    await witness.came("booked")
    witness.hold("undo")
    await runtime.cancel("a", reason="enough")
    await witness.came("undo")
    assert (await runtime.get("a")).status == "running"
    told = await runtime.why("a")
    assert told.kind == "cancelling"
    assert "clean-up step 'undo' is running" in told.sentence
    await runtime.cancel("a")  # the same cancel may come twice
    await runtime.send_event("a", HumanResponseEvent())
    witness.let("undo")
    with pytest.raises(WorkflowCancelledByUser):
        await result(handler)
    info = await runtime.get("a")
    assert (info.status, info.error) == ("cancelled", None)
    assert [call for call in witness.calls if call != "stopped"][-1] == "refunded"
    first_of_undo = witness.calls.index("enough: book, room 12")
    assert witness.count("undo") == witness.count("refund a:undo:2") == 1
    await witness.came("stopped")
    if deployment.holds_bodies:
        assert witness.calls.index("stopped") < first_of_undo


async def test_a_crash_repeats_the_step_with_its_key_and_its_records(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"booked": Booked(witness)})
    await first.start("booked", {}, run_id="a")
    await witness.came("booked")
    witness.hold("refunded")
    await first.cancel("a")
    await witness.came("refunded")
    await until(lambda: _is_recorded(first), "the record of the refund")
    await deployment.crash(first)
    witness.let("refunded")
    second = await deployment.open({"booked": Booked(witness)})
    await until_status(second, "a", "cancelled")
    assert witness.count("undo") == 2
    assert witness.count("refund a:undo:2") == 1
    assert witness.count("booked") == 1


async def _is_recorded(runtime: object) -> bool:
    state = await runtime.state_at("a")  # type: ignore[attr-defined]
    return bool(state.waiting.answers)


async def test_a_pending_cancel_and_what_came_with_it_are_taken_by_the_next_process(
    deployment: Deployment, witness: Witness
) -> None:
    first = await deployment.open({"booked": Booked(witness)})
    await first.start("booked", {}, run_id="a")
    await witness.came("booked")
    await until_info(first, "a", lambda info: info.status == "running")
    await deployment.crash(first)
    client = await deployment.open()
    await client.send_event("a", HumanResponseEvent())
    await client.cancel("a", reason="enough")
    second = await deployment.open({"booked": Booked(witness)})
    await until_status(second, "a", "cancelled")
    assert witness.count("undo") == 1


async def test_a_step_that_fails_for_good_is_told_and_the_run_ends_cancelled(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"failing": Failing(witness)})
    await runtime.start("failing", {}, run_id="a")
    await until_idle(runtime, "a")
    await runtime.cancel("a")
    info = await until_status(runtime, "a", "cancelled")
    assert info.error == "undo: ValueError: no such booking"
    assert (await runtime.why("a")).sentence.endswith("undo: ValueError: no such booking")
    assert witness.calls == ["undo", "undo"]


async def test_the_bound_on_time_and_force_end_the_step(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"slow": Slow(witness), "booked": Booked(witness)})
    await runtime.start("slow", {}, run_id="a")
    await runtime.start("booked", {}, run_id="b")
    await until_idle(runtime, "a")
    await witness.came("booked")
    await runtime.cancel("a")
    info = await until_status(runtime, "a", "cancelled")
    assert info.error == "Clean-up step 'undo' was not done after 0.2 seconds."
    witness.hold("undo")
    before = witness.count("undo")
    await runtime.cancel("b")
    await witness.came("undo", before + 1)
    await runtime.cancel("b", force=True)
    await until_status(runtime, "b", "cancelled")
    witness.let("undo")


async def test_the_cancel_of_a_parent_reaches_the_step_of_its_child(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"parent": Parent(witness), "booked": Booked(witness)})
    await runtime.start("parent", {}, run_id="p")
    await witness.came("booked")
    await runtime.cancel("p")
    await until_status(runtime, "p", "cancelled")
    await witness.came("refunded")
    children = [info async for info in runtime.list(workflow="booked")]
    await until_status(runtime, children[0].run_id, "cancelled")


class Renamed(Watched):
    """The code of `Booked` without the step that a run of it is at."""

    @step
    async def reserve(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

    @on_cancel
    async def undo(self, ev: RunCancelledEvent) -> None:
        self.witness.saw("undo")


async def test_a_parked_run_ends_with_nothing_of_it_run(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"booked": Booked(witness)})
    await first.start("booked", {}, run_id="a")
    await witness.came("booked")
    await deployment.crash(first)
    second = await deployment.open({"booked": Renamed(witness)})
    await until_info(second, "a", lambda info: info.parked)
    await second.cancel("a")
    await until_status(second, "a", "cancelled")
    assert witness.count("undo") == 0

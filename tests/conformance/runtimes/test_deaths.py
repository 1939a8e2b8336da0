"""Which ends of processes count against the runs that were at work in them, on every runtime."""

from __future__ import annotations

from applicable import not_on
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_info, until_status

from loom import StartEvent, StopEvent, step
from loom.runtime.durable.probation import MAX_DEATHS

RESTARTS = 6
"""More than the deaths that make a poison."""


class Long(Watched):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await self.witness.at("work"))


async def test_orderly_restarts_count_nothing(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    for restart in range(RESTARTS):
        runtime = await deployment.open({"long": Long(witness, timeout=None)})
        if not restart:
            await runtime.start("long", {}, run_id="a")
        await witness.came("work", restart + 1)
        if deployment.kind != "temporal":
            stored = await runtime.store.load("a")
            assert stored is not None
            assert stored.deaths is None
        await deployment.close(runtime)
    witness.let("work")
    runtime = await deployment.open({"long": Long(witness, timeout=None)})
    assert await result(await runtime.handler("a")) > RESTARTS


@not_on("temporal", reason="Each death costs a lost heartbeat: tests/hostile does so with processes.")
async def test_what_dies_with_its_process_each_time_is_parked(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    for death in range(2 + MAX_DEATHS):
        # No process lives as long as this probation: a slow machine acquits nobody.
        runtime = await deployment.open({"long": Long(witness, timeout=None)}, probation=600.0)
        if not death:
            await runtime.start("long", {}, run_id="a")
        await witness.came("work", death + 1)
        await deployment.crash(runtime)
    told: list[str] = []
    runtime = await deployment.open(
        {"long": Long(witness, timeout=None)}, on_problem=lambda problem: told.append(problem.message)
    )
    info = await until_info(runtime, "a", lambda info: info.parked)
    assert info.parked == (
        "poison: 5 processes have died while it was on probation, 7 while it was at work. Under way: step 'work', "
        "attempt 1. Resume it to try it again, or cancel it."
    )
    assert witness.count("work") == 2 + MAX_DEATHS
    assert await until(lambda: told) == [info.parked]
    await deployment.close(runtime)

    # A restart, and other code, leave it alone.
    runtime = await deployment.open({"long": Long(witness, timeout=3600)})
    await runtime.start("long", {"other": True}, run_id="b")
    await witness.came("work", 3 + MAX_DEATHS)
    assert (await runtime.get("a")).parked == info.parked
    await runtime.resume("a")
    witness.let("work")
    for run_id in ("a", "b"):
        await until_status(runtime, run_id, "completed")
    stored = await runtime.store.load("a")
    assert stored is not None
    assert stored.deaths is None, "its result forgets them"

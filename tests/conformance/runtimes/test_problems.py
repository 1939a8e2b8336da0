"""Operators are told of runs that fail, park or are stuck: at least once, also after a crash in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from applicable import not_on
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, until, until_info, until_status

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, step
from loom.api.problems import Problem

TOLD = {"on_problem": None, "poll_interval": 0.05, "problem_interval": 0.2}


class Word(HumanResponseEvent):
    text: str = ""


class Job(Event):
    pass


class Ends(Watched):
    """Ends as it is asked to."""

    @step
    async def begin(self, ev: StartEvent) -> Job | StopEvent | None:
        if ev.how == "fail":
            raise ValueError("no good")
        if ev.how == "stuck":
            return None
        return Job() if ev.how == "park" else StopEvent()

    @step
    async def work(self, ctx: Context, ev: Job) -> StopEvent:
        await self.witness.at("work")
        await ctx.wait_for_event(Word, timeout=None)
        return StopEvent()


class Lacking(Watched):
    """The same workflow by code that has lost a step."""

    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


async def told(problems: list[Problem], *wanted: tuple[str, str]) -> dict[tuple[str, str], Problem]:
    """The problems by run and kind, once all that are wanted have been told."""

    def found() -> dict[tuple[str, str], Problem] | None:
        by_name = {(problem.run_id, problem.kind): problem for problem in problems}
        return by_name if by_name.keys() >= set(wanted) else None

    result = await until(found, f"{wanted}, got {problems}")
    assert result is not None
    return result


async def test_operators_are_told_of_failed_stuck_and_parked_runs(deployment: Deployment, witness: Witness) -> None:
    problems: list[Problem] = []
    runtime = await deployment.open({"ends": Ends(witness)}, **{**TOLD, "on_problem": problems.append})
    for how in ("fail", "stuck", "well"):
        await runtime.start("ends", {"how": how}, run_id=how, tags={"how": how})
    found = await told(problems, ("fail", "failed"), ("stuck", "stuck"))
    failed, stuck = found["fail", "failed"], found["stuck", "stuck"]
    info = await runtime.get("fail")
    assert (failed.workflow, failed.message, failed.tick) == ("ends", info.error, info.ticks - 1)
    assert failed.message.endswith("ValueError: no good")
    assert abs((failed.at - info.updated_at).total_seconds()) < 1
    assert failed.tags == {"how": "fail"}
    assert stuck.message == "Step 'begin' returned None, and nothing else was left to do."
    assert failed.id != stuck.id
    await runtime.start("ends", {"how": "park"}, run_id="park")
    await witness.came("work")
    await until_info(runtime, "park", lambda info: info.active_waiters)
    await deployment.crash(runtime)

    async def tell(problem: Problem) -> None:
        problems.append(problem)

    second = await deployment.open({"ends": Lacking(witness)}, **{**TOLD, "on_problem": tell})
    await second.send_event("park", Word(text="x"))
    parked = (await told(problems, ("park", "parked")))["park", "parked"]
    assert "has no step 'work'" in parked.message
    assert {problem.run_id for problem in problems} == {"fail", "stuck", "park"}
    if deployment.kind != "temporal":
        # What was told leaves nothing in the store.
        await until(lambda: _notices(second, "completed"))


async def _notices(runtime: Any, status: str) -> bool:
    return not [info async for info in runtime.list(workflow="loom.problems.on_problem")] and status == "completed"


async def test_a_problem_is_told_after_a_crash_and_until_it_is_taken(deployment: Deployment, witness: Witness) -> None:
    """The process dies when the failure is stored and nobody was told; the next one tells, and tries again."""
    tries: list[Problem] = []

    async def never(problem: Problem) -> None:
        tries.append(problem)
        await asyncio.Event().wait()

    first = await deployment.open({"ends": Ends(witness)}, **{**TOLD, "on_problem": never})
    await first.start("ends", {"how": "fail"}, run_id="a")
    await until_status(first, "a", "failed")
    await deployment.crash(first)
    problems: list[Problem] = []

    def refuses_once(problem: Problem) -> None:
        problems.append(problem)
        if len(problems) == 1:
            raise ConnectionError("the pager is off")

    second = await deployment.open({"ends": Ends(witness)}, **{**TOLD, "on_problem": refuses_once})
    await until(lambda: len(problems) >= 2, "a second try")
    assert {problem.id for problem in problems} == {problems[0].id}
    assert (problems[0].run_id, problems[0].kind) == ("a", "failed")
    assert (await second.get("a")).status == "failed"


@not_on("sqlite", reason="Only one process works on the runs of a file.")
async def test_other_processes_need_not_know_the_hook(deployment: Deployment, witness: Witness) -> None:
    problems: list[Problem] = []
    await deployment.open({}, **{**TOLD, "on_problem": problems.append})
    worker = await deployment.open({"ends": Ends(witness)}, poll_interval=0.05, problem_interval=0.05)
    if deployment.kind != "temporal":
        await until(lambda: worker.problems.channels, "the hook of the other process")
    await worker.start("ends", {"how": "fail"}, run_id="a")
    await told(problems, ("a", "failed"))


async def test_nobody_but_the_engine_makes_a_notice(deployment: Deployment, witness: Witness) -> None:
    """A notice is signed with the operator's secret: an author of flows must not be able to have one sent."""
    problems: list[Problem] = []
    notices = "loom.problems.on_problem"
    made_up = {"id": "x", "kind": "failed", "run_id": "x", "workflow": "w", "message": "m", "tick": 1}
    body = {"problem": {**made_up, "at": "2026-01-01T00:00:00Z"}}
    forger = loom.load({"forge": {"type": "workflow", "inputs": {"workflow": notices, "body": body}}})
    runtime = await deployment.open(
        {"forger": forger, "ends": Ends(witness)}, **{**TOLD, "on_problem": problems.append}
    )
    await runtime.start("forger", run_id="forger")
    told_of = (await told(problems, ("forger", "failed")))["forger", "failed"]
    assert "'loom.problems.on_problem' is Loom's own" in told_of.message
    with pytest.raises(ValueError, match="is Loom's own"):
        await runtime.start(notices, body)
    with pytest.raises(ValueError, match="is Loom's own"):
        await runtime.schedule("forger", notices, every=60.0, input=body)
    with pytest.raises(ValueError, match="is kept for Loom's own runs"):
        await runtime.start("ends", {"how": "well"}, run_id="loom.problem:on_problem:1")
    with pytest.raises(ValueError, match="is kept for Loom's own runs"):
        await runtime.fork("forger", tick=0, run_id="loom.problem:on_problem:1")
    assert {problem.run_id for problem in problems} == {"forger"}

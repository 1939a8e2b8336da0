"""Resources with an end, in real runs: torn down with their run and with their process, however these end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle, until_released, until_status

from loom import Context, Event, HumanResponseEvent, Resource, StartEvent, StopEvent, step

told = Witness()
"""What the factories did; each test has a new one."""


@pytest.fixture(autouse=True)
def _new_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "told", Witness())


def pool() -> Iterator[str]:
    told.saw("+pool")
    yield "pool"
    told.saw("-pool")


async def session(pool: Annotated[str, Resource(pool)]) -> AsyncIterator[str]:
    told.saw("+session")
    yield f"session of {pool}"
    told.saw("-session")
    if told.count("broken"):
        raise OSError("the session does not close")


Session = Annotated[str, Resource(session, scope="run")]


class Word(HumanResponseEvent):
    text: str = ""


class Asked(Event):
    by: str


class Talk(Watched):
    """Uses its session in two steps, with a wait between them."""

    @step
    async def ask(self, ev: StartEvent, session: Session) -> Asked:
        self.witness.saw(f"asked by {session}")
        if ev.get("fails", False):
            raise OSError("no")
        return Asked(by=session)

    @step
    async def hear(self, ctx: Context, ev: Asked, session: Session) -> StopEvent:
        word = await ctx.wait_for_event(Word, timeout=None)
        self.witness.saw("heard")
        return StopEvent(result=f"{word.text} by {session}")


def _is_balanced() -> bool:
    return told.count("+session") == told.count("-session") >= 1


async def test_a_session_ends_with_its_run_and_the_pool_with_the_process(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"talk": Talk(witness)})
    handler = await runtime.start("talk", run_id="a")
    await until_idle(runtime, "a")
    await runtime.send_event("a", Word(text="yes"))
    assert await result(handler) == "yes by session of pool"
    await until(_is_balanced, "the session is torn down")
    assert told.count("-pool") == 0
    await deployment.close(runtime)
    assert told.calls[-1] == "-pool"
    assert told.count("+pool") == 1


async def test_a_released_run_has_its_session_torn_down_and_set_up_again(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"talk": Talk(witness)}, idle_timeout=0)
    handler = await runtime.start("talk", run_id="a")
    await until_idle(runtime, "a")
    await until_released(runtime, "a")
    await until(_is_balanced, "the session is torn down while the run waits")
    before = told.count("+session")
    await runtime.send_event("a", Word(text="yes"))
    assert await result(handler) == "yes by session of pool"
    await until(_is_balanced, "the session is torn down again")
    assert told.count("+session") == before + 1


@pytest.mark.parametrize("way", ["failed", "cancelled"])
async def test_a_session_ends_with_a_run_that_comes_to_nothing(
    deployment: Deployment, witness: Witness, way: str
) -> None:
    told.saw("broken")
    runtime = await deployment.open({"talk": Talk(witness)})
    await runtime.start("talk", {"fails": way == "failed"}, run_id="a")
    if way == "cancelled":
        await until_idle(runtime, "a")
        await runtime.cancel("a")
    await until_status(runtime, "a", way)
    await until(_is_balanced, "the session is torn down, and its failure costs the run nothing")


async def test_a_runtime_that_closes_ends_the_sessions_of_the_runs_that_it_has(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"talk": Talk(witness)})
    await runtime.start("talk", run_id="a")
    await until_idle(runtime, "a")
    await deployment.close(runtime)
    assert _is_balanced()
    assert told.calls[-2:] == ["-session", "-pool"]
    assert witness.count("heard") == 0

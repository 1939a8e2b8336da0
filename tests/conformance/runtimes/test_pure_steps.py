"""Pure steps change when bodies begin, and nothing else: the same result, stream and store everywhere."""

from __future__ import annotations

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result

from loom import Context, Event, StartEvent, StopEvent, Workflow, step

DEPTH = 4


class Link(Event):
    chain: int
    depth: int


class Sum(Event):
    chain: int
    depth: int


class Ended(Event):
    chain: int
    total: int


class Line(Event):
    text: str


async def leave_marks(ctx: Context, text: str) -> None:
    ctx.write_event_to_stream(Line(text=text))
    await ctx.store.set(text, text)


class Pure(Watched):
    """Two chains at once: pure steps, a step that acts, and a pure end."""

    @step(pure=True)
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Link]:
        await leave_marks(ctx, "begin")
        return [Link(chain=chain, depth=0) for chain in range(2)]

    @step(pure=True)
    async def go_on(self, ctx: Context, ev: Link) -> Link | Sum:
        await leave_marks(ctx, f"{ev.chain}/{ev.depth}")
        if ev.depth + 1 < DEPTH:
            return Link(chain=ev.chain, depth=ev.depth + 1)
        return Sum(chain=ev.chain, depth=ev.depth)

    @step
    async def act(self, ctx: Context, ev: Sum) -> Ended:
        times = await ctx.once("act", lambda: self.witness.saw(f"act {ev.chain}"))
        await self.witness.at(f"held {ev.chain}")
        await leave_marks(ctx, f"act {ev.chain}")
        return Ended(chain=ev.chain, total=ev.depth + times)

    @step(pure=True)
    async def end(self, ctx: Context, ended: list[Ended]) -> StopEvent:
        state = await ctx.store.get_state()
        return StopEvent(result=[sorted(one.total for one in ended), sorted(state.keys())])


EXPECTED = [
    [DEPTH, DEPTH],
    sorted(["begin", "act 0", "act 1", *(f"{chain}/{depth}" for chain in range(2) for depth in range(DEPTH))]),
]


async def lines_of(handler: object) -> list[str]:
    stream = handler.stream_events()  # type: ignore[attr-defined]
    return sorted([event.text async for event in stream if isinstance(event, Line)])


async def test_results_stores_and_streams_are_the_same(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"pure": Pure(witness)})
    handler = await runtime.start("pure", run_id="a")
    assert await result(handler) == EXPECTED
    assert await lines_of(await runtime.handler("a")) == EXPECTED[1]
    assert [witness.count(f"act {chain}") for chain in range(2)] == [1, 1]


@pytest.mark.parametrize("crashes", [False, True], ids=["close", "crash"])
async def test_nothing_is_lost_or_doubled_by_a_restart(deployment: Deployment, witness: Witness, crashes: bool) -> None:
    for chain in range(2):
        witness.hold(f"held {chain}")
    first = await deployment.open({"pure": Pure(witness)})
    await first.start("pure", run_id="a")
    for chain in range(2):
        await witness.came(f"held {chain}")
    await (deployment.crash(first) if crashes else deployment.close(first))
    for chain in range(2):
        witness.let(f"held {chain}")
    second = await deployment.open({"pure": Pure(witness)})
    assert await result(await second.handler("a")) == EXPECTED
    assert await lines_of(await second.handler("a")) == EXPECTED[1]
    assert [witness.count(f"act {chain}") for chain in range(2)] == [1, 1]


async def test_plain_workflows_without_a_store_take_the_declaration() -> None:
    workflow: Workflow = Pure()
    assert await workflow.run() == EXPECTED

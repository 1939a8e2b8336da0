"""Speed and safety: what llama-index-workflows 2.26 is known to get wrong. Each test fails there and holds here."""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from steps_rig import until_idle

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from loom.steps.serializers import JsonSerializer, PickleSerializer


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


# -- performance: its shape -------------------------------------------------------------------------------------------


class FanOut(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Job]:
        return [Job(n=n) for n in range(ev.n)]

    @step(num_workers=8)
    async def work(self, ev: Job) -> Done:
        return Done(n=ev.n)

    @step
    async def join(self, found: list[Done]) -> StopEvent:
        return StopEvent(result=len(found))


class SendAndCollect(Workflow):
    @step
    async def split(self, ctx: Context, ev: StartEvent) -> Job | None:
        self.expected = [Done] * ev.n
        for n in range(ev.n):
            ctx.send_event(Job(n=n))
        return None

    @step(num_workers=8)
    async def work(self, ev: Job) -> Done:
        return Done(n=ev.n)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        found = ctx.collect_events(ev, self.expected)
        return StopEvent(result=len(found)) if found else None


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """How many Python functions are called within: the amount of work, whatever else the machine is doing."""
    calls = [0]

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        calls[0] += event == "call"

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def work_of(workflow: Workflow, n: int) -> int:
    with counted_calls() as calls:
        assert await workflow.run(n=n) == n
    return calls[0]


@pytest.mark.parametrize("kind", [FanOut, SendAndCollect])
async def test_fan_out_is_linear_in_its_items(kind: type[Workflow]):
    await work_of(kind(timeout=20), 10)
    small, large = await work_of(kind(timeout=20), 100), await work_of(kind(timeout=20), 1000)
    # Ten times the items: a quadratic engine has a hundred times the work.
    assert large < 12 * small


async def test_saving_costs_the_live_state_and_not_the_history():
    class Chain(Workflow):
        @step
        async def turn(self, ev: StartEvent | Job) -> Job | Done:
            left = ev.n - 1
            return Job(n=left) if left else Done()

        @step
        async def wait(self, ctx: Context, ev: Done) -> StopEvent:
            await ctx.wait_for_event(Reply)
            return StopEvent()

    costs = []
    for length in (10, 10, 500):
        handler = Chain(timeout=20).run(n=length)
        await until_idle(handler)
        with counted_calls() as calls:
            handler.ctx.to_dict()
        costs.append(calls[0])
        await handler.cancel_run()
    # Fifty times the history, and no more to save.
    assert costs[2] < 2 * costs[1]


# -- security ---------------------------------------------------------------------------------------------------------


def test_deserialising_never_imports():
    assert "antigravity" not in sys.modules
    text = json.dumps({"__is_pydantic": True, "value": {}, "qualified_name": "antigravity.Anything"})
    with pytest.raises(ValueError, match=r"antigravity\.Anything"):
        JsonSerializer().deserialize(text)
    component = json.dumps({"__is_component": True, "value": {}, "qualified_name": "antigravity.Anything"})
    with pytest.raises(ValueError, match=r"antigravity\.Anything"):
        JsonSerializer().deserialize(component)
    assert "antigravity" not in sys.modules


async def test_type_markers_in_user_data_are_data():
    class Stores(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.store.set("from_client", ev.payload)
            await ctx.wait_for_event(Reply)
            return StopEvent(result=await ctx.store.get("from_client"))

    payload = {"__is_pydantic": True, "qualified_name": "os.system", "value": {"command": "true"}}
    handler = Stores(timeout=5).run(payload=payload)
    await until_idle(handler)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    workflow = Stores(timeout=5)
    again = workflow.run(ctx=Context.from_dict(workflow, data))
    again.ctx.send_event(Reply())
    assert await again == payload


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_pickle_serializer_refuses_pickles():
    text = base64.b64encode(b"cbuiltins\nexec\n(S'import sys; sys.modules[\"pwned\"] = sys'\ntR.").decode()
    serializer = PickleSerializer()
    with pytest.raises(ValueError, match=r".+"):
        serializer.deserialize(text)
    assert "pwned" not in sys.modules
    with pytest.raises(ValueError, match=r".+"):
        serializer.deserialize(base64.b64encode(pickle.dumps({"plain": 1})).decode())
    assert serializer.deserialize(serializer.serialize({"a": 1})) == {"a": 1}

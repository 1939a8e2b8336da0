"""What llama-index-workflows 2.26 is known to get wrong, one test for each: it fails there and holds here."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import pickle
import sys
import time
import weakref
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from steps_rig import of_type, outcome_of, settled, streamed, until_idle

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from loom.steps.errors import ContextSerdeError, WorkflowTimeoutError
from loom.steps.events import StepFailedEvent, UnhandledEvent, WorkflowIdleEvent
from loom.steps.resources import Resource
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none
from loom.steps.serializers import JsonSerializer, PickleSerializer


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class Ask(InputRequiredEvent):
    pass


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Note(Event):
    lines: list[str] = Field(default_factory=list)


class Count(BaseModel):
    charged: int = 0


# -- semantics: waiting -----------------------------------------------------------------------------------------------


class TwoReplies(Workflow):
    bodies = after = 0

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        first = await ctx.wait_for_event(Reply)
        second = await ctx.wait_for_event(Reply)
        self.after += 1
        return StopEvent(result=(first.text, second.text))


async def test_resolved_waiter_is_consumed_once_and_never_overwritten():
    workflow = TwoReplies(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    await handler.send_event(Reply(text="r1"))
    await until_idle(handler)
    await handler.send_event(Reply(text="r2"))
    assert await handler == ("r1", "r2")
    assert (workflow.bodies, workflow.after) == (1, 1)


async def test_two_quick_replies_run_the_rest_of_the_body_once():
    workflow = TwoReplies(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    await asyncio.gather(handler.send_event(Reply(text="r1")), handler.send_event(Reply(text="r2")))
    assert await handler == ("r1", "r2")
    assert (workflow.bodies, workflow.after) == (1, 1)


class Effects(Workflow):
    jobs = 0

    @step
    async def ask(self, ctx: Context[Count], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.charged += 1
        ctx.send_event(Job())
        ctx.write_event_to_stream(Note(lines=["asking"]))
        await ctx.wait_for_event(Reply)
        return StopEvent(result=await ctx.store.get("charged"))

    @step
    async def job(self, ev: Job) -> None:
        self.jobs += 1


async def test_waiting_does_not_repeat_store_writes_sends_and_stream_events():
    workflow = Effects(timeout=5, disable_validation=True)
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply())
    assert await handler == 1
    assert workflow.jobs == 1
    events = [e async for e in handler.stream_events(after=-1)]
    assert len(of_type(events, Note)) == 1


async def test_committed_effects_are_not_repeated_after_a_restore():
    before = Effects(timeout=5, disable_validation=True)
    handler = before.run()
    await until_idle(handler)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    after = Effects(timeout=5, disable_validation=True)
    again = after.run(ctx=Context.from_dict(after, data))
    again.ctx.send_event(Reply())
    assert await again == 1
    assert after.jobs == 0


async def test_broad_except_does_not_swallow_a_wait():
    class Broad(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                reply = await ctx.wait_for_event(Reply)
            except Exception:  # noqa: BLE001 - the subject
                return StopEvent(result="swallowed")
            return StopEvent(result=reply.text)

    handler = Broad(timeout=5).run()
    await settled()
    handler.ctx.send_event(Reply(text="through"))
    assert await handler == "through"


async def test_event_that_arrives_before_its_waiter_is_kept():
    class Late(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await gate.wait()
            reply = await ctx.wait_for_event(Reply)
            return StopEvent(result=reply.text)

    gate = asyncio.Event()
    handler = Late(timeout=5).run()
    stream = handler.stream_events(expose_internal=True)
    handler.ctx.send_event(Reply(text="early"))
    async for event in stream:
        if isinstance(event, UnhandledEvent):
            gate.set()
    assert await handler == "early"


async def test_timeout_of_a_waiter_is_armed_after_a_restore():
    class Impatient(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.wait_for_event(Reply, timeout=0.15)
            except TimeoutError:
                return StopEvent(result="gave up")
            return StopEvent(result="answered")

    handler = Impatient(timeout=5).run()
    await until_idle(handler)
    data = handler.ctx.to_dict()
    await handler.cancel_run()
    workflow = Impatient(timeout=5)
    assert await workflow.run(ctx=Context.from_dict(workflow, data)) == "gave up"


async def test_durable_sleep_gives_its_worker_away():
    class Naps(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.send_event(Job(n=0))
            ctx.send_event(Job(n=1))
            return None

        @step(num_workers=1)
        async def nap(self, ctx: Context, ev: Job) -> StopEvent | None:
            order.append(ev.n)
            if ev.n == 0:
                await ctx.sleep(0.02)
                return StopEvent(result=order)
            return None

    order: list[int] = []
    assert await Naps(timeout=5).run() == [0, 1]


async def test_restored_waiter_knows_its_requirements_without_running_the_step():
    class Picky(Workflow):
        bodies = 0

        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.bodies += 1
            reply = await ctx.wait_for_event(Reply, requirements={"who": "ada"})
            return StopEvent(result=reply.text)

    handler = Picky(timeout=5).run()
    await until_idle(handler)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    workflow = Picky(timeout=5)
    again = workflow.run(ctx=Context.from_dict(workflow, data))
    await settled()
    assert workflow.bodies == 0
    again.ctx.send_event(Reply(text="no", who="bob"))
    await settled()
    assert workflow.bodies == 0
    again.ctx.send_event(Reply(text="yes", who="ada"))
    assert await again == "yes"
    assert workflow.bodies == 1


# -- semantics: executions --------------------------------------------------------------------------------------------


async def test_concurrent_collects_do_not_run_bodies_quadratically():
    class Collects(Workflow):
        bodies = 0

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            for n in range(20):
                ctx.send_event(Job(n=n))
            return None

        @step(num_workers=20)
        async def join(self, ctx: Context, ev: Job) -> StopEvent | None:
            self.bodies += 1
            await asyncio.sleep(0.01)
            found = ctx.collect_events(ev, [Job] * 20)
            return StopEvent(result=sorted(e.n for e in found)) if found else None

    workflow = Collects(timeout=10)
    assert await workflow.run() == list(range(20))
    assert workflow.bodies <= 21


async def test_idempotency_key_is_the_same_for_every_attempt():
    class Keys(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            keys.append(ctx.idempotency_key)
            if len(keys) < 3:
                raise ValueError("again")
            return StopEvent()

    keys: list[str] = []
    await Keys(timeout=5).run()
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_cancelled_error_in_a_step_is_a_failure_and_no_hang():
    class Cancels(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            raise asyncio.CancelledError

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result="rescued")

    assert await Cancels(timeout=2).run() == "rescued"


async def test_sync_step_can_send_and_write():
    class Sync(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.write_event_to_stream(Note(lines=["from a thread"]))
            ctx.send_event(Job(n=1))
            return None

        @step
        def end(self, ev: Job) -> StopEvent:
            return StopEvent(result=ev.n)

    handler = Sync(timeout=5).run()
    events = await streamed(handler)
    assert await handler == 1
    assert [e.lines for e in of_type(events, Note)] == [["from a thread"]]


async def test_result_after_the_deadline_does_not_win():
    class Blocks(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            time.sleep(0.2)  # noqa: ASYNC251 - the subject
            return StopEvent(result="too late")

    assert isinstance(await outcome_of(Blocks(timeout=0.05).run()), WorkflowTimeoutError)


async def test_slow_resource_that_two_steps_want_is_no_cycle():
    async def slow() -> object:
        begun.set()
        await gate.wait()
        return object()

    class Both(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | Done | None:
            ctx.send_event(Job())
            ctx.send_event(Done())
            return None

        @step
        async def one(self, ev: Job, it: Annotated[object, Resource(slow)]) -> StopEvent | None:
            return took(it)

        @step
        async def two(self, ev: Done, it: Annotated[object, Resource(slow)]) -> StopEvent | None:
            return took(it)

    def took(it: object) -> StopEvent | None:
        got.append(it)
        return StopEvent(result=got[0] is got[1]) if len(got) == 2 else None

    got: list[object] = []
    begun, gate = asyncio.Event(), asyncio.Event()
    handler = Both(timeout=5).run()
    await begun.wait()
    await settled(100)
    gate.set()
    assert await handler is True


async def test_two_lambdas_are_two_resources():
    class Lambdas(Workflow):
        @step
        async def start(
            self, ev: StartEvent, a: Annotated[str, Resource(lambda: "a")], b: Annotated[str, Resource(lambda: "b")]
        ) -> StopEvent:
            return StopEvent(result=a + b)

    assert await Lambdas(timeout=5).run() == "ab"


class OldName(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(3):
            ctx.send_event(Job(n=n))
        return None

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Job) -> StopEvent:
        await asyncio.Event().wait()
        return StopEvent()


class NewName(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        return Job()

    @step
    async def labour(self, ctx: Context, ev: Job) -> StopEvent:
        return StopEvent()


async def test_queued_events_of_a_renamed_step_are_not_dropped():
    handler = OldName(timeout=5).run()
    await settled()
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    with pytest.raises(ContextSerdeError, match="'work'"):
        Context.from_dict(NewName(timeout=5), data)
    assert Context.from_dict(OldName(timeout=5), data).is_running


async def test_run_with_nothing_left_to_do_shows_as_idle_and_can_be_cancelled():
    class Ends(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent | None:
            return None

    handler = Ends(timeout=None).run()
    async for event in handler.stream_events(expose_internal=True):
        if isinstance(event, WorkflowIdleEvent):
            assert event.waiters == []
            break
    assert handler.ctx.is_idle
    await handler.cancel_run()
    assert handler.is_done()


async def test_branches_do_not_share_events_by_reference():
    class Shares(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Note:
            return Note(lines=["original"])

        @step
        async def left(self, ev: Note) -> Job:
            ev.lines.append("left was here")
            return Job(n=len(ev.lines))

        @step
        async def right(self, ev: Note) -> Job:
            ev.lines.append("right was here")
            return Job(n=len(ev.lines))

        @step
        async def join(self, ctx: Context, ev: Job) -> StopEvent | None:
            found = ctx.collect_events(ev, [Job, Job])
            return StopEvent(result=[e.n for e in found]) if found else None

    assert await Shares(timeout=5).run() == [2, 2]


async def test_branches_that_wait_do_not_share_the_reply():
    class Shares(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.send_event(Job(n=0))
            ctx.send_event(Job(n=1))
            return None

        @step
        async def ask(self, ctx: Context, ev: Job) -> Done:
            note = await ctx.wait_for_event(Note)
            note.lines.append("seen")
            return Done(n=len(note.lines))

        @step
        async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
            found = ctx.collect_events(ev, [Done, Done])
            return StopEvent(result=[e.n for e in found]) if found else None

    handler = Shares(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Note(lines=[]))
    assert await handler == [1, 1]


def test_extra_fields_of_a_stop_event_are_in_its_dump():
    dumped = StopEvent(result=1, extra="kept").model_dump()
    assert dumped["result"] == 1
    assert dumped["_data"] == {"extra": "kept"}
    assert StopEvent.model_validate(dumped).extra == "kept"


async def test_waiting_run_is_not_lost_with_its_handler():
    ended = asyncio.Event()

    class Waits(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Reply)
            ended.set()
            return StopEvent()

    handler = Waits(timeout=5).run()
    await until_idle(handler)
    ctx = handler.ctx
    del handler
    for _ in range(3):
        gc.collect()
        await settled()
    ctx.send_event(Reply())
    await asyncio.wait_for(ended.wait(), 2)
    await settled()


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


async def seconds(workflow: Workflow, n: int) -> float:
    begun = time.perf_counter()
    assert await workflow.run(n=n) == n
    return time.perf_counter() - begun


@pytest.mark.parametrize("kind", [FanOut, SendAndCollect])
async def test_fan_out_is_linear_in_its_items(kind: type[Workflow]):
    await seconds(kind(timeout=20), 100)
    small = min([await seconds(kind(timeout=20), 250) for _ in range(3)])
    large = await seconds(kind(timeout=20), 4000)
    # Sixteen times the items: a quadratic engine takes 256 times as long.
    assert large < 64 * small
    assert large < 5


async def test_saving_costs_the_live_state_and_not_the_history():
    class Long(FanOut):
        @step
        async def join(self, ctx: Context, found: list[Done]) -> StopEvent:
            await ctx.wait_for_event(Reply)
            return StopEvent(result=len(found))

    handler = Long(timeout=20).run(n=2000)
    await until_idle(handler)
    begun = time.perf_counter()
    handler.ctx.to_dict()
    assert time.perf_counter() - begun < 1
    await handler.cancel_run()


async def test_finished_run_leaves_nothing_behind():
    class Big(Event):
        payload: str = ""

    class Publishes(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Big:
            big = Big(payload="x")
            alive.append(weakref.ref(big))
            ctx.write_event_to_stream(big)
            return big

        @step
        async def end(self, ev: Big) -> StopEvent:
            return StopEvent()

    alive: list[weakref.ref[Any]] = []
    workflow = Publishes(timeout=5)
    handler = workflow.run()
    await handler
    await settled()
    assert alive[0]() is not None, "the handler can still read the stream"
    del handler
    await settled()
    gc.collect()
    assert alive[0]() is None


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

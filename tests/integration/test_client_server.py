"""The client against the real server, on a real port: what one says, the other understands."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import uvicorn

import loom
from loom.client import Client, ClientError, Retries, Run, StreamEvent
from loom.server.app import create_app
from loom.server.auth import Keys, new_key

QUICK = Retries(attempts=3, first_delay=0.01, max_delay=0.05)


class Ask(loom.InputRequiredEvent):
    question: str


class Answer(loom.HumanResponseEvent):
    text: str


class Asking(loom.Workflow):
    @loom.step
    async def ask(self, ctx: loom.Context, ev: loom.StartEvent) -> loom.StopEvent:
        answer = await ctx.wait_for_event(Answer, waiter_event=Ask(question=ev.topic), waiter_id="approval")
        return loom.StopEvent(result=f"{ev.topic}: {answer.text}")


class Number(loom.Event):
    number: int


class Counting(loom.Workflow):
    @loom.step
    async def count(self, ctx: loom.Context, ev: loom.StartEvent) -> loom.StopEvent:
        for number in range(ev.events):
            ctx.write_event_to_stream(Number(number=number))
        return loom.StopEvent(result=ev.events)


class Failing(loom.Workflow):
    @loom.step
    async def fail(self, ev: loom.StartEvent) -> loom.StopEvent:
        raise ValueError("broken")


FLOW: dict[str, Any] = {
    "definition": {
        "triggers": {"manual": {"type": "Request", "kind": "Http"}},
        "actions": {
            "Repeat": {
                "type": "Foreach",
                "foreach": "@triggerBody()?['items']",
                "actions": {"Inner": {"type": "Compose", "inputs": "@item()"}},
            },
            "Greet": {"type": "Compose", "inputs": "@concat('hello ', triggerBody()?['name'])", "runAfter": {}},
        },
        "outputs": {},
    }
}


@contextlib.asynccontextmanager
async def served(runtime: Any, port: int = 0) -> AsyncIterator[str]:
    """The address of a server over a runtime."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        config = uvicorn.Config(create_app(runtime), log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@pytest.fixture
async def client(tmp_path: Any) -> AsyncIterator[Client]:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(Asking(timeout=None), name="asking")
        runtime.register(Counting(), name="counting")
        runtime.register(Failing(), name="failing")
        runtime.register(loom.load(FLOW), name="flow")
        async with served(runtime) as url, Client(url, retries=QUICK) as client:
            yield client


async def idle(client: Client, run_id: str) -> Run:
    """The run, once it has told that it is idle."""
    async with asyncio.timeout(60):
        async for event in client.stream(run_id, internal=True):
            if event.type == "WorkflowIdleEvent":
                break
    return await client.get(run_id)


async def test_start_wait_for_an_answer_and_get_the_result(client: Client) -> None:
    started = await client.start("asking", {"topic": "lunch"}, run_id="order-17", tags={"team": "a"})
    assert (started.run_id, started.workflow, started.kind, started.status) == (
        "order-17",
        "asking",
        "steps",
        "running",
    )
    waiting = await idle(client, "order-17")
    assert waiting.active_waiters is not None
    [waiter] = waiting.active_waiters
    assert (waiter.step, waiter.waiter_id) == ("ask", "approval")
    assert waiter.event_type.endswith("Answer")
    listed = [run.run_id async for run in client.list(idle=True, workflow="asking", tags={"team": "a"})]
    assert listed == ["order-17"]
    delivery = await client.send_event("order-17", Answer(text="yes"), event_id="e1")
    assert (delivery.delivered, delivery.duplicate) == ("waiter", False)
    ended = await client.wait("order-17", timeout=60)
    assert ended.status == "completed"
    assert "lunch: yes" in str(ended.result)
    assert ended.completed_at is not None
    assert (await client.send_event("order-17", Answer(text="yes"), event_id="e1")).duplicate
    with pytest.raises(loom.RunFinished):
        await client.send_event("order-17", Answer(text="no"))


async def test_starts_by_run_id_and_by_key(client: Client) -> None:
    first = await client.start("asking", {"topic": "a"}, run_id="r")
    again = await client.start("asking", {"topic": "a"}, run_id="r")
    assert first.run_id == again.run_id == "r"
    with pytest.raises(loom.RunExists) as caught:
        await client.start("asking", {"topic": "b"}, run_id="r")
    assert isinstance(caught.value, ClientError)
    assert caught.value.request_id
    one = await client.start("asking", {"topic": "a"}, idempotency_key="k")
    two = await client.start("asking", {"topic": "a"}, idempotency_key="k")
    assert one.run_id == two.run_id
    assert len([run async for run in client.list(limit=1)]) == 2


async def test_refusals(client: Client) -> None:
    with pytest.raises(loom.RunNotFound, match="nobody"):
        await client.get("nobody")
    with pytest.raises(ClientError, match="nothing") as caught:
        await client.start("nothing")
    assert caught.value.code == "definition-not-found"
    await client.start("asking", {"topic": "a"}, run_id="r")
    with pytest.raises(ClientError) as caught:
        await client.send_event("r", "Unknown", {})
    assert caught.value.code == "invalid-request"
    with pytest.raises(ClientError) as caught:
        await client.delete("r")
    assert caught.value.code == "run-active"


async def test_pause_resume_cancel_and_delete(client: Client) -> None:
    await client.start("asking", {"topic": "a"}, run_id="r")
    await idle(client, "r")
    await client.pause("r")
    await client.resume("r")
    await client.resume("r", max_depth=20_000)
    await client.cancel("r", reason="not needed", force=True)
    assert (await client.wait("r", timeout=60)).status == "cancelled"
    assert (await client.cancel("r")).status == "cancelled"
    await client.delete("r")
    with pytest.raises(loom.RunNotFound):
        await client.get("r")


async def test_a_failed_run_is_an_answer_and_can_be_retried(client: Client) -> None:
    failed = await client.start("failing", run_id="r", wait=20)
    assert failed.status == "failed"
    assert failed.error is not None
    assert (failed.error.step, failed.error.message) == ("fail", "broken")
    await client.retry("r")
    assert (await client.wait("r", timeout=60)).status == "failed"


async def test_tags_and_orders(client: Client) -> None:
    for run_id in ("r1", "r2"):
        await client.start("asking", {"topic": "a"}, run_id=run_id)
    assert (await client.set_tags("r1", {"team": "x"})).tags == {"team": "x"}
    assert [run.run_id async for run in client.list(tags={"team": "x"})] == ["r1"]
    assert [run.run_id async for run in client.list(id_prefix="r2", order="-updated_at")] == ["r2"]
    assert [run.run_id async for run in client.list(asleep=True)] == []
    assert (await client.counts(workflow="asking")).total == 2
    assert [worker.is_this for worker in await client.workers()] == [True]
    with pytest.raises(loom.RunNotFound):
        await client.set_tags("none", {})


async def test_history_state_and_fork(client: Client) -> None:
    await client.start("asking", {"topic": "a"}, run_id="r")
    waiting = await idle(client, "r")
    history = [item async for item in client.history("r", commands=True)]
    assert [item.seq for item in history] == list(range(len(history)))
    assert waiting.tick == history[-1].seq
    assert history[0].commands is not None
    state = await client.state("r", tick=waiting.tick)
    assert state["tick"] == waiting.tick
    forked = await client.fork("r", history[-1].seq, new_run_id="r2")
    assert forked.run_id == "r2"
    assert forked.forked_from is not None
    await idle(client, "r2")
    await client.send_event("r2", "Answer", {"text": "fork"})
    assert "a: fork" in str((await client.wait("r2", timeout=60)).result)
    assert (await client.get("r")).idle


async def test_flows_show_their_actions(client: Client) -> None:
    ended = await client.start("flow", {"name": "x", "items": [1, 2]}, run_id="f", wait=20)
    assert (ended.kind, ended.status) == ("flow", "completed")
    actions = {action.name: action for action in await client.actions("f")}
    assert actions["Greet"].outputs == "hello x"
    assert actions["Repeat"].status == "Succeeded"
    assert list(await client.loops("f")) == []


async def test_a_stream_is_read_to_its_end_and_from_a_cursor(client: Client) -> None:
    await client.start("counting", {"events": 50}, run_id="r")
    events = [event async for event in client.stream("r", internal=True)]
    assert [event.seq for event in events] == list(range(len(events)))
    assert events[-1].terminal
    numbers = [event.value["number"] for event in events if event.type == "Number"]
    assert numbers == list(range(50))
    rest = [event.seq async for event in client.stream("r", after=events[-3].seq, internal=True)]
    assert rest == [events[-2].seq, events[-1].seq]
    assert [event async for event in client.stream("r", after=events[-1].seq)] == []
    only = [event.type async for event in client.stream("r", types=["Number"])]
    assert only == ["Number"] * 50


async def test_health(client: Client) -> None:
    health = await client.health()
    assert health.ready
    assert health.reasons == []


async def test_the_sync_face(client: Client) -> None:
    def work(url: str) -> list[int]:
        with loom.SyncClient(url) as sync:
            sync.start("counting", {"events": 3}, run_id="s")
            assert sync.wait("s", timeout=60).status == "completed"
            return [event.value["number"] for event in sync.stream("s", types=["Number"])]

    assert await asyncio.to_thread(work, client._exchange.url) == [0, 1, 2]


class Lossy(httpx2.AsyncHTTPTransport):
    """A network that loses answers: of each request the first one, and of streams everything behind a few bytes."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._seen: set[str] = set()
        self.lost = 0
        self.streams = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if request.url.path.endswith("/stream"):
            self.streams += 1
            response.stream = Cut(response.stream, self._chance.randrange(20, 2_000))
            return response
        key = request.headers.get("idempotency-key")
        if key is not None and key not in self._seen:
            self._seen.add(key)
            self.lost += 1
            await response.aread()
            await response.aclose()
            raise httpx2.ReadError("lost")
        return response


class Cut(httpx2.AsyncByteStream):
    def __init__(self, whole: Any, size: int) -> None:
        self._whole = whole
        self._left = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._whole:
            yield piece[: self._left]
            self._left -= len(piece)
            if self._left <= 0:
                raise httpx2.ReadError("cut")

    async def aclose(self) -> None:
        await self._whole.aclose()


async def test_lost_answers_do_nothing_twice(client: Client) -> None:
    lossy = Lossy(random.Random(1))
    async with Client(client._exchange.url, transport=lossy, retries=QUICK) as unlucky:
        run = await unlucky.start("asking", {"topic": "a"})
        await idle(client, run.run_id)
        delivery = await unlucky.send_event(run.run_id, Answer(text="once"))
        ended = await unlucky.wait(run.run_id, timeout=60)
    assert lossy.lost == 2
    assert delivery.delivered == "waiter"
    assert "a: once" in str(ended.result)
    assert [each.run_id async for each in client.list()] == [run.run_id]


@pytest.mark.parametrize("seed", range(5))
async def test_a_stream_over_a_bad_line_has_no_gap_and_no_repeat(client: Client, seed: int) -> None:
    await client.start("counting", {"events": 200}, run_id="r")
    patient = Retries(stream_attempts=1000, first_delay=0.0, max_delay=0.0)
    lossy = Lossy(random.Random(seed))
    async with Client(client._exchange.url, transport=lossy, retries=patient) as unlucky:
        events = [event async for event in unlucky.stream("r")]
    assert lossy.streams > 5
    assert [event.value["number"] for event in events if event.type == "Number"] == list(range(200))
    assert events[-1].terminal


async def test_a_stream_goes_on_at_the_next_server(tmp_path: Any) -> None:
    """The server stops, and another one on the same port and store takes over: the reader notices nothing."""
    store = f"sqlite:///{tmp_path}/runs.db"
    workflow = Asking(timeout=None)
    seen: list[StreamEvent] = []
    asked = asyncio.Event()

    async def follow(client: Client) -> None:
        async for event in client.stream("r", internal=True):
            seen.append(event)
            if event.type == "WorkflowIdleEvent":
                asked.set()

    async with loom.connect(store) as runtime:
        runtime.register(workflow, name="asking")
        async with served(runtime) as url:
            client = Client(url, retries=Retries(stream_attempts=100, first_delay=0.05, max_delay=0.1))
            await client.start("asking", {"topic": "a"}, run_id="r")
            reading = asyncio.create_task(follow(client))
            await asyncio.wait_for(asked.wait(), 60)
    async with loom.connect(store) as runtime:
        runtime.register(workflow, name="asking")
        async with served(runtime, port=httpx2.URL(url).port or 0):
            await client.send_event("r", Answer(text="late"))
            await asyncio.wait_for(reading, 60)
            await client.close()
    assert [event.seq for event in seen] == list(range(len(seen)))
    assert seen[-1].terminal


async def test_keys(tmp_path: Any) -> None:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(Counting(), name="counting")
        key, stored = new_key(("read",))
        await Keys(runtime.store).add(stored)
        async with served(runtime) as url, Client(url, key) as reader, Client(url) as nobody:
            assert [run async for run in reader.list()] == []
            with pytest.raises(ClientError) as caught:
                await reader.start("counting", {"events": 1})
            assert caught.value.code == "forbidden"
            with pytest.raises(ClientError) as caught:
                await nobody.get("r")
            assert caught.value.code == "unauthenticated"
            assert (await nobody.health()).ready


async def test_many_streams_leave_room_for_requests(client: Client) -> None:
    await client.start("asking", {"topic": "a"}, run_id="r")
    await idle(client, "r")

    async def follow() -> list[int]:
        return [event.seq async for event in client.stream("r")]

    async with asyncio.timeout(60):
        readers = [asyncio.create_task(follow()) for _ in range(95)]
        await client.send_event("r", Answer(text="all"))
        assert (await client.wait("r")).status == "completed"
        first, *others = await asyncio.gather(*readers)
    assert all(other == first for other in others)


# -- schedules and flows as endpoints ---------------------------------------------------------------------------------


async def test_schedules_are_made_paused_and_ended(client: Client) -> None:
    made = await client.schedule(
        "nightly", "asking", cron="0 3 * * *", input={"topic": "x"}, tags={"a": "b"}, paused=True
    )
    assert (made.workflow, made.input, made.tags, made.paused) == ("asking", {"topic": "x"}, {"a": "b"}, True)
    assert (await client.resume_schedule("nightly")).paused is False
    assert (await client.pause_schedule("nightly")).paused is True
    assert list(await client.schedules()) == [await client.get_schedule("nightly")]
    await client.delete_schedule("nightly")
    with pytest.raises(ClientError) as caught:
        await client.get_schedule("nightly")
    assert caught.value.code == "schedule-not-found"


async def test_a_flow_answers_a_request(tmp_path: Any) -> None:
    trigger = {"type": "Request", "inputs": {"relativePath": "/orders/{id}"}}
    body = {"id": "@triggerOutputs()['relativePathParameters']['id']", "n": "@triggerBody()?['n']"}
    answering = {"Answer": {"type": "Response", "inputs": {"statusCode": 404, "body": body}}}
    splitting = {"One": {"type": "Compose", "inputs": "@triggerBody()"}}
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(loom.load({"definition": {"triggers": {"m": trigger}, "actions": answering}}), name="answers")
        split = {"m": {"type": "Request", "splitOn": "@triggerBody()"}}
        runtime.register(loom.load({"definition": {"triggers": split, "actions": splitting}}), name="splits")
        async with served(runtime) as url, Client(url, retries=QUICK) as client:
            found = await client.invoke("answers", {"n": 1}, path="/orders/a b")
            assert (found.status, found.json(), found.runs) == (404, {"id": "a b", "n": 1}, [])
            assert found.run_id is not None
            assert (await client.get(found.run_id)).workflow == "answers"
            runs = (await client.invoke("splits", [1, 2])).runs
            assert [run.workflow for run in runs] == ["splits", "splits"]
            [run] = (await client.invoke("answers", path="orders/1", wait=0)).runs
            assert run.workflow == "answers"
            with pytest.raises(ClientError) as caught:
                await client.invoke("nobody")
            assert caught.value.code == "definition-not-found"

"""Actors: private ones in their run's store, those with an id as runs of their own."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from action_host import ActionHost, Crash, call_of
from msgspec.structs import replace

from loom import connect
from loom.effects.actions.actors import ActorWorkflow, store_key
from loom.effects.actions.events import ActorMessage, ActorReply
from loom.effects.actions.handlers import ActionContext, ActionHandlers
from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy

_numbers = count()


def told(given: Any = None, actor: str = "counter", **more: Any) -> Any:
    return replace(call_of("actor", {"actorType": actor, "input": given, **more}), key=f"A#{next(_numbers)}")


@pytest.fixture
def host() -> ActionHost:
    host = ActionHost()

    @host.handlers.actor("counter")
    class Counter:
        def __init__(self) -> None:
            self.total = 0
            self.seen: list[int] = []
            self._cache = object()

        def receive(self, given: int) -> int:
            self.total += given
            self.seen.append(given)
            if given < 0:
                raise ValueError("negative")
            return self.total

    return host


async def test_attributes_are_kept_between_messages(host: ActionHost) -> None:
    assert [(await host.run(told(n))).outputs for n in (1, 2, 3)] == [1, 3, 6]
    kept = await host.store.get(store_key("counter"))
    assert kept["state"] == {"total": 6, "seen": [1, 2, 3]}


async def test_a_failed_message_changes_nothing(host: ActionHost) -> None:
    await host.run(told(5))
    outcome = await host.run(told(-1))
    assert (outcome.status, outcome.code) == ("Failed", "ValueError")
    assert (await host.run(told(1))).outputs == 6


async def test_a_crash_after_the_edit_does_not_apply_the_message_twice(host: ActionHost) -> None:
    await host.run(told(1))
    host.crash_after = 1
    with pytest.raises(Crash):
        await host.run(told(10))
    assert (await host.resume()).outputs == 11
    assert (await host.run(told(100))).outputs == 111
    assert host.edits == 3


async def test_functions_may_ask_for_their_state(host: ActionHost) -> None:
    @host.handlers.actor("notes.v1")
    async def notes(given: str, state: dict[str, Any], ctx: ActionContext) -> list[str]:
        state.setdefault("notes", []).append(f"{ctx.action}:{given}")
        return list(state["notes"])

    @host.handlers.actor("stateless")
    def stateless(given: Any) -> Any:
        return given

    assert (await host.run(told("a", "notes.v1"))).outputs == ["A:a"]
    assert (await host.run(told("b", "notes.v1"))).outputs == ["A:a", "A:b"]
    assert (await host.run(told("c", "stateless"))).outputs == "c"


async def test_a_handler_cannot_change_the_store_behind_its_back(host: ActionHost) -> None:
    @host.handlers.actor("wild")
    def wild(given: Any, state: dict[str, Any]) -> None:
        state.setdefault("list", []).append(given)
        if given == "bad":
            raise ValueError

    await host.run(told("good", "wild"))
    await host.run(told("bad", "wild"))
    assert (await host.store.get(store_key("wild")))["state"] == {"list": ["good"]}


async def test_callable_classes_and_those_that_take_nothing(host: ActionHost) -> None:
    @host.handlers.actor("calls")
    class Calls:
        async def __call__(self, given: Any) -> Any:
            return [given]

    @host.handlers.actor("deaf")
    class Deaf:
        pass

    assert (await host.run(told(1, "calls"))).outputs == [1]
    assert "receive(self, input)" in (await host.run(told(1, "deaf"))).message


async def test_actors_that_are_not_there(host: ActionHost) -> None:
    outcome = await host.run(told(1, "missing"))
    assert (outcome.status, outcome.code) == ("Failed", "ActorNotFound")
    assert "@loom.actor('missing')" in outcome.message
    outcome = await host.run(told(1, actorId="7"))
    assert (outcome.status, outcome.code) == ("Failed", "ActorNotAvailable")
    assert "loom.connect" in outcome.message
    assert (await host.run(told(1, actorId=""))).code == "InvalidInputs"


async def test_state_that_is_no_data_fails_the_message(host: ActionHost) -> None:
    @host.handlers.actor("odd")
    class Odd:
        def receive(self, _: Any) -> None:
            self.connection = object()

    outcome = await host.run(told(1, "odd"))
    assert outcome.code == "NotPlainData"
    assert "connection" in outcome.message


# -- runs of their own ------------------------------------------------------------------------------------------------


class Port:
    """Actors in memory: their runs are real ones, and replies reach the host's inbox."""

    def __init__(self, host: ActionHost, handlers: ActionHandlers) -> None:
        self.host = host
        self.handlers = handlers
        self.runs: dict[str, Any] = {}
        self.told: list[str] = []
        self.replied: list[ActorReply] = []
        self.answered = asyncio.Event()

    async def tell(self, run_id: str, message: ActorMessage) -> None:
        self.told.append(message.key)
        if run_id not in self.runs:
            self.runs[run_id] = ActorWorkflow(self, self.handlers).run()
        self.answered.clear()
        self.runs[run_id].ctx.send_event(message)
        await self.answered.wait()

    async def reply(self, run_id: str, reply: ActorReply) -> None:
        assert run_id == "run-1"
        self.replied.append(reply)
        self.host.inbox.append(reply)
        self.answered.set()

    async def close(self) -> None:
        for run in self.runs.values():
            await run.cancel_run()


async def with_port(host: ActionHost) -> Port:
    port = Port(host, host.handlers)
    host.services = Services(host.handlers, HttpPolicy(), port)
    return port


async def test_actors_with_an_id_are_runs_with_their_own_state(host: ActionHost) -> None:
    port = await with_port(host)
    results = [(await host.run(told(n, actorId=who))).outputs for n, who in ((1, "a"), (10, "b"), (2, "a"))]
    assert results == [1, 10, 3]
    assert set(port.runs) == {"actor:counter:a", "actor:counter:b"}
    failed = await host.run(told(-1, actorId="a"))
    assert (failed.status, failed.code, failed.error_type) == ("Failed", "ValueError", "valueerror")
    assert (await host.run(told(1, actorId="a"))).outputs == 4
    await port.close()


async def test_a_message_that_comes_twice_is_taken_once(host: ActionHost) -> None:
    port = await with_port(host)
    message = ActorMessage(key="k", actor_type="counter", reply_to="run-1", input=5)
    for _ in range(2):
        await port.tell("actor:counter:a", message)
    assert [reply.outputs for reply in port.replied] == [5, 5]
    await port.close()


async def test_a_caller_that_crashes_in_its_wait_does_not_ask_again(host: ActionHost) -> None:
    port = await with_port(host)
    host.crash_after = 1
    with pytest.raises(Crash):
        await host.run(told(5, actorId="a"))
    assert (await host.resume()).outputs == 5
    assert len(port.told) == 1
    await port.close()


async def test_actors_that_do_not_reply_in_time(host: ActionHost) -> None:
    class Silent:
        async def tell(self, run_id: str, message: ActorMessage) -> None: ...

        async def reply(self, run_id: str, reply: ActorReply) -> None: ...

    host.services = Services(host.handlers, None, Silent())
    call = call_of("actor", {"actorType": "counter", "actorId": 7}, timeout_s=30.0)
    assert (await host.run(call)).status == "TimedOut"
    assert host.waits[0].timeout_s == 30.0


async def test_a_crash_before_the_reply_repeats_the_reply_only(host: ActionHost, tmp_path: Path) -> None:
    taken: list[int] = []

    @host.handlers.actor("sum")
    def add(given: int, state: dict[str, int]) -> int:
        taken.append(given)
        state["sum"] = state.get("sum", 0) + given
        return state["sum"]

    class Post:
        def __init__(self, works: bool) -> None:
            self.works = works
            self.replies: asyncio.Queue[Any] = asyncio.Queue()

        async def tell(self, run_id: str, message: ActorMessage) -> None: ...

        async def reply(self, run_id: str, reply: ActorReply) -> None:
            self.replies.put_nowait(reply.outputs)
            if not self.works:
                await asyncio.Event().wait()

    async def life(works: bool, *given: int) -> list[Any]:
        post = Post(works)
        async with connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
            runtime.register(ActorWorkflow(post, host.handlers), name="actor")
            await runtime.start("actor", {}, run_id="actor:sum:a")
            for number in given:
                message = ActorMessage(key=f"k{number}", actor_type="sum", reply_to="r", input=number)
                await runtime.send_event("actor:sum:a", message, event_id=message.key)
            expected = 1 if not works else 2
            return [await asyncio.wait_for(post.replies.get(), 60) for _ in range(expected)]

    assert await life(False, 5) == [5]
    assert await life(True, 5, 7) == [5, 12]
    assert taken == [5, 7]

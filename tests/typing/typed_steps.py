"""What type checkers know of workflows, handlers, children and test results. It is checked, and never run."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, assert_type

from pydantic import Field
from typing_extensions import TypeVar

import loom
from loom import Context, Event, StartEvent, StopEvent, SyncHandler, Workflow, WorkflowHandler, step
from loom.testing import WorkflowTestResult, WorkflowTestRunner


class Question(StartEvent):
    text: str
    items: list[str] = Field(default_factory=list)
    """A field may have the name of a method of the mapping face."""


class Answer(StopEvent):
    words: list[str]


class Typed(Workflow[Question, Answer]):
    @step
    async def answer(self, ev: Question) -> Answer:
        assert_type(ev.items, list[str])
        return Answer(words=ev.text.split())


class Plain(Workflow[Question, StopEvent]):
    """Its result is what its `StopEvent` holds, which may be anything."""

    @step
    async def answer(self, ev: Question) -> StopEvent:
        return StopEvent(result=ev.text)


class Bare(Workflow):
    @step
    async def answer(self, ev: StartEvent) -> StopEvent:
        assert_type(ev.get("text"), Any)
        return StopEvent(result=ev["text"])


AnswerT = TypeVar("AnswerT", bound=StopEvent)


class Made(Workflow[Question, AnswerT], Generic[AnswerT]):
    """A workflow that has a parameter of its own."""


class Mine(Made[Answer]):
    """A workflow that gives that parameter."""


async def handlers(typed: Typed, plain: Plain, bare: Bare, mine: Mine) -> None:
    handler = typed.run(text="a b")
    assert_type(handler, WorkflowHandler[Answer])
    assert_type(await handler, Answer)
    assert_type(await handler.stop_event_result(), Answer)
    assert_type(handler.get_stop_event(), StopEvent | None)
    assert_type(await typed.run(start_event=Question(text="a")), Answer)
    assert_type(await plain.run(text="a"), Any)
    assert_type(await plain.run(text="a").stop_event_result(), StopEvent)
    assert_type(await bare.run(text="a"), Any)
    assert_type(await mine.run(text="a"), Answer)
    assert_type([event async for event in handler.stream_events()], list[Event])
    typed.run(start_event=StartEvent())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def awaited_in_other_ways(typed: Typed, plain: Plain, bare: Bare) -> None:
    assert_type(await asyncio.wait_for(typed.run(text="a"), 1), Answer)
    assert_type(await asyncio.wait_for(plain.run(text="a"), 1), Any)
    first, second = await asyncio.gather(typed.run(text="a"), bare.run(text="a"))
    assert_type(first, Answer)
    assert_type(second, Any)


def anything(workflow: Workflow, handler: WorkflowHandler) -> None:
    """Take a workflow and a handler, with whatever events."""


def without_parameters(typed: Typed, plain: Plain, bare: Bare) -> None:
    anything(typed, typed.run(text="a"))
    anything(plain, plain.run(text="a"))
    anything(bare, bare.run(text="a"))


def without_await(typed: Typed, plain: Plain, bare: Bare) -> None:
    assert_type(typed.run_sync(text="a"), Answer)
    assert_type(plain.run_sync(text="a"), Any)
    assert_type(bare.run_sync(text="a"), Any)


def classes(typed: Typed) -> None:
    assert_type(typed.start_event_class, type[Question])
    assert_type(typed.stop_event_class, type[Answer])


async def children(ctx: Context, typed: Typed, plain: Plain, bare: Bare) -> None:
    assert_type(await ctx.run_child(typed, text="a"), Answer)
    assert_type(await ctx.run_child(typed, start_event=Question(text="a")), Answer)
    assert_type(await ctx.run_child(plain, text="a"), Any)
    assert_type(await ctx.run_child(bare, text="a"), Any)
    assert_type(await ctx.run_child("typed", text="a"), Any)
    await ctx.run_child(typed, start_event=StartEvent())  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def in_a_step(ctx: Context, text: str) -> None:
    assert_type(await ctx.once("length", lambda: len(text)), int)
    assert_type(await ctx.once("sleep", lambda: asyncio.sleep(1, text)), str)


async def results_of_tests(typed: Typed, plain: Plain, bare: Bare) -> None:
    done = await WorkflowTestRunner(typed).run(Question(text="a"))
    assert_type(done, WorkflowTestResult[Answer])
    assert_type(done.result, Answer)
    assert_type((await WorkflowTestRunner(plain).run(Question(text="a"))).result, Any)
    assert_type((await WorkflowTestRunner(bare).run()).result, Any)


async def in_a_store(typed: Typed) -> None:
    async with loom.connect("sqlite:///runs.db", idle_timeout="5s", retention=None) as runtime:
        runtime.register(typed, name="typed")
        assert_type(await runtime.start("typed", {"text": "a"}), WorkflowHandler)
        handler: WorkflowHandler[Answer] = await runtime.start("typed", {"text": "a"})
        assert_type(await handler, Answer)
    loom.connect(idle_timout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    loom.connect(max_in_memory="many")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def in_a_store_without_await() -> None:
    with loom.connect_sync("sqlite:///runs.db") as runtime:
        handler: SyncHandler[Answer] = runtime.start("typed", {"text": "a"})
        assert_type(handler.result(timeout=5), Answer)
        assert_type(handler.stop_event_result(), Answer)
        plain: SyncHandler[StopEvent] = runtime.start("plain", {"text": "a"})
        assert_type(plain.result(), Any)
        assert_type(runtime.start("bare").result(), Any)

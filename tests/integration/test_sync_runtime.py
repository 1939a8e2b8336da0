"""Code that is not asynchronous: `loom.connect_sync` on every runtime, and `run_sync`."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import fresh_database_url
from temporal_server import fresh_temporal_url

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.worker import WorkerRuntime
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from loom.steps.handler import WorkflowHandler


class Step(Event):
    number: int


class Approval(HumanResponseEvent):
    approved: bool


class Order(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Step(number=1))
        answer = await ctx.wait_for_event(Approval, timeout=None)
        if not answer.approved:
            raise LookupError("refused")
        return StopEvent(result=f"shipped {ev.get('item')}")


class Plain(Workflow):
    @step
    def double(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(2 * ev.number, threading.current_thread().name))


class Endless(Workflow):
    begun: threading.Event
    ended: threading.Event

    @step
    async def go(self, _ev: StartEvent) -> StopEvent:
        self.begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            self.ended.set()
        return StopEvent()


@pytest.fixture(params=["memory", "sqlite", "postgres", "temporal"])
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[loom.SyncRuntime]:
    urls = {
        "memory": lambda: "memory://",
        "sqlite": lambda: f"sqlite:///{tmp_path / 'runs.db'}",
        "postgres": fresh_database_url,
        "temporal": fresh_temporal_url,
    }
    with loom.connect_sync(urls[request.param]()) as opened:
        opened.register(Order(timeout=None), name="order")
        yield opened


def until_idle(runtime: loom.SyncRuntime, run_id: str) -> loom.RunInfo:
    for _ in range(3000):
        info = runtime.get(run_id)
        if info.idle_since is not None:
            return info
        time.sleep(0.01)
    raise AssertionError(info)


def test_the_calls_of_the_runtime_without_await(runtime: loom.SyncRuntime) -> None:
    handler = runtime.start("order", {"item": "linen"}, run_id="order-1")
    assert until_idle(runtime, "order-1").active_waiters
    assert handler.is_running
    assert handler.is_idle
    with pytest.raises(TimeoutError):
        handler.result(timeout=0.01)
    events = handler.stream_events()
    assert next(events) == Step(number=1)
    assert runtime.send_event("order-1", Approval(approved=True), event_id="once")
    assert [type(event) for event in events] == [StopEvent]
    assert handler.result() == "shipped linen"
    assert handler.is_done()
    assert not handler.is_running

    assert [info.run_id for info in runtime.list(status="completed")] == ["order-1"]
    history = list(runtime.history("order-1"))
    assert [entry.seq for entry in history] == list(range(len(history)))
    assert runtime.handler("order-1").result() == "shipped linen"
    with pytest.raises(loom.RunNotFound):
        runtime.handler("order-2")


def test_failures_and_cancels(runtime: loom.SyncRuntime) -> None:
    failing, cancelled = runtime.start("order"), runtime.start("order")
    failing.send_event(Approval(approved=False))
    with pytest.raises(LookupError, match="refused"):
        failing.result()
    cancelled.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        cancelled.result()
    assert runtime.get(cancelled.run_id).status == "cancelled"


def test_it_has_every_call_of_the_runtime() -> None:
    own = {  # what only the engine, the server and the command line use
        "active_run", "adopt", "check_heads", "check_keys", "check_place", "commits_work", "codec_for", "codec_of",
        "describe_worker", "downtime", "field_reader", "has_event", "hindrances", "news", "row", "saw",
        "short_of_memory", "signed_import", "signed_start", "start_run", "store_fork", "track_workflow", "watch_always",
        "work_for", "work_on", "worker_name",
    }  # fmt: skip
    calls = {name for name, _ in inspect.getmembers(WorkerRuntime, callable) if not name.startswith("_")} - own
    sync = {name for name, _ in inspect.getmembers(loom.SyncRuntime, callable) if not name.startswith("_")}
    assert sync == calls | {"open"}
    for name in calls - {"register", "close"}:
        theirs = inspect.signature(getattr(WorkerRuntime, name)).parameters
        assert inspect.signature(getattr(loom.SyncRuntime, name)).parameters == theirs, name
    deprecated = {"cancel", "cancelled", "done", "exception"}
    handler = {name for name, _ in inspect.getmembers(WorkflowHandler, callable) if not name.startswith("_")}
    sync = {name for name, _ in inspect.getmembers(loom.SyncHandler, callable) if not name.startswith("_")}
    assert sync == (handler - deprecated) | {"result"}


async def test_within_a_running_loop_as_in_a_notebook(tmp_path: Path) -> None:
    assert Plain().run_sync(number=4)[0] == 8
    with loom.connect_sync(f"sqlite:///{tmp_path / 'runs.db'}") as runtime:
        runtime.register(Plain(), name="plain")
        assert runtime.start("plain", {"number": 5}).result()[0] == 10


def test_run_sync_gives_what_awaiting_gives() -> None:
    result, thread = Plain().run_sync(start_event=StartEvent(number=3))
    assert result == 6
    assert thread != threading.current_thread().name
    flow = loom.load({"say": {"type": "compose", "inputs": "@concat('hello ', triggerBody().name)"}})
    assert flow.run_sync({"name": "Ada"}).actions["say"].outputs == "hello Ada"

    class Failing(Workflow):
        @step
        async def fail(self, _ev: StartEvent) -> StopEvent:
            raise LookupError("no")

    with pytest.raises(LookupError):
        Failing().run_sync()


def test_many_threads_run_at_once() -> None:
    results: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: results.append(Plain().run_sync(number=n)[0])) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_an_interrupt_cancels_the_run() -> None:
    workflow = Endless(timeout=None)
    workflow.begun, workflow.ended = threading.Event(), threading.Event()

    def interrupt() -> None:
        workflow.begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    # A process that a shell has started in the background ignores the signal, and so do its tests.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            workflow.run_sync()
    finally:
        signal.signal(signal.SIGINT, before)
    assert workflow.ended.wait(60)


def test_closing_ends_the_thread_and_what_comes_later() -> None:
    before = set(threading.enumerate())
    runtime = loom.connect_sync()
    with pytest.raises(RuntimeError, match="not open"):
        runtime.get("a")
    with runtime as opened:
        opened.register(Order(timeout=None), name="order")
        waiting = opened.start("order")
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                waiting.result()
            except BaseException as error:  # noqa: BLE001 - whatever it is told
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
    thread.join(60)
    assert "closed" in str(failures[0])
    runtime.close()
    assert set(threading.enumerate()) <= before  # threads of other tests may have ended
    with pytest.raises(RuntimeError, match="closed"):
        runtime.get("a")


def _in_a_child(runtime: loom.SyncRuntime, answers: Any) -> None:
    try:
        runtime.get("a")
    except RuntimeError as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_is_told_and_does_not_hang() -> None:
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    with loom.connect_sync() as runtime:
        child = forking.Process(target=_in_a_child, args=(runtime, answers))
        child.start()
        assert "forked" in answers.get(timeout=60)
        child.join()


async def test_a_runtime_on_another_loop_is_refused(tmp_path: Path) -> None:
    async with loom.connect(f"sqlite:///{tmp_path / 'runs.db'}") as runtime:
        workflow = Plain(runtime=runtime)
        with pytest.raises(WorkflowRuntimeError, match="connect_sync"):
            await asyncio.to_thread(workflow.run_sync, number=1)

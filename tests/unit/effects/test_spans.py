"""Spans, seen by a handler. Where the real package is not installed, a stand-in with its face takes its place."""

from __future__ import annotations

import asyncio
import sys
from contextvars import ContextVar
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.effects import spans
from loom.steps.errors import WorkflowCancelledByUser
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Log:
    """A span handler that remembers."""

    def __init__(self) -> None:
        self.entered: dict[str, tuple[str | None, Any, dict[str, Any]]] = {}
        self.exited: dict[str, Any] = {}
        self.dropped: dict[str, BaseException | None] = {}

    def span_enter(self, id_: str, bound_args: Any, instance: Any, parent_id: str | None, tags: Any) -> None:
        self.entered[id_] = (parent_id, bound_args, tags)

    def span_exit(self, id_: str, bound_args: Any, instance: Any, result: Any) -> None:
        self.exited[id_] = result

    def span_drop(self, id_: str, bound_args: Any, instance: Any, err: BaseException | None) -> None:
        self.dropped[id_] = err

    def named(self, name: str) -> list[str]:
        return [id_ for id_ in self.entered if id_.rpartition("-")[0].startswith(name) or id_.startswith(f"{name}-")]


class NullSpanHandler:
    """Does nothing, as the package's own of that name."""


class StandIn:
    """A dispatcher with the methods that are used of the real one."""

    def __init__(self, parent: StandIn | None) -> None:
        self.parent = parent
        self.propagate = parent is not None
        self.span_handlers: list[Any] = [NullSpanHandler()]
        self.event_handlers: list[Any] = []
        self.events: list[Any] = []

    def _send(self, method: str, **values: Any) -> None:
        dispatcher: StandIn | None = self
        while dispatcher is not None:
            for handler in dispatcher.span_handlers:
                if not isinstance(handler, NullSpanHandler):
                    getattr(handler, method)(**values)
            dispatcher = dispatcher.parent

    def span_enter(self, **values: Any) -> None:
        self._send("span_enter", **values)

    def span_exit(self, **values: Any) -> None:
        self._send("span_exit", **values)

    def span_drop(self, **values: Any) -> None:
        self._send("span_drop", **values)

    def event(self, event: Any) -> None:
        self.events.append(event)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The package, loaded, with nobody listening."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "llama_index_instrumentation"]:
        monkeypatch.delitem(sys.modules, name)
    root = StandIn(None)
    ours = StandIn(root)
    package = ModuleType("llama_index_instrumentation")
    package.__dict__["get_dispatcher"] = lambda name="root": ours if name.startswith("workflows") else root
    parts: dict[str, dict[str, Any]] = {
        "span": {"active_span_id": ContextVar("active_span_id", default=None)},
        "dispatcher": {"active_instrument_tags": ContextVar("instrument_tags", default=MappingProxyType({}))},
        "events.span": {"SpanDropEvent": SimpleNamespace},
    }
    monkeypatch.setitem(sys.modules, package.__name__, package)
    for name, content in parts.items():
        module = ModuleType(f"{package.__name__}.{name}")
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return root


@pytest.fixture
def log(root: StandIn) -> Log:
    found = Log()
    root.span_handlers.append(found)
    return found


class Middle(Event):
    number: int


class Two(Workflow):
    @step
    async def first(self, ev: StartEvent) -> Middle:
        await asyncio.sleep(0)
        return Middle(number=1)

    @step
    def second(self, ev: Middle) -> StopEvent:
        return StopEvent(result=ev.number)


def test_nobody_listens_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "llama_index_instrumentation", raising=False)
    assert not spans.are_wanted()


async def test_package_is_not_loaded_by_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "llama_index_instrumentation", raising=False)
    await Two().run()
    assert "llama_index_instrumentation" not in sys.modules


def test_nobody_listens_until_a_handler_is_added(root: StandIn) -> None:
    assert not spans.are_wanted()
    root.span_handlers.append(Log())
    assert spans.are_wanted()


async def test_span_per_run_and_per_execution(log: Log) -> None:
    assert await Two().run() == 1
    [run], [first], [second] = (log.named(name) for name in ("Two.run", "Two.first", "Two.second"))
    assert log.entered[run][0] is None
    assert log.entered[first][0] == run
    assert log.entered[second][0] == run
    assert log.exited[first] == Middle(number=1)
    assert log.exited[run].result == 1
    assert log.entered[second][1].arguments == {"ev": Middle(number=1)}
    assert log.entered[second][2]["llamaindex.step.input_event"] == "Middle"
    assert not log.dropped


async def test_span_of_the_caller_is_the_parent(log: Log) -> None:
    active = sys.modules["llama_index_instrumentation.span"].active_span_id
    active.set("caller")
    await Two().run()
    assert log.entered[log.named("Two.run")[0]][0] == "caller"
    assert active.get() == "caller"


class Failing(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no")


async def test_failures_are_dropped_spans(log: Log) -> None:
    with pytest.raises(ValueError, match="no"):
        await Failing().run()
    assert len(log.named("Failing.fail")) == 2, "each attempt is an execution"
    assert set(log.dropped) == {*log.named("Failing.fail"), *log.named("Failing.run")}
    assert all(isinstance(error, ValueError) for error in log.dropped.values())


class Waiting(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("text"))


async def test_waiting_is_one_span_and_no_error(log: Log) -> None:
    handler = Waiting().run()
    async for event in handler.stream_events(expose_internal=True):
        if type(event).__name__ == "WorkflowIdleEvent":
            break
    assert not log.exited
    handler.ctx.send_event(HumanResponseEvent(text="hi"))
    assert await handler == "hi"
    assert len(log.named("Waiting.wait")) == 1
    assert len(log.exited) == 2
    assert not log.dropped


async def test_cancelling_is_no_error(log: Log, until_idle: Any) -> None:
    handler = Waiting().run()
    await until_idle(handler)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert len(log.exited) == 2
    assert set(log.exited.values()) == {None}
    assert not log.dropped


async def test_the_real_package_sees_the_same() -> None:
    package = pytest.importorskip("llama_index_instrumentation")
    handlers = pytest.importorskip("llama_index_instrumentation.span_handlers")
    handler = handlers.SimpleSpanHandler()
    root = package.get_dispatcher()
    root.add_span_handler(handler)
    try:
        assert await Two().run() == 1
        with pytest.raises(ValueError, match="no"):
            await Failing().run()
    finally:
        root.span_handlers.remove(handler)
    completed = {span.id_.partition("-")[0]: span.parent_id for span in handler.completed_spans}
    assert set(completed) == {"Two.run", "Two.first", "Two.second"}
    assert completed["Two.run"] is None
    assert str(completed["Two.first"]).startswith("Two.run-")
    assert sorted(span.id_.partition("-")[0] for span in handler.dropped_spans) == [
        "Failing.fail",
        "Failing.fail",
        "Failing.run",
    ]
    assert not spans.are_wanted()


async def test_secure_actions_show_neither_inputs_nor_outputs(root: StandIn) -> None:
    from loom.effects.actions.binding import ActionBinding
    from loom.flows.calls import ActionCall

    log = Log()
    root.span_handlers.append(log)
    for secure in (False, True):
        call = ActionCall("A", "nobody", {"token": "s3cret"}, secure=secure)
        await spans.around_step(SimpleNamespace(), ActionBinding("A"), {"call": call})  # type: ignore[arg-type]
    shown, hidden = log.named("ActionBinding.perform")
    assert "s3cret" in str(log.entered[shown])
    assert "s3cret" not in str(log.entered[hidden])
    assert (log.exited[shown].code, log.exited[hidden]) == ("ActionTypeNotSupported", None)

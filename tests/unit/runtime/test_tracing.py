"""Spans of runs, as the SDK of OpenTelemetry exports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import StatusCode

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.tracing import find_tracing, ids_of
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.store.memory import MemoryDatabase, MemoryStore


class Word(Event):
    text: str


class Answer(Event):
    text: str


class Worker(Workflow):
    """Works in two steps, of which one may fail, wait or make a span of its own."""

    failures = 0

    @step
    async def first(self, ctx: Context, ev: StartEvent) -> Word:
        with trace.get_tracer("user").start_as_current_span("of the user"):
            await asyncio.sleep(0)
        if ev.get("wait", default=False):
            answer = await ctx.wait_for_event(Answer)
            return Word(text=answer.text)
        return Word(text=ev.get("text", default="x"))

    @step(retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2)))
    async def second(self, ev: Word) -> StopEvent:
        if ev.text == "fail" or (ev.text == "once" and not self.failures):
            self.failures += 1
            raise ValueError(f"cannot work on {ev.text}")
        return StopEvent(result=ev.text)


class Above(Workflow):
    """Has a child."""

    @step
    async def only(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child("worker", text="child"))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def working(store: Any = "memory://", **options: Any) -> DurableRuntime:
    runtime = loom.connect(store, **options)
    runtime.register(Worker(), name="worker")
    return runtime


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.001)


async def ended(exporter: InMemorySpanExporter, name: str = "worker") -> dict[str, list[ReadableSpan]]:
    """All spans, once that of the run is there: whoever awaits the run may hear of its end a moment earlier."""
    await until(lambda: name in by_name(exporter))
    return by_name(exporter)


async def test_a_run_is_one_trace_with_a_span_for_each_step(spans: InMemorySpanExporter) -> None:
    async with working() as runtime:
        assert await (await runtime.start("worker", {}, run_id="a")) == "x"
        found = await ended(spans)
    [whole], [first], [second] = found["worker"], found["worker.first"], found["worker.second"]
    assert whole.context is not None
    assert (whole.context.trace_id, whole.context.span_id) == ids_of("a")
    assert whole.parent is None
    for span, name in ((first, "first"), (second, "second")):
        assert trace_of(span) == whole.context.trace_id
        assert span.parent is not None
        assert span.parent.span_id == whole.context.span_id
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes is not None
        about = dict(span.attributes)
        assert isinstance(about.pop("loom.execution"), int)
        assert about == {"loom.run_id": "a", "loom.workflow": "worker", "loom.step": name, "loom.attempt": 1}
    assert whole.attributes == {"loom.run_id": "a", "loom.workflow": "worker", "loom.status": "completed"}
    assert whole.start_time is not None
    assert first.start_time is not None
    assert whole.start_time <= first.start_time


async def test_what_a_body_traces_is_below_its_step(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = trace.get_tracer_provider()
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    async with working() as runtime:
        # Whoever starts the run has a trace of its own, and the run is none of it.
        with provider.get_tracer("web").start_as_current_span("request"):
            handler = await runtime.start("worker", {}, run_id="a")
        await handler
        found = await ended(spans)
    [own], [first], [request] = found["of the user"], found["worker.first"], found["request"]
    assert own.parent is not None
    assert first.context is not None
    assert own.parent.span_id == first.context.span_id
    assert trace_of(own) == ids_of("a")[0] != trace_of(request)


async def test_each_attempt_has_a_span(spans: InMemorySpanExporter) -> None:
    async with working() as runtime:
        assert await (await runtime.start("worker", {"text": "once"}, run_id="a")) == "once"
        found = await ended(spans)
    failed, succeeded = found["worker.second"]
    assert [span.attributes and span.attributes["loom.attempt"] for span in (failed, succeeded)] == [1, 2]
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "ValueError: cannot work on once"
    assert [event.name for event in failed.events] == ["exception"]
    assert succeeded.status.status_code is StatusCode.UNSET


async def test_a_failed_run_has_a_failed_span(spans: InMemorySpanExporter) -> None:
    async with working() as runtime:
        with pytest.raises(ValueError, match="cannot work"):
            await (await runtime.start("worker", {"text": "fail"}, run_id="a"))
        found = await ended(spans)
    [whole] = found["worker"]
    assert whole.status.status_code is StatusCode.ERROR
    assert whole.status.description == "ValueError: cannot work on fail"
    assert whole.attributes is not None
    assert whole.attributes["loom.status"] == "failed"
    assert len(found["worker.second"]) == 2


async def test_a_released_run_stays_one_trace(spans: InMemorySpanExporter) -> None:
    async with working(idle_timeout=0.0) as runtime:
        handler = await runtime.start("worker", {"wait": True}, run_id="a")
        await until(lambda: runtime.metrics.released)
        await runtime.send_event("a", Answer(text="late"))
        assert await handler == "late"
        found = await ended(spans)
    interrupted, repeated = found["worker.first"]
    assert interrupted.attributes is not None
    assert repeated.attributes is not None
    assert interrupted.attributes["loom.interrupted"] is True
    assert interrupted.status.status_code is StatusCode.UNSET
    assert "loom.interrupted" not in repeated.attributes
    assert interrupted.attributes["loom.execution"] == repeated.attributes["loom.execution"]
    ours = [span for name, several in found.items() if name.startswith("worker") for span in several]
    assert {trace_of(span) for span in ours} == {ids_of("a")[0]}


async def test_another_process_adds_to_the_same_trace(spans: InMemorySpanExporter) -> None:
    database = MemoryDatabase()
    async with working(MemoryStore(database)) as runtime:
        await runtime.start("worker", {"wait": True}, run_id="a")
        await until(lambda: runtime.active_runs and runtime.active_runs.runs["a"].is_idle)  # type: ignore[union-attr]
    assert "worker" not in by_name(spans)
    async with working(MemoryStore(database)) as second:
        await second.send_event("a", Answer(text="y"))
        assert await (await second.handler("a")) == "y"
        found = await ended(spans)
    assert len(found["worker.first"]) == 2
    assert {trace_of(span) for span in (*found["worker.first"], *found["worker"])} == {ids_of("a")[0]}


async def test_a_child_run_links_to_its_parent(spans: InMemorySpanExporter) -> None:
    async with working() as runtime:
        runtime.register(Above(), name="above")
        assert await (await runtime.start("above", {}, run_id="up")) == "child"
        found = await ended(spans, "above")
    [child], [above] = found["worker"], found["above"]
    assert above.links == ()
    [link] = child.links
    assert (link.context.trace_id, link.context.span_id) == ids_of("up")
    assert trace_of(child) != trace_of(above)


FLOW_CODEC: dict[str, Any] = {
    "definition": {
        "actions": {
            "Do": {"type": "Activity", "inputs": {"activityType": "traced", "input": "s3cret"}, "runAfter": {}},
        }
    }
}


@pytest.mark.parametrize("secure", [False, True])
async def test_actions_of_flows_have_spans_and_secure_ones_keep_quiet(
    spans: InMemorySpanExporter, secure: bool
) -> None:
    document = {"definition": {"actions": {"Do": dict(FLOW_CODEC["definition"]["actions"]["Do"])}}}
    if secure:
        document["definition"]["actions"]["Do"]["runtimeConfiguration"] = {
            "secureData": {"properties": ["inputs", "outputs"]}
        }

    async def traced(given: Any) -> None:
        raise LookupError(f"not found: {given}")

    async with loom.connect("memory://") as runtime:
        runtime.services.handlers.activities["traced"] = traced
        try:
            runtime.register(loom.load(document), name="flow")
            await (await runtime.start("flow", {}, run_id="a"))
            found = await ended(spans, "flow")
        finally:
            del runtime.services.handlers.activities["traced"]
    [action], [whole] = found["flow.Do"], found["flow"]
    assert action.attributes is not None
    assert action.attributes["loom.step"] == "Do"
    assert action.attributes["loom.action_type"] == "activity"
    assert action.attributes["error.type"] == "LookupError"
    assert action.status.status_code is StatusCode.ERROR
    assert whole.status.status_code is StatusCode.ERROR
    everything = "".join(span.to_json() for span in spans.get_finished_spans())
    assert ("s3cret" in everything) is not secure


async def test_a_run_that_the_sampler_drops_has_no_spans_at_all(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    async with working() as runtime:
        await (await runtime.start("worker", {}))
    assert by_name(spans) == {}


async def test_tracing_can_be_switched_off(spans: InMemorySpanExporter) -> None:
    async with working(tracing=False) as runtime:
        await (await runtime.start("worker", {}))
    assert not [name for name in by_name(spans) if name.startswith("worker")]


async def test_without_a_provider_nothing_is_traced() -> None:
    assert find_tracing() is None
    async with working() as runtime:
        await (await runtime.start("worker", {}))
        assert runtime.active_runs is not None
        assert runtime.active_runs.tracing is None


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def test_a_run_links_to_the_span_of_its_caller(spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer_provider().get_tracer("web")
    async with working() as runtime:
        with tracer.start_as_current_span("request") as span:
            handler = await runtime.start("worker", {}, run_id="a")
        await handler
        with tracer.start_as_current_span("again"):  # the same start, from elsewhere
            await runtime.start("worker", {}, run_id="a")
            with pytest.raises(loom.RunExists):
                await runtime.start("worker", {"text": "other"}, run_id="a")
        found = await ended(spans)
    [whole] = found["worker"]
    context = span.get_span_context()
    assert linked(whole) == [(context.trace_id, context.span_id)]
    assert trace_of(whole) != context.trace_id


async def test_a_start_by_its_event_is_repeated_from_another_span(spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer_provider().get_tracer("web")
    async with working() as runtime:
        for name in ("request", "again"):
            with tracer.start_as_current_span(name):
                await (await runtime.start("worker", StartEvent(text="x"), run_id="a"))
        assert await (await runtime.handler("a")) == "x"


async def test_a_run_links_to_its_caller_from_the_process_that_ends_it(spans: InMemorySpanExporter) -> None:
    database = MemoryDatabase()
    tracer = trace.get_tracer_provider().get_tracer("web")
    async with working(MemoryStore(database)) as runtime:
        with tracer.start_as_current_span("request") as asked:
            await runtime.start("worker", {"wait": True}, run_id="a")
        await until(lambda: runtime.active_runs and runtime.active_runs.runs["a"].is_idle)  # type: ignore[union-attr]
    async with working(MemoryStore(database)) as second:
        with tracer.start_as_current_span("answer") as answered:
            await second.send_event("a", Answer(text="y"), event_id="e1")
        assert await (await second.handler("a")) == "y"
        found = await ended(spans)
    [whole], [received] = found["worker"], found["worker receives Answer"]
    assert linked(whole) == [(asked.get_span_context().trace_id, asked.get_span_context().span_id)]
    assert linked(received) == [(answered.get_span_context().trace_id, answered.get_span_context().span_id)]
    assert received.parent is not None
    assert (received.parent.trace_id, received.parent.span_id) == ids_of("a")
    assert received.attributes == {"loom.run_id": "a", "loom.workflow": "worker", "loom.event": "Answer"}


async def test_a_start_with_an_event_links_both(spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer_provider().get_tracer("web")
    async with working() as runtime:
        with tracer.start_as_current_span("request") as asked:
            handler = await runtime.start_with_event("worker", Answer(text="z"), run_id="a", inputs={"wait": True})
        assert await handler == "z"
        found = await ended(spans)
    [whole], [received] = found["worker"], found["worker receives Answer"]
    own = asked.get_span_context()
    assert linked(whole) == linked(received) == [(own.trace_id, own.span_id)]


async def test_a_fork_does_not_link_to_the_caller_of_its_original(spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer_provider().get_tracer("web")
    async with working() as runtime:
        with tracer.start_as_current_span("request"):
            handler = await runtime.start("worker", {}, run_id="a")
        await handler
        await runtime.fork("a", tick=0, run_id="b")
        assert await (await runtime.handler("b")) == "x"
        await until(lambda: len(by_name(spans).get("worker", [])) == 2)
    runs = {str(span.attributes and span.attributes["loom.run_id"]): span for span in by_name(spans)["worker"]}
    assert len(linked(runs["a"])) == 1
    assert linked(runs["b"]) == []


async def test_a_run_that_a_step_starts_links_to_the_step(spans: InMemorySpanExporter) -> None:
    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await (await runtime.start("worker", {}, run_id="b")))

    async with working() as runtime:
        runtime.register(Asks(), name="asks")
        assert await (await runtime.start("asks", {}, run_id="a")) == "x"
        found = await ended(spans, "asks")
    [whole], [asking] = found["worker"], found["asks.ask"]
    assert asking.context is not None
    assert linked(whole) == [(asking.context.trace_id, asking.context.span_id)]


async def test_nothing_is_stored_without_a_span_or_with_tracing_off(
    spans: InMemorySpanExporter,
) -> None:
    tracer = trace.get_tracer_provider().get_tracer("web")
    async with working() as plain, working(tracing=False) as off:
        await plain.start("worker", {}, run_id="a")
        with tracer.start_as_current_span("request"):
            await off.start("worker", {}, run_id="a")
            await plain.start("worker", {}, run_id="b")
        starts = [await runtime.store.load(run_id) for runtime, run_id in ((plain, "a"), (off, "a"), (plain, "b"))]
    assert [stored is not None and b"traceparent" in stored.start for stored in starts] == [False, False, True]

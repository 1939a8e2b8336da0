"""OpenTelemetry: one trace per run, with a span for the run and one for each execution of a step or an action.

The ids of a run's trace and of its span follow from the run's id. So every process that works on the run adds to the
same trace, also after a crash or a release, and nothing has to be stored. The process that ends the run writes its
span. It is linked to the span of the run's caller, whose `traceparent` is stored with the start. An event that brought
one gets a span of its own, linked to its sender's.

The package is never imported here: a program that has set a provider has imported it, so it is looked for among the
loaded modules. Without a provider a run pays nothing for this.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from loom.api.trace_context import parse
from loom.effects.execution import StepExecution
from loom.flows.calls import ActionCall, ActionOutcome
from loom.steps.errors import message_of
from loom.steps.ports import current_execution

if TYPE_CHECKING:
    from loom.core.state import RunFields
    from loom.core.ticks import TickAddEvent
    from loom.effects.ports import Binding

_API = "opentelemetry.trace"
_SCOPE = "loom"

_wanted: ContextVar[tuple[int, int] | None] = ContextVar("loom_wanted_ids", default=None)
"""The ids that the next span must have, while it is made."""


def ids_of(run_id: str) -> tuple[int, int]:
    """The ids of a run's trace and of the span of the whole run."""
    digest = sha256(f"loom run {run_id}".encode()).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1


def find_tracing() -> Tracing | None:
    """Where spans go, if the program has set a provider for them."""
    api: Any = sys.modules.get(_API)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return Tracing(api, provider.get_tracer(_SCOPE))


class _RunIds:
    """Generates the ids of spans: the ones asked for, else the ones of the provider's own generator.

    A tracer of the SDK asks its generator for the ids of a span, and nobody else can say them.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def generate_trace_id(self) -> int:
        """The id of a trace that begins."""
        wanted = _wanted.get()
        return wanted[0] if wanted is not None else int(self._inner.generate_trace_id())

    def generate_span_id(self) -> int:
        """The id of a span."""
        wanted = _wanted.get()
        return wanted[1] if wanted is not None else int(self._inner.generate_span_id())

    def is_trace_id_random(self) -> bool:
        """Whether the id of the trace is as good as chance; that of a run follows from the run's id."""
        return _wanted.get() is None and bool(self._inner.is_trace_id_random())


class Tracing:
    """A tracer, and what is needed of the package that it came from."""

    def __init__(self, api: Any, tracer: Any) -> None:
        self.api = api
        self.tracer = tracer
        # With the API alone, or a provider of another make, a run's span has an id that nobody refers to.
        generator = getattr(tracer, "id_generator", None)
        if generator is not None and not isinstance(generator, _RunIds):
            tracer.id_generator = _RunIds(generator)

    def of_run(
        self, run_id: str, workflow: str, created_at: float, parent: str | None, caller: str | None = None
    ) -> RunTrace:
        """The trace of a run. `parent` is the run whose child it is, `caller` the `traceparent` of its start."""
        return RunTrace(self, run_id, workflow, created_at, parent, caller)

    def link_to(self, traceparent: str | None) -> list[Any]:
        """Links to a caller's span: one, or none without a caller."""
        span = parse(traceparent)
        if span is None:
            return []
        flags = self.api.TraceFlags(span.flags)
        return [self.api.Link(self.api.SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags))]

    def span_of(self, run_id: str, workflow: str) -> Any:
        """A stand-in for a run's span, which is not there before the run has ended, for others to refer to."""
        trace_id, span_id = ids_of(run_id)
        sampled = self._is_sampled(trace_id, workflow)
        flags = self.api.TraceFlags(self.api.TraceFlags.SAMPLED if sampled else self.api.TraceFlags.DEFAULT)
        return self.api.NonRecordingSpan(self.api.SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))

    def _is_sampled(self, trace_id: int, name: str) -> bool:
        """The sampler's decision for the run's span: the spans of its steps are kept or dropped with it."""
        sampler = getattr(self.tracer, "sampler", None)
        return sampler is None or bool(sampler.should_sample(self.nothing, trace_id, name).decision.is_sampled())

    @property
    def nothing(self) -> Any:
        """A context without an open span: the caller that started the run may have had one."""
        return self.api.set_span_in_context(self.api.INVALID_SPAN)


class RunTrace:
    """The trace of one run, as far as this process adds to it."""

    __slots__ = ("_caller", "_context", "_created_at", "_parent", "_run_id", "_tracing", "_workflow")

    def __init__(
        self,
        tracing: Tracing,
        run_id: str,
        workflow: str,
        created_at: float,
        parent: str | None,
        caller: str | None = None,
    ) -> None:
        self._tracing = tracing
        self._run_id = run_id
        self._workflow = workflow
        self._created_at = created_at
        self._parent = parent
        self._caller = caller
        self._context = tracing.api.set_span_in_context(tracing.span_of(run_id, workflow))

    @property
    def _about(self) -> dict[str, Any]:
        return {"loom.run_id": self._run_id, "loom.workflow": self._workflow}

    async def around(self, body: Binding, arguments: dict[str, Any]) -> Any:
        """Call a body within a span."""
        execution = current_execution()
        assert isinstance(execution, StepExecution)
        given = arguments.get(body.event_name)
        span = self._begin(execution, given)
        # The context is that of the execution's own task, and ends with it.
        sys.modules["opentelemetry.context"].attach(self._tracing.api.set_span_in_context(span))
        try:
            result = await body.call(arguments)
        except BaseException as error:
            if execution.is_interrupted_by(error):
                span.set_attribute("loom.interrupted", True)  # it goes on elsewhere, or later
            elif isinstance(given, ActionCall) and given.secure:
                self._fail(span, type(error).__name__, "")
            else:
                _record(span, error)
                self._fail(span, type(error).__name__, message_of(error))
            raise
        else:
            if isinstance(result, ActionOutcome) and result.status != "Succeeded":
                # What a secure action said is hidden in its outcome already.
                self._fail(span, result.code or result.status, result.message)
        finally:
            span.end()
        return result

    def _begin(self, execution: StepExecution, given: Any) -> Any:
        command = execution.command
        step, attempt = command.step, command.item.attempts
        about = self._about
        if isinstance(given, ActionCall):
            step, attempt = given.action, given.attempt
            about["loom.action_type"] = given.type
        about |= {"loom.step": step, "loom.attempt": attempt + 1, "loom.execution": command.execution}
        return self._tracing.tracer.start_span(f"{self._workflow}.{step}", context=self._context, attributes=about)

    def _fail(self, span: Any, kind: str, message: str) -> None:
        span.set_attribute("error.type", kind)
        description = f"{kind}: {message}" if message else kind
        span.set_status(self._tracing.api.Status(self._tracing.api.StatusCode.ERROR, description))

    def received(self, tick: TickAddEvent) -> None:
        """An event from outside has reached the run: write a span of that moment, linked to the sender's."""
        about = {**self._about, "loom.event": tick.event.kind.label}
        at = _nanoseconds(tick.at)
        span = self._tracing.tracer.start_span(
            f"{self._workflow} receives {tick.event.kind.label}",
            context=self._context,
            attributes=about,
            links=self._tracing.link_to(tick.traceparent),
            start_time=at,
        )
        span.end(at)

    def ended(self, now: RunFields) -> None:
        """The run is over: write its span, from its beginning to its end."""
        tracing, outcome = self._tracing, now.outcome
        assert outcome is not None
        links = tracing.link_to(self._caller)
        if self._parent is not None:
            above = tracing.span_of(self._parent, self._workflow).get_span_context()
            links.append(tracing.api.Link(above, {"loom.run_id": self._parent}))
        about = {**self._about, "loom.status": outcome.status}
        token = _wanted.set(ids_of(self._run_id))
        try:
            span = tracing.tracer.start_span(
                self._workflow,
                context=tracing.nothing,
                attributes=about,
                links=links,
                start_time=_nanoseconds(self._created_at),
            )
        finally:
            _wanted.reset(token)
        if outcome.status in ("failed", "timed_out"):
            failure = outcome.failure
            kind = failure.type.removeprefix("builtins.") if failure is not None else outcome.status
            self._fail(span, kind, failure.message if failure is not None else outcome.message)
        span.end(_nanoseconds(now.at))


class TracedBodies(dict[str, Any]):
    """The bodies of one run's steps, each within a span."""

    def __init__(self, bodies: dict[str, Binding], trace: RunTrace) -> None:
        super().__init__()
        self._bodies = bodies
        self._trace = trace

    def __missing__(self, step: str) -> _TracedBody:
        body = self[step] = _TracedBody(self._bodies[step], self._trace)
        return body


class _TracedBody:
    """A body, as executions see it, within a span."""

    __slots__ = ("_body", "_trace", "arguments", "classify", "context_name", "event_name", "function", "retry_policy")

    def __init__(self, body: Binding, trace: RunTrace) -> None:
        self._body = body
        self._trace = trace
        self.event_name = body.event_name
        self.context_name = body.context_name
        self.function = body.function
        self.retry_policy = body.retry_policy
        self.arguments = body.arguments
        self.classify = body.classify

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Do the work."""
        return await self._trace.around(self._body, arguments)


def _record(span: Any, error: BaseException) -> None:
    """Note an exception in a span; one whose own code fails when it is looked at is known by its type alone."""
    try:
        span.record_exception(error)
    except Exception as broken:  # noqa: BLE001 - an author's exception may raise anything
        span.set_attribute("loom.exception_unreadable", type(broken).__name__)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)

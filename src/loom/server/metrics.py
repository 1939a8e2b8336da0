"""`GET /metrics`: what this server and its runtime count and measure, for Prometheus.

The size of the store and the runs by status are of the whole store; everything else is of this process.
"""

from __future__ import annotations

from platform import python_version
from time import monotonic
from typing import TYPE_CHECKING

from starlette.responses import Response

import loom
from loom.runtime.durable.metrics import MAX_WORKFLOWS, OTHER, SECONDS, Histogram
from loom.server.exposition import CONTENT_TYPE, Exposition, process_metrics
from loom.server.problems import ApiProblem
from loom.server.routes import TEXT, Reply, RouteList
from loom.store.errors import StoreError
from loom.store.records import HeldRuns

if TYPE_CHECKING:
    from starlette.types import Scope

    from loom.runtime.durable.metrics import RuntimeMetrics, StepMetrics
    from loom.server.call import Call, Server
    from loom.server.exposition import Labels
    from loom.store.ports import RunReads

route = RouteList("server")

# -- counting ---------------------------------------------------------------------------------------------------------


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})

_FRESH_S = 1.0
_SHARE = 100
"""Counting takes no more than one part in this many of the time."""


class CountedRequests:
    """How many requests were answered, and how long it took until their answers began."""

    def __init__(self) -> None:
        self.answered: dict[tuple[str, str, int], int] = {}
        """By method, route and status."""
        self.seconds: dict[tuple[str, str], Histogram] = {}
        """By method and route."""

    def add(self, scope: Scope, status: int, seconds: float) -> None:
        """A request is answered. What it asked for is a pattern of the server's, or none of them: never its path."""
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = scope["state"].get("route", "none")
        key = method, route, status
        self.answered[key] = self.answered.get(key, 0) + 1
        spread = self.seconds.get((method, route))
        if spread is None:
            spread = self.seconds[method, route] = Histogram(SECONDS)
        spread.observe(seconds)


class RunCounts:
    """How many runs the store has, by status. Asked often, it counts seldom: more so the longer counting takes."""

    def __init__(self, store: RunReads) -> None:
        self._store = store
        self._found: dict[str, int] = {}
        self.held: dict[str, HeldRuns] = {}
        """By workflow, how many runs waited for input or were parked, when they were counted last."""
        self.size: int | None = None
        """How many bytes the store took then; None if it does not tell."""
        self._until = float("-inf")

    async def get(self) -> dict[str, int]:
        """By status, plus `idle` and `owned`."""
        began = monotonic()
        if began < self._until:
            return self._found
        self._found, self.held = await self._store.counts(), await self._store.held_counts()
        self.size = await self._store.size()
        ended = monotonic()
        self._until = ended + max(_FRESH_S, _SHARE * (ended - began))
        return self._found


# -- the page ---------------------------------------------------------------------------------------------------------


_STATUSES = ("running", "completed", "failed", "cancelled")
_RUN_COUNTERS = {
    "started": "Runs whose first commit this process made.",
    "completed": "Runs that this process completed.",
    "failed": "Runs that failed or timed out here.",
    "cancelled": "Runs that were cancelled here.",
    "parked": "Runs that the code or data of the process do not fit.",
}
"""Counters of a workflow, and the help text of each."""


@route(
    "GET",
    "/metrics",
    "getMetrics",
    scope="read",
    summary="Figures for Prometheus",
    replies={200: Reply("Text in its format 0.0.4.", str, (TEXT,))},
)
async def metrics(call: Call) -> Response:
    """Answer with all metrics. They cover every workflow, so a key that is limited to some does not get them."""
    if call.principal.workflows is not None:
        raise ApiProblem("forbidden", "The figures are of all workflows, and the key is good for some only.")
    server, page = call.server, Exposition()
    labels = (("version", loom.__version__), ("python", python_version()))
    page.gauge("loom_build_info", "The program that answers.", 1, labels)
    process_metrics(page, server.runtime)
    await _runs(page, server)
    _memory(page, server.runtime.figures["in_memory"], server.runtime.metrics)
    _work(page, server.runtime.metrics)
    _workflows(page, server.runtime.metrics)
    _requests(page, server)
    return Response(page.text(), headers={"Content-Type": CONTENT_TYPE})


async def _runs(page: Exposition, server: Server) -> None:
    """What the store has. A store that fails is itself a metric, and the others are still there."""
    try:
        counts = await server.run_counts.get()
    except StoreError:
        page.gauge("loom_store_up", "Whether the store could be asked.", 0)
        return
    page.gauge("loom_store_up", "Whether the store could be asked.", 1)
    if server.run_counts.size is not None:
        page.gauge("loom_store_bytes", "What the store takes, with its indexes.", server.run_counts.size)
    by_status: dict[Labels, float] = {(("status", status),): counts[status] for status in _STATUSES}
    page.gauges("loom_runs", "Runs in the store by status.", by_status)
    page.gauge("loom_runs_idle", "Running ones that only input from outside can move.", counts["idle"])
    page.gauge("loom_runs_owned", "Running ones that some process holds in memory.", counts["owned"])
    held: dict[Labels, float] = {}
    for workflow, found in _bounded(server.run_counts.held, server.runtime.metrics).items():
        for state, count in found._asdict().items():
            held[("workflow", workflow), ("state", state)] = count
    page.gauges("loom_workflow_runs", "Running ones that wait for input, for other code or for nothing.", held)


def _memory(page: Exposition, in_memory: int, metrics: RuntimeMetrics) -> None:
    page.gauge("loom_runs_in_memory", "Runs that this process holds in memory.", in_memory)
    page.counter("loom_runs_released_total", "Runs that left memory since nothing happened to them.", metrics.released)
    page.counter("loom_runs_resumed_total", "Runs that were brought back into memory.", metrics.resumed)
    page.histogram(
        "loom_run_resume_seconds",
        "From the moment where something came for a run until it was back in memory.",
        metrics.resume_seconds,
    )
    page.counter("loom_runs_given_up_total", "Runs that another process had taken over.", metrics.given_up)
    page.counter("loom_lease_losses_total", "How often this process lost its lease.", metrics.lease_losses)


def _work(page: Exposition, metrics: RuntimeMetrics) -> None:
    page.counter("loom_ticks_total", "Ticks that were reduced and committed.", metrics.ticks)
    page.counter("loom_stale_results_total", "Ticks that came too late to count.", metrics.stale_results)
    page.counter("loom_commands_flushed_total", "Commands of committed batches.", metrics.commands)
    page.counter("loom_commands_pushed_back_total", "Commands whose batch was not committed.", metrics.commands_undone)
    page.counter("loom_commits_total", "Transactions that were committed.", metrics.commit_seconds.count)
    page.histogram("loom_commit_seconds", "How long transactions took.", metrics.commit_seconds)
    page.histogram("loom_commit_batch_size", "How many operations shared a transaction.", metrics.commit_sizes)
    page.counter("loom_store_failures_total", "Transactions and looks that failed.", metrics.store_failures)
    page.counter("loom_timers_armed_total", "Timers that were set.", metrics.timers_armed)
    page.counter("loom_timers_fired_total", "Timers that fired.", metrics.timers_fired)
    page.histogram("loom_timer_lateness_seconds", "How late runs heard of a timer.", metrics.timer_lateness)


def _workflows(page: Exposition, metrics: RuntimeMetrics) -> None:
    """By workflow and step: both are bounded, and the rest is under `other`."""
    by_name = sorted(metrics.workflows.items())
    for word, about in _RUN_COUNTERS.items():
        counted: dict[Labels, float] = {(("workflow", name),): getattr(each, word) for name, each in by_name}
        page.counters(f"loom_runs_{word}_total", about, counted)
    steps: list[tuple[Labels, StepMetrics]] = [
        ((("workflow", name), ("step", step)), found)
        for name, each in by_name
        for step, found in sorted(each.steps.items())
    ]
    failed: dict[Labels, float] = {labels: found.failed for labels, found in steps}
    retried: dict[Labels, float] = {labels: found.retried for labels, found in steps}
    page.counters("loom_step_failures_total", "Executions that failed.", failed)
    page.counters("loom_step_retries_total", "Executions that came after a failed one of the same work.", retried)
    seconds = {labels: found.seconds for labels, found in steps}
    page.histograms("loom_step_seconds", "How long executions were at work, without their waits.", seconds)


def _bounded(held: dict[str, HeldRuns], metrics: RuntimeMetrics) -> dict[str, HeldRuns]:
    """The runs of workflows that this process counts, also where there are none; the others as one."""
    found = dict.fromkeys(metrics.workflows, HeldRuns())
    for workflow, runs in held.items():
        name = workflow if workflow in found or len(found) < MAX_WORKFLOWS else OTHER
        found[name] = HeldRuns(*map(sum, zip(found.get(name, HeldRuns()), runs, strict=True)))
    return dict(sorted(found.items()))


def _requests(page: Exposition, server: Server) -> None:
    page.gauge("loom_open_streams", "Event streams that are being read.", len(server.open_streams))
    page.gauge("loom_draining", "Whether the server is about to stop.", int(server.draining))
    answered: dict[Labels, float] = {
        (("method", method), ("route", route), ("code", str(status))): count
        for (method, route, status), count in sorted(server.requests.answered.items())
    }
    page.counters("loom_http_requests_total", "Requests by route and code.", answered)
    seconds: dict[Labels, Histogram] = {
        (("method", method), ("route", route)): spread
        for (method, route), spread in sorted(server.requests.seconds.items())
    }
    page.histograms("loom_http_request_seconds", "How long it took until answers began.", seconds)

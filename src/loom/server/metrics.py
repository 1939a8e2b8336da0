"""`GET /metrics`: what this server and the runtime behind it count and measure, for Prometheus.

The runs by status are those of the whole store; everything else is of this process. May import starlette and the rest
of the server's frame.
"""

from __future__ import annotations

from platform import python_version
from typing import TYPE_CHECKING

from starlette.responses import Response

import loom
from loom.runtime.durable.figures import MAX_WORKFLOWS, OTHER
from loom.server.exposition import CONTENT_TYPE, Exposition, process_figures
from loom.server.problems import ApiProblem
from loom.server.routing import Route
from loom.store.errors import StoreError
from loom.store.records import HeldRuns

if TYPE_CHECKING:
    from loom.runtime.durable.figures import Figures, Histogram, StepFigures
    from loom.server.exposition import Labels
    from loom.server.routing import Call, Server

_STATUSES = ("running", "completed", "failed", "cancelled")
_RUN_COUNTERS = {
    "started": "Runs whose first commit this process made.",
    "completed": "Runs that this process completed.",
    "failed": "Runs that failed or timed out here.",
    "cancelled": "Runs that were cancelled here.",
    "parked": "Runs that the code or data of the process do not fit.",
}
"""Figures of a workflow, and what they are."""


async def metrics(call: Call) -> Response:
    """All figures. They are of all workflows, so a key that is limited to some does not get them."""
    if call.principal.workflows is not None:
        raise ApiProblem("forbidden", "The figures are of all workflows, and the key is good for some only.")
    server, page = call.server, Exposition()
    labels = (("version", loom.__version__), ("python", python_version()))
    page.gauge("loom_build_info", "The program that answers.", 1, labels)
    process_figures(page, server.runtime)
    await _runs(page, server)
    _memory(page, server.runtime.figures["in_memory"], server.runtime.measured)
    _work(page, server.runtime.measured)
    _workflows(page, server.runtime.measured)
    _requests(page, server)
    return Response(page.text(), headers={"Content-Type": CONTENT_TYPE})


async def _runs(page: Exposition, server: Server) -> None:
    """What the store has. A store that fails is itself a figure, and the others are still there."""
    try:
        counts = await server.run_counts.get()
    except StoreError:
        page.gauge("loom_store_up", "Whether the store could be asked.", 0)
        return
    page.gauge("loom_store_up", "Whether the store could be asked.", 1)
    by_status: dict[Labels, float] = {(("status", status),): counts[status] for status in _STATUSES}
    page.gauges("loom_runs", "Runs in the store by status.", by_status)
    page.gauge("loom_runs_idle", "Running ones that only input from outside can move.", counts["idle"])
    page.gauge("loom_runs_owned", "Running ones that some process holds in memory.", counts["owned"])
    held: dict[Labels, float] = {}
    for workflow, found in _bounded(server.run_counts.held, server.runtime.measured).items():
        for state, count in found._asdict().items():
            held[("workflow", workflow), ("state", state)] = count
    page.gauges("loom_workflow_runs", "Running ones that wait for input, for other code or for nothing.", held)


def _memory(page: Exposition, in_memory: int, figures: Figures) -> None:
    page.gauge("loom_runs_in_memory", "Runs that this process holds in memory.", in_memory)
    page.counter("loom_runs_released_total", "Runs that left memory since nothing happened to them.", figures.released)
    page.counter("loom_runs_resumed_total", "Runs that were brought back into memory.", figures.resumed)
    page.histogram(
        "loom_run_resume_seconds",
        "From the moment where something came for a run until it was back in memory.",
        figures.resume_seconds,
    )
    page.counter("loom_runs_given_up_total", "Runs that another process had taken over.", figures.given_up)
    page.counter("loom_lease_losses_total", "How often this process lost its lease.", figures.lease_losses)


def _work(page: Exposition, figures: Figures) -> None:
    page.counter("loom_ticks_total", "Ticks that were reduced and committed.", figures.ticks)
    page.counter("loom_stale_results_total", "Ticks that came too late to count.", figures.stale_results)
    page.counter("loom_commands_flushed_total", "Commands of committed batches.", figures.commands)
    page.counter("loom_commands_pushed_back_total", "Commands whose batch was not committed.", figures.commands_undone)
    page.counter("loom_commits_total", "Transactions that were committed.", figures.commit_seconds.count)
    page.histogram("loom_commit_seconds", "How long transactions took.", figures.commit_seconds)
    page.histogram("loom_commit_batch_size", "How many operations shared a transaction.", figures.commit_sizes)
    page.counter("loom_store_failures_total", "Transactions and looks that failed.", figures.store_failures)
    page.counter("loom_timers_armed_total", "Timers that were set.", figures.timers_armed)
    page.counter("loom_timers_fired_total", "Timers that fired.", figures.timers_fired)
    page.histogram("loom_timer_lateness_seconds", "How late runs heard of a timer.", figures.timer_lateness)


def _workflows(page: Exposition, figures: Figures) -> None:
    """By workflow and step: both are bounded, and the rest is under `other`."""
    by_name = sorted(figures.workflows.items())
    for word, about in _RUN_COUNTERS.items():
        counted: dict[Labels, float] = {(("workflow", name),): getattr(each, word) for name, each in by_name}
        page.counters(f"loom_runs_{word}_total", about, counted)
    steps: list[tuple[Labels, StepFigures]] = [
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


def _bounded(held: dict[str, HeldRuns], figures: Figures) -> dict[str, HeldRuns]:
    """The runs of workflows that this process counts, also where there are none; the others as one."""
    found = dict.fromkeys(figures.workflows, HeldRuns())
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


ROUTES = (Route("GET", "/metrics", metrics, "read"),)

"""What a process counts and measures while it works on runs. It is written on the commit path, so it costs little.

Nothing here knows who reads it: `GET /metrics` does, and so may any program.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from loom.flows.calls import ActionCall, ActionOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loom.core.ticks import TickStepResult
    from loom.effects.execution import StepExecution

_FAILED = ("Failed", "TimedOut")

RunFact = Literal["started", "completed", "failed", "cancelled", "parked"]
"""What can become of a run."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of buckets for what takes milliseconds, but may take seconds."""

LATENESS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)
"""Bounds for the lateness of timers: one that fell due while nobody worked may be late by hours."""

SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

STEP_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0)
"""The limits for steps: from a lookup to a model that thinks for minutes."""

MAX_WORKFLOWS = 100
MAX_STEPS = 500
"""How many workflows, and steps of all of them, have metrics of their own. The rest share the metrics of
`OTHER`: each set of labels costs the reader of the metrics memory for as long as it keeps them."""
OTHER = "other"


class Histogram:
    """How many values fell into each bucket, and what they add up to."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """How many values were not above each bound, the last one being infinite."""
        so_far = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            so_far += count
            yield bound, so_far


class StepMetrics:
    """The executions of one step, or of one type of action."""

    __slots__ = ("failed", "retried", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram(STEP_SECONDS)
        """How long each execution was at work, without the time in which it waited or slept."""
        self.failed = 0
        """Executions that failed, those that are tried again included."""
        self.retried = 0
        """Executions that came after a failed one of the same work."""


class WorkflowMetrics:
    """The runs of one workflow, as far as this process moved them."""

    __slots__ = ("cancelled", "completed", "failed", "parked", "started", "steps")

    def __init__(self) -> None:
        self.started = 0
        """Runs whose first commit was made here."""
        self.completed = 0
        self.failed = 0
        """Runs that failed or timed out. One that is retried and fails again counts twice."""
        self.cancelled = 0
        self.parked = 0
        """Runs that had to stop, because the code or the data of this process do not fit them."""
        self.steps: dict[str, StepMetrics] = {}
        """By step; of a flow by the type of its actions."""

    def count(self, fact: RunFact) -> None:
        """Count what has become of a run."""
        setattr(self, fact, getattr(self, fact) + 1)


class RuntimeMetrics:
    """The metrics of one process. Counters only grow, also when the process loses its lease and joins again."""

    __slots__ = (
        "_steps", "commands", "commands_undone", "commit_seconds", "commit_sizes", "given_up", "lease_losses",
        "released", "resume_seconds", "resumed", "stale_results", "store_failures", "ticks", "timer_lateness",
        "timers_armed", "timers_fired", "workflows",
    )  # fmt: skip

    clock = staticmethod(perf_counter)
    """What lengths of time are measured with: an event loop's own time may be as coarse as a millisecond."""

    def __init__(self) -> None:
        self.ticks = 0
        """Ticks that were reduced and committed."""
        self.commands = 0
        """Commands that were flushed, and carried out once their batch was committed."""
        self.commands_undone = 0
        """Commands that were flushed and pushed back, because their batch could not be committed."""
        self.commit_seconds = Histogram(SECONDS)
        """How long each transaction took."""
        self.commit_sizes = Histogram(SIZES)
        """How many operations shared each transaction."""
        self.store_failures = 0
        """Transactions and looks at the store that failed."""
        self.stale_results = 0
        """Ticks that came too late to count, such as results of executions that nobody waits for any more."""
        self.timers_armed = 0
        """Timers that were set, those included that a run which came back has set again."""
        self.timers_fired = 0
        self.timer_lateness = Histogram(LATENESS)
        """How long after its time the first of the timers that woke a run was heard of, in seconds."""
        self.released = 0
        """Runs that left memory because nothing happened to them."""
        self.resumed = 0
        """Runs that were brought back into memory."""
        self.resume_seconds = Histogram(SECONDS)
        """How long that took, from the moment where something came for the run."""
        self.given_up = 0
        """Runs that turned out to be another process' own."""
        self.lease_losses = 0
        """How often all runs were lost, because this process gave no sign of life for too long."""
        self.workflows: dict[str, WorkflowMetrics] = {}
        """By the name that runs are stored with; at most `MAX_WORKFLOWS`, and `OTHER`."""
        self._steps = 0

    @property
    def parked(self) -> int:
        """Count the runs of all workflows that were parked."""
        return sum(each.parked for each in self.workflows.values())

    def of_workflow(self, name: str) -> WorkflowMetrics:
        """Return the metrics of a workflow; workflows beyond the limit share those of `OTHER`."""
        found = self.workflows.get(name)
        if found is None:
            if len(self.workflows) >= MAX_WORKFLOWS and name != OTHER:
                return self.of_workflow(OTHER)
            found = self.workflows[name] = WorkflowMetrics()
        return found

    def of_step(self, workflow: WorkflowMetrics, step: str) -> StepMetrics:
        """Return the metrics of a step; steps of its workflow beyond the limit share those of `OTHER`."""
        found = workflow.steps.get(step)
        if found is None:
            if self._steps >= MAX_STEPS and step != OTHER:
                return self.of_step(workflow, OTHER)
            self._steps += 1
            found = workflow.steps[step] = StepMetrics()
        return found

    def know(self, workflow: str, steps: Iterable[str]) -> None:
        """Begin at zero with a workflow and its steps: a reader of metrics sees the first failure as a change."""
        known = self.of_workflow(workflow)
        for step in steps:
            self.of_step(known, step)

    def executed(self, workflow: WorkflowMetrics, execution: StepExecution, result: TickStepResult) -> None:
        """Count an execution that has ended."""
        item = execution.command.item
        call = item.event.body
        if type(call) is ActionCall:
            step, is_retry = call.type, call.attempt > 0
            outcome = result.returned[0].body if result.returned else None
            has_failed = type(outcome) is not ActionOutcome or outcome.status in _FAILED
        else:
            step, is_retry, has_failed = item.step, item.attempts > 0, result.failure is not None
        counted = workflow.steps.get(step) or self.of_step(workflow, step)
        seconds = result.at - execution.at_work_since
        counted.seconds.observe(seconds if seconds > 0.0 else 0.0)
        if has_failed:
            counted.failed += 1
        if is_retry:
            counted.retried += 1

    def written(self, operations: int, seconds: float) -> None:
        """Count a transaction that is durable, with this number of operations."""
        self.commit_seconds.observe(seconds)
        self.commit_sizes.observe(operations)

    def failed(self, operations: int) -> None:
        """A transaction was not written, or nobody knows whether it was."""
        del operations
        self.store_failures += 1

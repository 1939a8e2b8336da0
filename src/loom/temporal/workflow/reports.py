"""What an execution tells its worker and the log: growth, ends, other code, children of earlier executions.

Nothing here decides what a run does. A replay learns what was told before and tells nothing again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from loom.core.state import config_for
from loom.runtime.logs import LifecycleLog, has_lifecycle_news, log_stuck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from temporalio.workflow import Info

    from loom.core.state import Outcome
    from loom.runtime.durable.metrics import RunFact
    from loom.runtime.durable.registration import Registration
    from loom.temporal.payloads import StartArgument
    from loom.temporal.settings import ActivityOptions
    from loom.temporal.workflow.commands import OutgoingCommands
    from loom.temporal.workflow.flush import Flusher
    from loom.temporal.workflow.hosted_run import HostedRun
    from loom.temporal.workflow.policy import Policy
    from loom.temporal.workflow.queries import Intake

_log = logging.getLogger("loom.temporal")


class WorkerContext(Protocol):
    """What an execution finds in its worker. Executions call it from any thread."""

    options: ActivityOptions
    policies: Sequence[Policy]
    """The table: a new run takes the last row, and every run keeps the row that it began with."""

    def activated(self, run_id: str, ticks: int) -> None:
        """Note that a run has more to show: it has had `ticks` more ticks."""
        ...

    def counted(self, workflow: str, fact: RunFact) -> None:
        """Count a run of a workflow that was started, has ended, or was parked."""
        ...

    def has_other_code(self, run_id: str, workflow: str, *, is_parked: bool) -> None:
        """Note a run that began with other code than this worker has, or that other code has parked."""
        ...

    def has_children(self, run_id: str, children: Mapping[int, str]) -> None:
        """Note a run that waits for children of earlier executions: their run ids by number."""
        ...

    def check_recorded(self, info: Info, intake: Intake, length: int) -> None:
        """Raise `AskAgain` unless the history has all that an execution has taken in. This may block the thread."""
        ...


class RunReporter:
    """Tells each fact about one execution once."""

    def __init__(self, worker: WorkerContext) -> None:
        self._worker = worker
        self.notes: list[str] = []
        """Warnings for the operator about signals; a replay drops them."""
        self._status: str | None = None
        """How the run stood after the last activation."""
        self._logged: Outcome | None = None
        """The end, or the parking, that the log has."""
        self._stuck: str | None = None
        """The reason, if the run was stuck after the last activation."""
        self._has_compared = self._has_named_children = False

    def report(self, argument: StartArgument, host: HostedRun | None, flusher: Flusher, *, is_replaying: bool) -> None:
        """Tell readers of the stream, counters and the log what a live activation has brought."""
        notes, self.notes = self.notes, []
        if host is not None:
            notes += host.warnings
            host.warnings.clear()
            # A replay learns what the log was told before. No head is made of a run that is at work.
            before, self._stuck = self._stuck, host.head().stuck if host.core.is_idle else None
            if self._stuck is not None and before is None and not is_replaying:
                log_stuck(host.metadata.run_id, host.metadata.workflow, self._stuck)
        facts = self._facts(argument, host)
        if is_replaying:
            return
        for fact in facts:
            self._worker.counted(argument.metadata.workflow, fact)
        for message in notes:
            _log.warning("Run %s: %s", argument.metadata.run_id, message)
        if host is not None and flusher.has_grown:
            self._log_life(host, flusher)
            self._worker.activated(host.metadata.run_id, flusher.ticks)

    def _facts(self, argument: StartArgument, host: HostedRun | None) -> list[RunFact]:
        """Return what has become of the run in this activation."""
        if host is None:
            return []
        outcome = host.core.fields.outcome
        before, self._status = self._status, outcome.status if outcome is not None else "running"
        facts: list[RunFact] = ["started"] if before is None and argument.start is not None else []
        if outcome is not None and before != outcome.status:
            facts.append("failed" if outcome.status == "timed_out" else outcome.status)
        return facts

    def _log_life(self, host: HostedRun, flusher: Flusher) -> None:
        log = LifecycleLog(host.metadata.run_id, host.metadata.workflow, host.code.program)
        for ticks, published in flusher.committed:
            if has_lifecycle_news(ticks):
                log.committed(ticks, published, host.core.fields)
        flusher.committed.clear()
        outcome = host.core.fields.outcome
        if outcome is not None and outcome is not self._logged:
            self._logged = outcome
            log.parked(outcome.message) if outcome.status == "parked" else log.ended(outcome)

    def compare_code(self, host: HostedRun | None, code: Registration, now: float, *, was_parked: bool) -> None:
        """Tell the worker if its code differs from the run's, or would let a parked run go on.

        A run that the code of this worker has just parked is not tried again with the same code.
        """
        if host is None or self._has_compared:
            return
        if was_parked and (not host.is_parked or host.is_poison):
            return  # it goes on, and is compared the next time
        self._has_compared = True
        config = host.core.fields.config
        known = config_for(code.config, config, keeps_timeout=code.keeps_timeout)
        if host.could_go_on(now, known) if was_parked else code.changed_since(config):
            self._worker.has_other_code(host.metadata.run_id, host.metadata.workflow, is_parked=was_parked)

    def name_children(self, argument: StartArgument, host: HostedRun | None, out: OutgoingCommands) -> None:
        """Name the children that began in an earlier execution: the server does not tell this one of their end."""
        if self._has_named_children or host is None or argument.start is not None or host.core.is_over:
            return
        self._has_named_children = True
        begun_here = {child.seq for child in (*out.children.values(), *host.core.queued_children)}
        children = host.core.fields.children.items()
        earlier = {number: child.run_id for number, child in children if number not in begun_here}
        if earlier:
            self._worker.has_children(host.metadata.run_id, earlier)

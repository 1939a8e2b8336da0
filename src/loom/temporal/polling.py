"""The worker of a task queue: the SDK's, with Loom's runner and Loom's activity. May import temporalio and its room."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from weakref import WeakSet

from temporalio.worker import Worker
from typing_extensions import override

from loom.temporal.activity import make_activity
from loom.temporal.names import ENTRIES
from loom.temporal.runner import LoomHost, LoomRunner

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

    from loom.runtime.durable.figures import Figures
    from loom.runtime.durable.registered import Registered
    from loom.temporal.outgoing import ActivityOptions
    from loom.temporal.settings import TemporalSettings

_HEARTBEATS_S = 1.0
"""Heartbeats go out at least so often: they bring cancellation back."""
_BUILD = "loom"
"""Without a name the SDK makes one of all code that is loaded, which takes its time."""


class CountingRunner(LoomRunner):
    """Knows how many runs are in memory: an instance is let go of when its run leaves."""

    def __init__(self, codes: dict[str, Registered], options: ActivityOptions) -> None:
        super().__init__(codes, options=options)
        self._instances: WeakSet[WorkflowInstance] = WeakSet()

    @property
    def in_memory(self) -> int:
        """How many runs are in memory."""
        return len(self._instances)

    @override
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        if det.info.workflow_type != ENTRIES:
            self._instances.add(instance)
        return instance


def make_worker(
    client: Client,
    task_queue: str,
    codes: dict[str, Registered],
    settings: TemporalSettings,
    runner: LoomRunner,
    figures: Figures,
) -> Worker:
    """A worker for all workflows in `codes`, which may get more of them while it works."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[LoomHost],
        activities=[make_activity(codes, client, settings, figures)],
        unsandboxed_workflow_runner=runner,
        build_id=_BUILD,
        identity=settings.name or None,
        max_cached_workflows=settings.cached,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_timeout),
        max_concurrent_activities=settings.max_steps,
        graceful_shutdown_timeout=timedelta(seconds=settings.grace),
        max_heartbeat_throttle_interval=timedelta(seconds=_HEARTBEATS_S),
        default_heartbeat_throttle_interval=timedelta(seconds=_HEARTBEATS_S),
    )

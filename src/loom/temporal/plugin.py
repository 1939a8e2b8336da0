"""A plugin for applications that have Temporal workers already: Loom workflows beside ordinary ones on one worker.

Worker(client, task_queue="orders", workflows=[Ordinary], plugins=[LoomPlugin({"approve": ApproveWorkflow()})])
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from temporalio.worker import Plugin
from typing_extensions import override

from loom.runtime.durable.registration import prepared
from loom.temporal.activity.step_activity import make_activity
from loom.temporal.worker_jobs import ChildWatch, CodeAnnouncer
from loom.temporal.workflow.queries import RecordedHistory
from loom.temporal.workflow.runner import LoomHost, LoomRunner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer, ReplayerConfig, Worker, WorkerConfig, WorkflowReplayResult

    from loom.runtime.durable.registration import Registration
    from loom.steps.workflow import Workflow
    from loom.temporal.settings import ActivityOptions


class LoomPlugin(Plugin):
    """Lets a worker, or a replayer, host Loom workflows under the given names."""

    def __init__(self, workflows: Mapping[str, Workflow], options: ActivityOptions | None = None) -> None:
        self._codes: dict[str, Registration] = {}
        for name, workflow in workflows.items():
            self._codes[name] = prepared(name, workflow)
        self._options = options

    @override
    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add the host of all Loom workflows, its runner, and the activity that runs their steps."""
        config["workflows"] = [*config.get("workflows", ()), LoomHost]
        config["activities"] = [*config.get("activities", ()), make_activity(self._codes, config["client"])]
        config["unsandboxed_workflow_runner"] = LoomRunner(self._codes, options=self._options)
        return config

    @override
    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """While a worker runs, tell runs of the code here, and let its queries see what their histories have.

        One plugin may serve several workers. Each has a runner of its own, which asks the server that it works for.
        """
        news = CodeAnnouncer(self._codes, lambda: worker.client)
        runner = worker.config(active_config=True).get("unsandboxed_workflow_runner")
        if not isinstance(runner, LoomRunner):
            raise TypeError(
                "Another plugin has taken the place of LoomPlugin's workflow runner: put LoomPlugin last in `plugins`."
            )
        news.listen(runner)
        children = ChildWatch(lambda: worker.client)
        children.listen(runner)
        runner.histories = RecordedHistory(lambda: worker.client, asyncio.get_running_loop())
        try:
            await next(worker)
        finally:
            await news.close()
            await children.close()

    @override
    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Add the host of all Loom workflows and its runner."""
        config["workflows"] = [*(config.get("workflows") or ()), LoomHost]
        config["unsandboxed_workflow_runner"] = LoomRunner(self._codes, options=self._options)
        return config

    @override
    def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[
            [Replayer, AsyncIterator[WorkflowHistory]],
            AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]],
        ],
    ) -> AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]]:
        """Add nothing to the replay of histories."""
        return next(replayer, histories)

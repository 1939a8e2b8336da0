"""Whether the histories of a run on the cluster lead to the commands that they record: Temporal's own check.

The code of a run is in its histories, so none has to be at hand, and no worker. May import temporalio, loom.runtime and
the modules beside it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.worker import Replayer
from typing_extensions import override

from loom.runtime.durable.registered import Registered, RegisteredFlow, anybody
from loom.runtime.load import flow_of
from loom.steps.decorators import step
from loom.steps.events import StartEvent, StopEvent
from loom.steps.workflow import Workflow
from loom.temporal.query_client import PATIENT_S
from loom.temporal.runner import LoomHost, LoomRunner
from loom.temporal.store_cluster import NotThere

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory

    from loom.core.config import BrokerConfig
    from loom.store.records import StoredRun
    from loom.temporal.store_cluster import Cluster


class _Anything(Workflow):
    """Stands where a workflow must stand; its step never runs."""

    @step
    async def nothing(self, ev: StartEvent) -> StopEvent:
        del ev
        return StopEvent()


class _AnyCode(Registered):
    """The code of a run that is only replayed: what there is to know of it is in the history."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, _Anything())
        self.convert = anybody()

    @override
    def for_run(self, stored: StoredRun) -> Registered:
        """A flow is made of the document that came with the run."""
        if stored.row.document is None:
            return self
        return RegisteredFlow(self.name, flow_of((stored.document or b"").decode()))

    @override
    def changed_since(self, config: BrokerConfig) -> BrokerConfig | None:
        """Nothing has changed: there is no other code."""
        del config
        return None


async def history_problems(cluster: Cluster, run_id: str) -> list[str]:
    """Replay all executions of a run that the cluster still has, newest first; what differs, in words."""
    problems: list[str] = []
    execution, is_first = "", True
    while is_first or execution:
        try:
            history = await _history(cluster, run_id, execution)
        except NotThere:
            if is_first:
                raise
            break  # the cluster has deleted it: what is left was replayed
        started = history.events[0].workflow_execution_started_event_attributes
        problem = await _problem(cluster, history, started.workflow_type.name)
        if problem is not None:
            problems.append(f"Execution {started.original_execution_run_id}: {problem}")
        execution, is_first = started.continued_execution_run_id, False
    return problems


async def _history(cluster: Cluster, run_id: str, execution: str) -> WorkflowHistory:
    with cluster.calling(f"read the history of {run_id!r}"):
        return await cluster.handle(run_id, execution).fetch_history(rpc_timeout=timedelta(seconds=PATIENT_S))


def make_replayer(runner: LoomRunner, **options: Any) -> Replayer:
    """A replayer of Loom runs. Their activations need no thread of their own: no code of an author runs in them."""
    return Replayer(workflows=[LoomHost], unsandboxed_workflow_runner=runner, debug_mode=True, **options)


async def _problem(cluster: Cluster, history: WorkflowHistory, workflow: str) -> str | None:
    replayer = make_replayer(
        LoomRunner({workflow: _AnyCode(workflow)}),
        namespace=cluster.address.namespace,
        data_converter=cluster.client.data_converter,
    )
    found = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    return str(found.replay_failure) if found.replay_failure is not None else None

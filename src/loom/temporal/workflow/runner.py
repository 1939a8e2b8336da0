"""The workflow runner that hosts Loom runs, the one definition that all of them fall to, and their replay.

Ordinary workflows live beside them on the same worker: each definition has its own runner. The code of a run is in its
histories, so a replay needs no worker and no registered workflow.
"""

from __future__ import annotations

import collections.abc  # noqa: TC003 - the SDK reads the annotation of a dynamic run
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from temporalio import workflow
from temporalio.common import RawValue  # noqa: TC002 - the same
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowRunner
from typing_extensions import override

from loom.runtime.durable.registration import RemoteRegistration
from loom.temporal.names import ENTRIES
from loom.temporal.settings import ActivityOptions
from loom.temporal.workflow.entries import EntriesInstance
from loom.temporal.workflow.instance import LoomInstance
from loom.temporal.workflow.policy import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from temporalio.client import WorkflowHistory
    from temporalio.converter import DataConverter
    from temporalio.worker import WorkflowInstanceDetails
    from temporalio.workflow import Info

    from loom.runtime.durable.metrics import RunFact
    from loom.runtime.durable.registration import Registration
    from loom.temporal.workflow.policy import Policy
    from loom.temporal.workflow.queries import Intake, RecordedHistory


@workflow.defn(dynamic=True, sandboxed=False)
class LoomHost:
    """The definition of every workflow type that no other definition has. Its body never runs: the runner does."""

    @workflow.run
    async def run(self, args: collections.abc.Sequence[RawValue]) -> Any:
        """Fail: this worker has no `LoomRunner`."""
        del args
        raise RuntimeError("A Loom workflow needs the LoomRunner: use loom.temporal.LoomPlugin or loom.connect().")


class LoomRunner(WorkflowRunner):
    """Makes an instance for every Loom run that a worker gets a task for. Other workflows go to the ordinary runner."""

    def __init__(
        self,
        codes: Mapping[str, Registration],
        *,
        options: ActivityOptions | None = None,
        policies: Sequence[Policy] = POLICIES,
    ) -> None:
        self._codes = codes
        self.options = options or ActivityOptions()
        self.policies = policies
        self.on_activated: Callable[[str, int], None] | None = None
        """Called with a run that has more to show, and how many ticks it has had more; in any thread."""
        self.on_counted: Callable[[str, RunFact], None] | None = None
        """Called with the workflow of a run that was started, has ended or was parked; in any thread."""
        self.on_other_code: Callable[[str, str, bool], None] | None = None
        """Called with a run, its workflow, and whether it is parked, if this worker has other code; in any thread."""
        self.on_children: Callable[[str, Mapping[int, str]], None] | None = None
        """Called with a run and its children that began in an earlier execution; in any thread."""
        self.histories: RecordedHistory | None = None
        """The histories as the server has them, while a worker runs; None in a replay, where no query comes."""
        self._ordinary = UnsandboxedWorkflowRunner()
        self._instances: WeakSet[LoomInstance] = WeakSet()

    @property
    def in_memory(self) -> int:
        """Return how many runs are in memory: the worker lets go of an instance when its run leaves."""
        return len(self._instances)

    @override
    def prepare_workflow(self, defn: Any) -> None:
        """Prepare a definition; that of Loom needs nothing."""
        if defn.name is not None:
            self._ordinary.prepare_workflow(defn)

    @override
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Make the instance for a run. An unknown name fails the task: the run waits for a worker that knows it."""
        if det.defn.name is not None:
            return self._ordinary.create_instance(det)
        name = det.info.workflow_type
        if name == ENTRIES:
            return EntriesInstance(det.info, self.check_recorded)
        code = self._codes.get(name)
        if code is None:
            known = ", ".join(sorted(self._codes)) or "nothing"
            raise LookupError(f"No workflow {name!r} is known to this worker; it works for: {known}.")
        instance = LoomInstance(det.info, code, self)
        self._instances.add(instance)
        return instance

    def activated(self, run_id: str, ticks: int) -> None:
        """See `WorkerContext`."""
        if self.on_activated is not None:
            self.on_activated(run_id, ticks)

    def counted(self, workflow: str, fact: RunFact) -> None:
        """See `WorkerContext`."""
        if self.on_counted is not None:
            self.on_counted(workflow, fact)

    def has_other_code(self, run_id: str, workflow: str, *, is_parked: bool) -> None:
        """See `WorkerContext`."""
        if self.on_other_code is not None:
            self.on_other_code(run_id, workflow, is_parked)

    def has_children(self, run_id: str, children: Mapping[int, str]) -> None:
        """See `WorkerContext`."""
        if self.on_children is not None:
            self.on_children(run_id, children)

    def check_recorded(self, info: Info, taken: Intake, length: int) -> None:
        """See `WorkerContext`."""
        if self.histories is not None:
            self.histories.check(info, taken, length)


# -- replays ----------------------------------------------------------------------------------------------------------


def make_replayer(runner: LoomRunner, **options: Any) -> Replayer:
    """Make a replayer of Loom runs. Its activations need no thread of their own: no code of an author runs in them."""
    return Replayer(workflows=[LoomHost], unsandboxed_workflow_runner=runner, debug_mode=True, **options)


async def replay_problem(history: WorkflowHistory, namespace: str, converter: DataConverter) -> str | None:
    """Replay one execution of a run; return in words what differs, or None if nothing does."""
    started = history.events[0].workflow_execution_started_event_attributes
    workflow = started.workflow_type.name
    replayer = make_replayer(
        LoomRunner({workflow: RemoteRegistration(workflow)}), namespace=namespace, data_converter=converter
    )
    found = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if found.replay_failure is None:
        return None
    return f"Execution {started.original_execution_run_id}: {found.replay_failure}"

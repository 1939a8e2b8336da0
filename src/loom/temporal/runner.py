"""The workflow runner that hosts Loom runs, and the one definition that all of them fall to.

Ordinary workflows live beside them on the same worker: each definition has its own runner. May import temporalio and
the modules beside it.
"""

from __future__ import annotations

import collections.abc  # noqa: TC003 - the SDK reads the annotation of a dynamic run
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue  # noqa: TC002 - the same
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowRunner
from typing_extensions import override

from loom.temporal.entries_instance import EntriesInstance
from loom.temporal.instance import LoomInstance
from loom.temporal.names import ENTRIES
from loom.temporal.outgoing import ActivityOptions
from loom.temporal.policy import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from temporalio.worker import WorkflowInstanceDetails
    from temporalio.workflow import Info

    from loom.runtime.durable.figures import RunFact
    from loom.runtime.durable.registered import Registered
    from loom.temporal.history_shield import RecordedHistory, TakenIn
    from loom.temporal.policy import Policy


@workflow.defn(dynamic=True, sandboxed=False)
class LoomHost:
    """Every workflow type that no other definition has is a Loom workflow. Its body never runs: the runner does."""

    @workflow.run
    async def run(self, args: collections.abc.Sequence[RawValue]) -> Any:
        """Stands for the reducer, which is driven by the runner."""
        del args
        raise RuntimeError("A Loom workflow needs the LoomRunner: use loom.temporal.LoomPlugin or loom.connect().")


class LoomRunner(WorkflowRunner):
    """Makes an instance for every Loom run that a worker takes up. All others go to the ordinary runner."""

    def __init__(
        self,
        codes: Mapping[str, Registered],
        *,
        options: ActivityOptions | None = None,
        policies: Sequence[Policy] = POLICIES,
    ) -> None:
        self._codes = codes
        self.options = options or ActivityOptions()
        self.policies = policies
        self.on_activated: Callable[[str, int], None] | None = None
        """Told of every run that has more to show, and how many ticks it has had, in any thread."""
        self.on_counted: Callable[[str, RunFact], None] | None = None
        """Told of every run that was started, has ended or was parked, by its workflow; in any thread."""
        self.on_other_code: Callable[[str, str, bool], None] | None = None
        """Told of a run, and its workflow, that was begun with other code than is at hand; or is parked."""
        self.on_children: Callable[[str, Mapping[int, str]], None] | None = None
        """Told of a run, and of children that began in an earlier execution of it: the server tells nothing of them."""
        self.histories: RecordedHistory | None = None
        """The histories as the server has them, while a worker runs; None in a replay, where no query comes."""
        self._ordinary = UnsandboxedWorkflowRunner()

    @override
    def prepare_workflow(self, defn: Any) -> None:
        """See `WorkflowRunner`."""
        if defn.name is not None:
            self._ordinary.prepare_workflow(defn)

    @override
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """The instance for a run. A name that is not known here fails the task: the run waits for who knows it."""
        if det.defn.name is not None:
            return self._ordinary.create_instance(det)
        name = det.info.workflow_type
        if name == ENTRIES:
            return EntriesInstance(det.info, self.check_recorded)
        code = self._codes.get(name)
        if code is None:
            known = ", ".join(sorted(self._codes)) or "nothing"
            raise LookupError(f"No workflow {name!r} is known to this worker; it works for: {known}.")
        return LoomInstance(det.info, code, self)

    def activated(self, run_id: str, ticks: int) -> None:
        """See `Surroundings`."""
        if self.on_activated is not None:
            self.on_activated(run_id, ticks)

    def counted(self, workflow: str, fact: RunFact) -> None:
        """See `Surroundings`."""
        if self.on_counted is not None:
            self.on_counted(workflow, fact)

    def has_other_code(self, run_id: str, workflow: str, *, is_parked: bool) -> None:
        """See `Surroundings`."""
        if self.on_other_code is not None:
            self.on_other_code(run_id, workflow, is_parked)

    def has_children(self, run_id: str, children: Mapping[int, str]) -> None:
        """See `Surroundings`."""
        if self.on_children is not None:
            self.on_children(run_id, children)

    def check_recorded(self, info: Info, taken: TakenIn, length: int) -> None:
        """See `Surroundings`."""
        if self.histories is not None:
            self.histories.check(info, taken, length)

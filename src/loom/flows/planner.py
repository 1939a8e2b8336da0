"""The planner of flows: walks a compiled program. It has no state of its own. Pure.

May import loom.core and the rest of loom.flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.config import BrokerConfig, StepSpec
from loom.flows.calls import ACTOR_STEP, START_KIND, ActionOutcome, FlowStart
from loom.flows.nodes.calling import called
from loom.flows.nodes.variables import type_of
from loom.flows.retried import begin_again, go_on
from loom.flows.rules import NEWEST, RETRIES_GO_ON
from loom.flows.state import NOT_STARTED, FlowPlan, FlowRef, Variable
from loom.flows.walk import FUEL, NEXT, YIELD, Walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.planner import Intent, Planned, StepFailed
    from loom.core.records import EventRecord
    from loom.core.state import WorkItem
    from loom.flows.program import Program
    from loom.flows.state import Waiting


def flow_config(program: Program) -> BrokerConfig:
    """A flow as the reducer sees it."""
    ref = FlowRef(program.digest, FUEL, NEWEST)
    return BrokerConfig(program.name, (StepSpec(ACTOR_STEP, num_workers=1),), program=ref)


class FlowPlanner:
    """Answers "what next?" for the runs of one version of a flow."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def _walk(self, config: BrokerConfig, plan: FlowPlan, at: float) -> Walk:
        return Walk(self.program, plan, at, config.program.rules)

    def start(self, config: BrokerConfig, run_id: str, seed: int) -> FlowPlan:
        """The plan of a run that has not begun."""
        del config
        return replace(NOT_STARTED, run_id=run_id, seed=seed)

    def origin_of(self, item: WorkItem) -> Any:
        """What an action sends into its own run comes from inside."""
        return item.id

    def on_event(
        self,
        config: BrokerConfig,
        plan: FlowPlan,
        event: EventRecord,
        step: str | None,
        origin: Any,
        woken: frozenset[str],
        at: float,
    ) -> tuple[FlowPlan, Sequence[Intent], bool]:
        """The first event sets the flow going. All others are for actions that wait, whom the kernel has served."""
        del step, origin, woken
        if event.kind.name != START_KIND.name or plan.ids:
            return plan, (), False
        walk = self._walk(config, replace(plan, started=at), at)
        with walk:
            _begin(walk, event.body)
            walk.go(config.program.fuel)
        return walk.freeze(), walk.intents, True

    def on_returned(
        self,
        config: BrokerConfig,
        plan: FlowPlan,
        item: WorkItem,
        events: tuple[EventRecord, ...],
        fanned_out: bool,
        at: float,
    ) -> Planned:
        """An action that something outside did is over."""
        del fanned_out
        outcome = events[0].body if events else None
        if not isinstance(outcome, ActionOutcome):
            outcome = ActionOutcome("Failed", code="NoOutcome", message="The action gave no outcome.")
        return self._outcome(config, plan, item.extra, outcome, at)

    def on_failed(self, config: BrokerConfig, plan: FlowPlan, fact: StepFailed) -> Planned:
        """The body of an action broke, instead of telling how the action ended."""
        name = fact.failure.type.rpartition(".")[2]
        text = fact.failure.traceback
        outcome = ActionOutcome(
            "Failed", code=name, message=fact.failure.message, error_type=name.lower(), traceback=text
        )
        return self._outcome(config, plan, fact.item.extra, outcome, fact.at)

    def _outcome(self, config: BrokerConfig, plan: FlowPlan, mark: int, outcome: ActionOutcome, at: float) -> Planned:
        waiting = plan.waits.get(mark)
        if waiting is None:
            return plan, ()
        walk = self._walk(config, plan, at)
        walk.waits = walk.waits.delete(mark)
        with walk:
            called(walk, walk.frames[waiting.frame], self.program.nodes[waiting.node], outcome)
            walk.go(config.program.fuel)
        return walk.freeze(), walk.intents

    def on_refused(self, config: BrokerConfig, plan: FlowPlan, item: WorkItem, parameters: tuple[str, ...]) -> Planned:
        """No event from outside is the work of an action: what comes answers waits."""
        del config, item, parameters
        return plan, ()

    def on_timer(self, config: BrokerConfig, plan: FlowPlan, ref: int, at: float) -> Planned:
        """A wait, a delay between iterations or before another try is over, or the walk may go on."""
        waiting = plan.waits.get(ref) if ref != YIELD else None
        if waiting is None and ref != YIELD:
            return plan, ()
        walk = self._walk(config, plan, at)
        with walk:
            if waiting is None:
                walk.yielding = False
            else:
                walk.waits = walk.waits.delete(ref)
                self._wait_over(walk, waiting)
            walk.go(config.program.fuel)
        return walk.freeze(), walk.intents

    def _wait_over(self, walk: Walk, waiting: Waiting) -> None:
        node = self.program.nodes[waiting.node]
        if waiting.purpose == "delay":
            walk.agenda.append((NEXT, waiting.frame, 0))
        elif waiting.purpose == "retry":
            walk.enter_again(waiting.frame, node)
        else:
            walk.finish(walk.frames[waiting.frame], node, walk.record("Succeeded"))

    def on_retry(self, config: BrokerConfig, plan: FlowPlan, at: float) -> Planned:
        """A failed flow goes on with what failed."""
        walk = self._walk(config, plan, at)
        with walk:
            if walk.rules >= RETRIES_GO_ON:
                go_on(walk)
            else:
                begin_again(walk)
            walk.go(config.program.fuel)
        return walk.freeze(), walk.intents

    def on_idle(self, config: BrokerConfig, plan: FlowPlan, waiting: Sequence[WorkItem]) -> Planned:
        """A flow may wait for input from outside."""
        del config, waiting
        return plan, ()


def _begin(walk: Walk, start: FlowStart) -> None:
    """Set the trigger, the parameters and the first variables, and open the top level."""
    program = walk.program
    trigger = next((t for t in program.triggers if t.name == start.trigger), None)
    name = trigger.name if trigger is not None else program.triggers[0].name if program.triggers else "manual"
    outputs = {"headers": start.headers, **start.outputs, "body": start.body}
    walk.trigger = {"name": name, "inputs": None, "outputs": outputs, "status": "Succeeded", "code": "OK"}
    walk.parameters = start.parameters
    for variable, value in start.variables.items():
        given = Variable(variable, type_of(value), value, preset=True)
        walk.variables = walk.variables.set(variable.lower(), given)
    walk.open_top_level()

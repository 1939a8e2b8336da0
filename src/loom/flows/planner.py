"""The planner of flows: answers the reducer's facts by a walk over the compiled program. It has no state of its own."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.state import BrokerConfig, StepSpec
from loom.expressions.errors import FunctionError
from loom.flows.calls import ACTOR_STEP, START_KIND, ActionOutcome, FlowStart
from loom.flows.nodes.data import type_of, with_value
from loom.flows.nodes.external import called
from loom.flows.retries import begin_again, go_on
from loom.flows.rules import NEWEST, RETRIES_GO_ON
from loom.flows.state import NEXT, NOT_STARTED, YIELD, FlowPlan, FlowRef, Variable
from loom.flows.walk import FUEL, Walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom.core.planner import Intent, Planned, StepFailed
    from loom.core.records import EventRecord
    from loom.core.state import WorkItem
    from loom.flows.program import Program
    from loom.flows.state import PendingWait
    from loom.flows.walk import Watch


def flow_config(program: Program) -> BrokerConfig:
    """Make the reducer's view of a flow."""
    ref = FlowRef(program.digest, FUEL, NEWEST)
    return BrokerConfig(program.name, (StepSpec(ACTOR_STEP, num_workers=1),), program=ref)


class FlowPlanner:
    """Answers "what next?" for the runs of one version of a flow."""

    def __init__(self, program: Program, watch: Watch | None = None) -> None:
        self.program = program
        self._watch = watch

    def _walk(self, config: BrokerConfig, plan: FlowPlan, at: float) -> Walk:
        return Walk(self.program, plan, at, config.program.rules, self._watch)

    def start(self, config: BrokerConfig, run_id: str, seed: int) -> FlowPlan:
        """Make the plan of a run that has not begun."""
        del config
        return replace(NOT_STARTED, run_id=run_id, seed=seed)

    def on_edited(self, config: BrokerConfig, plan: FlowPlan, changed: dict[str, Any]) -> FlowPlan:
        """Give variables that the flow has other values, as far as their types allow."""
        del config
        variables = plan.variables
        for name in sorted(changed):
            variable = variables.get(name.lower())
            if variable is not None:
                with suppress(FunctionError):
                    edited = replace(with_value(variable, changed[name]), preset=variable.preset)
                    variables = variables.set(name.lower(), edited)
        return replace(plan, variables=variables)

    def origin_of(self, item: WorkItem) -> Any:
        """Return the work item: an event that an action sends into its own run comes from inside."""
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
        """Begin the flow with its first event. The kernel has given all others to actions that wait."""
        del step, origin, woken
        if event.kind.name != START_KIND.name or plan.ids:
            return plan, (), False
        walk = self._walk(config, replace(plan, started=at, settings=event.body.settings or {}), at)
        with walk:
            _begin(walk, event.body)
            walk.go(config.program.fuel)
        return walk.freeze(), walk.intents, True

    def plain_taker(self, config: BrokerConfig, plan: FlowPlan, item: WorkItem, event: EventRecord) -> None:
        """Return None: what follows from an action is for the walk to find."""
        del config, plan, item, event

    def ends_plainly(self, plan: FlowPlan, item: WorkItem) -> bool:
        """Return False: each action has an outcome, and what follows is for the walk to find."""
        del plan, item
        return False

    def on_returned(
        self,
        config: BrokerConfig,
        plan: FlowPlan,
        item: WorkItem,
        events: tuple[EventRecord, ...],
        fanned_out: bool,
        at: float,
    ) -> Planned:
        """Take in the outcome of an action that the effects did."""
        del fanned_out
        outcome = events[0].body if events else None
        if not isinstance(outcome, ActionOutcome):
            outcome = ActionOutcome("Failed", code="NoOutcome", message="The action gave no outcome.")
        return self._outcome(config, plan, item.extra, outcome, at)

    def on_failed(self, config: BrokerConfig, plan: FlowPlan, fact: StepFailed) -> Planned:
        """Take in an exception of an action's body, which gave no outcome."""
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
        """Do nothing: no event from outside is the work of an action, it answers waits."""
        del config, item, parameters
        return plan, ()

    def on_timer(self, config: BrokerConfig, plan: FlowPlan, ref: int, at: float) -> Planned:
        """Take in the end of a wait, of a delay, or of the pause in which the walk yielded."""
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

    def _wait_over(self, walk: Walk, waiting: PendingWait) -> None:
        node = self.program.nodes[waiting.node]
        if waiting.purpose == "delay":
            walk.agenda.append((NEXT, waiting.frame, 0))
        elif waiting.purpose == "retry":
            walk.enter_again(waiting.frame, node)
        else:
            walk.finish(walk.frames[waiting.frame], node, walk.record("Succeeded"))

    def on_retry(self, config: BrokerConfig, plan: FlowPlan, at: float) -> Planned:
        """Go on with a failed flow, at what failed."""
        walk = self._walk(config, plan, at)
        with walk:
            if walk.rules >= RETRIES_GO_ON:
                go_on(walk)
            else:
                begin_again(walk)
            walk.go(config.program.fuel)
        return walk.freeze(), walk.intents

    def on_idle(self, config: BrokerConfig, plan: FlowPlan, waiting: Iterable[WorkItem]) -> Planned:
        """Do nothing: a flow may wait for input from outside."""
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

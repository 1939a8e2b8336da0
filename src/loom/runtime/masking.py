"""What people may not see of a flow's history: the data of secure actions, parameters, variables and triggers.

A history holds what was there, for the run needs it. Code that prints a history takes it through here first. An
action's data is hidden if it or the action that it comes from is secure; in doubt it is hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from loom.core.records import EventRecord, Failure, IdleReport
from loom.core.ticks import TickAddEvent, TickEditStore, TickStartRun
from loom.flows.calls import ACTOR_STEP, MASK, ActionCall, ActionOutcome, FlowStart

if TYPE_CHECKING:
    from loom.core.records import Published, WaiterReport
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program, Trigger

_PAYLOADS = ("event", "waiter_event", "returned", "failure", "value", "start", "requirements", "changed", "collects")
"""The fields of ticks that may hold data of an action."""


SCHEDULE_DEFINITION = "definition"
"""The key in the store of a schedule's run that has what its runs begin with."""


class Masking:
    """Hides what is secure in one flow."""

    def __init__(self, program: Program) -> None:
        self._program = program
        secure = [node for node in program.nodes if node.secure_inputs or node.secure_outputs]
        self._steps = {node.name for node in secure}
        if any(node.type == "actor" for node in secure):
            self._steps.add(ACTOR_STEP)
        self._hides_answers = any(node.type in ("waitforevent", "httpwebhook") for node in secure)
        self._hides_children = any(node.type == "workflow" for node in secure)
        self._hides_trigger = any(hides_outputs(trigger) for trigger in program.triggers)

    def tick(self, tick: WorkflowTick) -> WorkflowTick:
        """A tick as people may see it."""
        if isinstance(tick, TickStartRun):
            return replace(tick, event=self._start(tick.event))
        if isinstance(tick, TickEditStore) and tick.source is None:
            hidden = self._program.secure_variables
            return replace(tick, changed={k: MASK if k.lower() in hidden else v for k, v in tick.changed.items()})
        if self._is_secure(tick):
            fields = {name: _hidden(getattr(tick, name)) for name in _PAYLOADS if hasattr(tick, name)}
            return replace(tick, **fields)
        return tick

    def _is_secure(self, tick: WorkflowTick) -> bool:
        source = getattr(tick, "source", None)
        step = source.step if source is not None else getattr(tick, "step", None)
        if step in self._steps:
            return True
        if isinstance(tick, TickAddEvent) and source is None:
            return self._hides_answers  # who takes it is not known here
        return self._hides_children and hasattr(tick, "child")

    def _start(self, record: EventRecord | None) -> EventRecord | None:
        if record is None or not isinstance(record.body, FlowStart):
            return record
        return replace(record, body=self.start(record.body))

    def start(self, start: FlowStart) -> FlowStart:
        """What a run begins with, as people may see it."""
        parameters = {
            name: MASK if self._is_secure_parameter(name) else value for name, value in start.parameters.items()
        }
        variables = {
            name: MASK if name.lower() in self._program.secure_variables else value
            for name, value in start.variables.items()
        }
        settings = None if start.settings is None else _named(start.settings)
        shown = replace(start, parameters=parameters, variables=variables, settings=settings)
        if self._hides_trigger:
            shown = replace(shown, body=MASK, headers=_named(start.headers), outputs=_named(start.outputs))
        return shown

    def _is_secure_parameter(self, name: str) -> bool:
        parameter = self._program.parameters.get(name.lower())
        return parameter is not None and parameter.is_secure


def shown_waiter(program: Program | None, waiter: WaiterReport) -> WaiterReport:
    """A waiter as people may see it: what a secure action asks of its answer is hidden, and so is its question."""
    if program is None or not (waiter.requirements or waiter.question is not None):
        return waiter
    for node in program.nodes:
        if node.name == waiter.step and (node.secure_inputs or node.secure_outputs):
            hidden = tuple((name, MASK) for name, _ in waiter.requirements)
            return replace(waiter, requirements=hidden, question=None)
    return waiter


def shown_published(program: Program | None, published: Published) -> Published:
    """What a stream may tell; all else that a flow publishes is masked where it is made."""
    if program is None or not isinstance(published, IdleReport):
        return published
    return replace(published, waiters=tuple(shown_waiter(program, waiter) for waiter in published.waiters))


class ListenerMasking:
    """Hides what a listener's service has brought, and the trigger itself, whose flow says what is secure."""

    def tick(self, tick: WorkflowTick) -> WorkflowTick:
        """A tick as people may see it."""
        if isinstance(tick, TickEditStore):
            return tick  # a listener writes down no data
        fields = {name: _hidden(getattr(tick, name)) for name in _PAYLOADS if getattr(tick, name, None) is not None}
        return replace(tick, **fields) if fields else tick


class ScheduleMasking:
    """Hides what the runs of a schedule begin with: only the flow says what is secure, and it may be elsewhere."""

    def tick(self, tick: WorkflowTick) -> WorkflowTick:
        """A tick as people may see it."""
        if isinstance(tick, TickStartRun):
            return replace(tick, event=_hidden(tick.event))
        if isinstance(tick, TickEditStore) and SCHEDULE_DEFINITION in tick.changed:
            return replace(tick, changed={**tick.changed, SCHEDULE_DEFINITION: MASK})
        return tick


AnyMasking: TypeAlias = Masking | ListenerMasking | ScheduleMasking
"""What hides the secure data of a run, by what the run is of."""


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(values, MASK)


def _hidden(value: Any) -> Any:
    """Data of a secure action: its form stays, what it says does not."""
    match value:
        case EventRecord():
            return replace(value, body=_hidden(value.body))
        case ActionOutcome():
            hidden = None if value.outputs is None else MASK
            return replace(value, outputs=hidden, message=MASK if value.message else "", traceback="")
        case ActionCall():
            return replace(value, inputs=MASK)
        case Failure():
            return replace(value, message=MASK, body=None, traceback="")
        case tuple():
            return tuple(_hidden(item) for item in value)
        case dict():
            return _named(value)
        case None:
            return None
        case _:
            return MASK


def hides_outputs(trigger: Trigger) -> bool:
    """Tell whether the outputs of a trigger are secure."""
    found: Any = trigger.definition
    for key in ("runtimeConfiguration", "secureData", "properties"):
        found = found.get(key) if isinstance(found, dict) else None
    return isinstance(found, list) and "outputs" in [str(entry).lower() for entry in found]

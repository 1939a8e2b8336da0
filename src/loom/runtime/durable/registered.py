"""A workflow or flow that this process works for: its code as the engine and its bodies need it.

May import loom.core, loom.effects, loom.flows, loom.steps, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.core.config import config_for
from loom.core.ticks import TickStartRun
from loom.effects.binding import StepBinding
from loom.effects.exits import asks_to_exit
from loom.effects.flow_convert import FLOW, AnyBodies
from loom.effects.stored import StoredBodies
from loom.flows.calls import START_KIND
from loom.flows.document import digest_of
from loom.flows.nodes.calling import Call
from loom.runtime.code import ActionBodies
from loom.runtime.durable.names import check_workflow
from loom.runtime.flow import Flow, seed_of
from loom.runtime.load import flow_of
from loom.runtime.planners import flow_planner
from loom.runtime.text_cache import text_cache
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.planner import StepsPlanner, takes
from loom.steps.tagged import TaggedSerializer
from loom.steps.texts import described
from loom.store.codec import StartSpec, encode_start
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig
    from loom.core.planner import Planner
    from loom.core.records import EventKind, EventRecord
    from loom.effects.actions.outcomes import Services
    from loom.effects.body import Body
    from loom.effects.convert import Conversion
    from loom.steps.events import StartEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow
    from loom.store.records import StoredRun


def anybody() -> StoredBodies:
    """How events are stored and read where the workflow's own code is not at hand."""
    return AnyBodies()


def registered(name: str, workflow: Workflow, services: Services | None = None) -> Registered:
    """A workflow or a flow under a name."""
    return RegisteredFlow(name, workflow, services) if isinstance(workflow, Flow) else Registered(name, workflow)


def child_start(
    name: str, code: Registered | None, convert: Conversion, inputs: dict[str, Any], event: StartEvent | None
) -> str:
    """What a child run of this name begins with, as it is stored. Without its code it is made where that is."""
    check_workflow(name)
    if code is not None:
        spec = code.start_spec(inputs, event)
    elif event is not None:
        spec = StartSpec(event=convert.record(event))
    else:
        spec = StartSpec(inputs=convert.value(inputs))
    return encode_start(spec).decode()


@text_cache(most=64, bytes_in_all=4 << 20)
def _version(text: str) -> Flow:
    """A version that is not current any more: many runs may have it, so it is compiled once."""
    return flow_of(text)


class Registered:
    """One workflow under the name that its runs are stored with."""

    __slots__ = ("bindings", "convert", "name", "planner", "workflow")

    document: tuple[str, bytes] | None = None
    """The digest and text of a flow's document, which its runs are stored with."""

    def __init__(self, name: str, workflow: Workflow) -> None:
        self.name = name
        self.workflow = workflow
        state_type = workflow._get_state_type()
        serializer = workflow._serializer or TaggedSerializer().with_types(*workflow.events, state_type)
        self.convert: StoredBodies = StoredBodies(serializer, state_type)
        manager = workflow._resources()
        self.bindings: dict[str, Body] = {
            step: StepBinding(step, function, function._step_config, manager, self.convert)
            for step, function in workflow._get_steps().items()
        }
        self.planner: Planner = StepsPlanner()

    def for_run(self, stored: StoredRun) -> Registered:
        """The code that a stored run goes on with: that of the workflow, as it is here and now."""
        if stored.row.document is not None:
            raise ValueError(f"{self.name!r} is a flow in the store and a workflow in Python here.")
        return self

    @property
    def config(self) -> BrokerConfig:
        """The code as the reducer sees it."""
        return self.workflow._config(stored=True)

    @property
    def steps(self) -> tuple[str, ...]:
        """The kinds of work that its runs have, by which they are counted: steps, or types of actions."""
        return tuple(self.bindings)

    @property
    def keeps_timeout(self) -> bool:
        """Whether its author asked for no timeout, so that a run which has one keeps it."""
        return not self.workflow._asked_for_timeout

    def changed_since(self, config: BrokerConfig) -> BrokerConfig | None:
        """The code as it is now, if it is not what a run had so far."""
        now = config_for(self.config, config, keeps_timeout=self.keeps_timeout)
        return now if now != config else None

    def accepts(self, kind: EventKind, step: str | None = None) -> bool:
        """Whether some step, or the given one, takes events of this kind."""
        return any(takes(spec, spec.accepts, kind) for spec in self.config.steps if step in (None, spec.name))

    def start_spec(
        self,
        inputs: dict[str, Any] | None,
        start_event: StartEvent | None = None,
        staged: InMemoryStateStore[Any] | None = None,
    ) -> StartSpec:
        """What a run of it begins with. Input that the start event refuses is an error here: nothing was stored."""
        event = self.convert.record(self._start_event(start_event, dict(inputs or {})))
        # The inputs are kept too: a start that is repeated where the code is not at hand has nothing but them.
        given = self.convert.value(inputs or {}) if start_event is None else None
        if staged is None:
            return StartSpec(event=event, inputs=given)
        store, store_type = self.convert.store_values(staged)
        return StartSpec(event=event, inputs=given, store=store, store_type=store_type)

    def _start_event(self, given: StartEvent | None, inputs: dict[str, Any]) -> StartEvent:
        """Make the start event. Its class is the author's code, and may not end the process either."""
        try:
            return self.workflow._start_event(given, inputs)
        except BaseException as error:
            if not asks_to_exit(error):
                raise
            raise WorkflowRuntimeError(f"The start event of {self.name!r} was refused: {described(error)}") from error

    def first_tick(self, run_id: str, spec: StartSpec, now: float) -> TickStartRun:
        """The tick that a run begins with, with the code at hand."""
        event: EventRecord | None = spec.event
        if event is None and spec.inputs is not None:
            made = self._start_event(None, self.convert.read_value(spec.inputs))
            event = self.convert.record(made).without_marks()
        return TickStartRun(
            at=now,
            run_id=run_id,
            config=self.config,
            event=event,
            seed=spec.seed,
            store=dict(spec.store),
            store_type=spec.store_type,
        )


class RegisteredFlow(Registered):
    """One version of a flow under the name that its runs are stored with."""

    __slots__ = ("document", "services")

    document: tuple[str, bytes]
    workflow: Flow

    def __init__(self, name: str, flow: Flow, services: Services | None = None) -> None:
        self.name = name
        self.workflow = flow
        self.services = services
        self.convert = FLOW
        self.bindings = ActionBodies(services)
        self.planner = flow_planner(flow.document.encode())
        self.document = (flow.digest, flow.document.encode())

    @override
    def for_run(self, stored: StoredRun) -> Registered:
        """A run keeps the version that it began with, which is stored with it."""
        digest = stored.row.document
        if digest is None or digest == self.document[0]:
            if digest is None and stored.row.head.ticks:
                raise ValueError(f"{self.name!r} is a workflow in Python in the store and a flow here.")
            return self
        # What is no text at all is damaged too, and has another digest in any case.
        text = (stored.document or b"").decode(errors="replace")
        if digest_of(text) != digest:
            raise CorruptRecord(stored.row.run_id, "its document", f"the text of {digest} is missing or damaged")
        return RegisteredFlow(self.name, _version(text), self.services)

    @property
    @override
    def steps(self) -> tuple[str, ...]:
        """The types of its actions that need the world; the others are no executions."""
        nodes = self.workflow.program.nodes
        return tuple(dict.fromkeys(node.type for node in nodes if isinstance(node.operation, Call)))

    @override
    def changed_since(self, config: BrokerConfig) -> BrokerConfig | None:
        """A run keeps the version that it began with, and all that was decided for it then."""
        del config
        return None

    @override
    def accepts(self, kind: EventKind, step: str | None = None) -> bool:
        """Only what an action waits for is taken; everything else is kept for one that will."""
        del kind, step
        return False

    @override
    def start_spec(
        self,
        inputs: Any = None,
        start_event: StartEvent | None = None,
        staged: InMemoryStateStore[Any] | None = None,
    ) -> StartSpec:
        """What a run begins with: `inputs` are the trigger's body, unless it is given whole as an event."""
        del staged
        flow = self.workflow
        event = flow._start_event(start_event, {} if start_event is not None else {"body": inputs})
        given = self.convert.value(inputs) if start_event is None else None
        return StartSpec(event=self.convert.record(event), inputs=given)

    @override
    def first_tick(self, run_id: str, spec: StartSpec, now: float) -> TickStartRun:
        """The tick that a run begins with."""
        event = spec.event
        if event is None or event.kind.name != START_KIND.name:
            body = self.convert.read_value(spec.inputs) if spec.inputs is not None else None
            event = self.convert.record(self.workflow._start_event(None, {"body": body}))
        seed = spec.seed or seed_of(run_id)
        return TickStartRun(at=now, run_id=run_id, config=self.config, event=event, seed=seed)

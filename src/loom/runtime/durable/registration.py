"""Registrations: the workflows and flows that this process works for, each under the name of its runs.

A registration joins a definition with what runs in a store need of it: a planner, bodies, and a codec of events. Its
class is that of the authoring style, since styles differ in what a run begins with and in which version it keeps.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from loom.core.state import BrokerConfig, config_for
from loom.core.ticks import TickStartRun
from loom.effects.binding import step_bindings
from loom.effects.exceptions import asks_to_exit
from loom.effects.flow_codec import FLOW_CODEC, AnyEventCodec
from loom.effects.stored_codec import StoredEventCodec
from loom.flows.calls import START_KIND
from loom.flows.diagnostics import DefinitionError
from loom.flows.document import digest_of
from loom.flows.nodes.external import ExternalCall
from loom.runtime.durable.names import check_workflow
from loom.runtime.flow import (
    ActionBodies,
    FlowDefinition,
    connection_problems,
    flow_of,
    refusals_of,
    services_of,
    with_given,
)
from loom.runtime.lru_cache import text_cache
from loom.runtime.planners import STEPS, flow_planner
from loom.steps.errors import WorkflowRuntimeError, described
from loom.steps.events import StartEvent, StopEvent
from loom.steps.planner import takes
from loom.steps.ports import RUN_DEPTH, RunLimits, definition_of
from loom.steps.serializers import JsonSerializer
from loom.steps.state_store import DictState
from loom.steps.tagged import TaggedSerializer
from loom.steps.workflow import StepsDefinition, Workflow
from loom.store.codec import StartSpec, decode_start, encode_start
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.planner import Planner
    from loom.core.records import EventKind, EventRecord
    from loom.effects.actions.outcomes import Services
    from loom.effects.event_codec import EventCodec
    from loom.effects.ports import Binding
    from loom.flows.planner import FlowPlanner
    from loom.flows.program import Program
    from loom.runtime.flow import Flow, Surroundings
    from loom.steps.events import Event
    from loom.steps.ports import Definition
    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.step_config import StepConfig
    from loom.store.records import StoredRun

_log = logging.getLogger("loom.durable")


def registration_of(
    name: str,
    workflow: Workflow,
    services: Services | None = None,
    max_depth: int | None = RUN_DEPTH,
    surroundings: Surroundings | None = None,
) -> Registration:
    """Register a workflow or a flow under a name, without a check of its graph of steps.

    `max_depth` is the limit for steps whose author set none. `surroundings` are the project of earlier versions of a
    flow.
    """
    definition = definition_of(workflow)
    if isinstance(definition, FlowDefinition):
        return FlowRegistration(name, definition, services, surroundings)
    assert isinstance(definition, StepsDefinition)
    return StepsRegistration(name, definition, max_depth)


def instance_of(workflow: object) -> Workflow:
    """Return the workflow that `register` was given, made from its class if need be."""
    if isinstance(workflow, Workflow):
        return workflow
    if not isinstance(workflow, type) or not issubclass(workflow, Workflow):
        raise TypeError(f"register() takes a workflow, not {type(workflow).__name__}.")
    try:
        return workflow()
    except TypeError as error:
        name = workflow.__name__
        raise TypeError(f"{name} cannot be made without arguments: register an instance, as {name}(...).") from error


def prepared(
    name: str, workflow: Workflow, services: Services | None = None, max_depth: int | None = RUN_DEPTH
) -> Registration:
    """Register a workflow or a flow under a name; raises what is wrong with it. See `registration_of`."""
    definition = definition_of(workflow)
    definition.prepare()
    if isinstance(definition, FlowDefinition) and services is not None:
        problems = connection_problems(definition.program, services.handlers)
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            raise DefinitionError(errors)
    return registration_of(name, workflow, services, max_depth)


class Registration(ABC):
    """One definition under the name that its runs are stored with."""

    __slots__ = ("bindings", "codec", "definition", "name", "planner", "pure")

    name: str
    definition: Definition
    planner: Planner
    codec: StoredEventCodec
    bindings: dict[str, Binding]
    """Bodies by step."""
    pure: frozenset[str]
    """The steps that are declared pure."""

    @property
    def workflow(self) -> Workflow:
        """The object that the author made."""
        workflow: Workflow = self.definition.instance
        return workflow

    @property
    def config(self) -> BrokerConfig:
        """The code as the reducer sees it."""
        return self.definition.config(stored=True)

    @property
    def document(self) -> tuple[str, bytes] | None:
        """The digest and text of a flow's document, which its runs are stored with; None for workflows in Python."""
        return self.definition.document

    @property
    def program(self) -> Program | None:
        """The program of a flow; None for workflows in Python."""
        return None

    @property
    def keeps_timeout(self) -> bool:
        """Whether the author set no timeout, so that a run that has one keeps it."""
        return self.definition.limits.keeps_timeout

    @property
    @abstractmethod
    def steps(self) -> tuple[str, ...]:
        """The kinds of work that its runs have, by which they are counted: steps, or types of actions."""

    @abstractmethod
    def for_run(self, stored: StoredRun) -> Registration:
        """The version of the code that a stored run goes on with; `ValueError` if that is of another style."""

    @abstractmethod
    def changed_since(self, config: BrokerConfig) -> BrokerConfig | None:
        """The code as it is now, if a run has to be told that it is not what the run had so far."""

    @abstractmethod
    def accepts(self, kind: EventKind, step: str | None = None) -> bool:
        """Whether some step, or the given one, takes events of this kind at any time."""

    @abstractmethod
    def start_spec(
        self,
        inputs: Any,
        start_event: StartEvent | None = None,
        staged: InMemoryStateStore[Any] | None = None,
    ) -> StartSpec:
        """What a run of it begins with. Input that the start event refuses is an error here: nothing was stored."""

    def first_tick(self, run_id: str, spec: StartSpec, now: float) -> TickStartRun:
        """The tick that a run begins with, by the code of this process."""
        event: EventRecord | None = spec.event
        if event is None and spec.inputs is not None:
            made = self._start_event(None, self.codec.read_value(spec.inputs))
            event = self.codec.record(made).without_marks()
        return TickStartRun(
            at=now,
            run_id=run_id,
            config=self.config,
            event=event,
            seed=spec.seed,
            store=dict(spec.store),
            store_type=spec.store_type,
        )

    def whole_start(self, start: bytes) -> bytes:
        """Return a stored start with what only this process knows, for a run that begins where its code is not."""
        return start

    def _start_event(self, given: StartEvent | None, inputs: dict[str, Any]) -> StartEvent:
        """Make the start event. Its class is the author's code, and may not end the process either."""
        try:
            return self.definition.start_event(given, inputs)
        except BaseException as error:
            if not asks_to_exit(error):
                raise
            raise WorkflowRuntimeError(f"The start event of {self.name!r} was refused: {described(error)}") from error


class StepsRegistration(Registration):
    """A workflow in Python under a name."""

    __slots__ = ("_limited", "_max_depth")

    definition: StepsDefinition

    def __init__(self, name: str, definition: StepsDefinition, max_depth: int | None = RUN_DEPTH) -> None:
        self.name = name
        self.definition = definition
        self._max_depth = max_depth
        self._limited: tuple[BrokerConfig, BrokerConfig] | None = None
        """The code as it was defined when it was last asked for, and with the limit of the runtime."""
        state_type = definition.state_type
        serializer = definition.own_serializer or TaggedSerializer().with_types(*definition.events, state_type)
        self.codec = StoredEventCodec(serializer, state_type)
        self.bindings = step_bindings(definition, self.codec)
        self.pure = frozenset(name for name, config in definition.steps.items() if config.pure)
        self.planner = STEPS

    @property
    @override
    def config(self) -> BrokerConfig:
        config = super().config
        if self.definition.limits.max_depth is not RUN_DEPTH or self._max_depth == RUN_DEPTH:
            return config
        if self._limited is None or self._limited[0] is not config:
            self._limited = config, config.limited(self._max_depth)
        return self._limited[1]

    @override
    def for_run(self, stored: StoredRun) -> Registration:
        """Any run goes on with the code of this process."""
        if stored.row.document is not None:
            raise ValueError(f"{self.name!r} is a flow in the store and a workflow in Python here.")
        return self

    @property
    @override
    def steps(self) -> tuple[str, ...]:
        return tuple(self.bindings)

    @override
    def changed_since(self, config: BrokerConfig) -> BrokerConfig | None:
        now = config_for(self.config, config, keeps_timeout=self.keeps_timeout)
        return now if now != config else None

    @override
    def accepts(self, kind: EventKind, step: str | None = None) -> bool:
        return any(takes(spec, spec.accepts, kind) for spec in self.config.steps if step in (None, spec.name))

    @override
    def start_spec(
        self,
        inputs: dict[str, Any] | None,
        start_event: StartEvent | None = None,
        staged: InMemoryStateStore[Any] | None = None,
    ) -> StartSpec:
        event = self.codec.record(self._start_event(start_event, dict(inputs or {})))
        # The inputs are kept too: a process without the code can compare a repeated start with nothing else.
        given = self.codec.value(inputs or {}) if start_event is None else None
        if staged is None:
            return StartSpec(event=event, inputs=given)
        store, store_type = self.codec.store_values(staged)
        return StartSpec(event=event, inputs=given, store=store, store_type=store_type)


class FlowRegistration(Registration):
    """One version of a flow under a name."""

    __slots__ = ("action_services", "services", "surroundings")

    definition: FlowDefinition
    planner: FlowPlanner

    def __init__(
        self,
        name: str,
        definition: FlowDefinition,
        services: Services | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.name = name
        self.definition = definition
        self.services = services
        self.surroundings = definition.instance.surroundings or surroundings
        """The project of the name, which serves all versions that came from it."""
        self.codec = FLOW_CODEC
        self.action_services = services_of(definition.program, services, self.surroundings)
        """What its actions and its triggers find in this process."""
        self.bindings = ActionBodies(self.action_services)
        self.pure = frozenset()
        self.planner = flow_planner(definition.document[1])

    @property
    def flow(self) -> Flow:
        """The flow itself."""
        return self.definition.instance

    @property
    @override
    def document(self) -> tuple[str, bytes]:
        return self.definition.document

    @property
    @override
    def program(self) -> Program:
        return self.planner.program

    @override
    def for_run(self, stored: StoredRun) -> Registration:
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
        return FlowRegistration(self.name, _version(text), self.services, self.surroundings)

    @property
    @override
    def steps(self) -> tuple[str, ...]:
        """The types of its actions that need the world; the others are no executions."""
        nodes = self.definition.program.nodes
        return tuple(dict.fromkeys(node.type for node in nodes if isinstance(node.operation, ExternalCall)))

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
        event = self.definition.start_event(start_event, {} if start_event is not None else {"body": inputs})
        given = self.codec.value(inputs) if start_event is None else None
        return StartSpec(event=self.codec.record(event), inputs=given)

    @override
    def whole_start(self, start: bytes) -> bytes:
        if self.surroundings is None or self.program.beside is None:
            return start
        spec = decode_start(self.name, start)
        return encode_start(replace(spec, event=self.first_tick("", spec, 0.0).event, inputs=None))

    @override
    def first_tick(self, run_id: str, spec: StartSpec, now: float) -> TickStartRun:
        event = spec.event
        if event is None or event.kind.name != START_KIND.name:
            body = self.codec.read_value(spec.inputs) if spec.inputs is not None else None
            event = self.codec.record(self.definition.start_event(None, {"body": body}))
        event = with_given(self.definition.program, self.surroundings, event)
        seed = spec.seed or self.definition.seed(run_id)
        return TickStartRun(at=now, run_id=run_id, config=self.config, event=event, seed=seed)


@text_cache(most=64, bytes_in_all=4 << 20)
def _version(text: str) -> FlowDefinition:
    """A version that is not current any more: many runs may have it, so it is compiled once."""
    flow = flow_of(text)
    warn_of_refusals(flow, f"An earlier version of the flow {flow.name!r}, with runs that are not over,")
    return FlowDefinition(flow)


def warn_of_refusals(flow: Flow, what: str) -> None:
    """Tell the log of a stored flow that would be refused as a new document; `what` names it there."""
    refusals = refusals_of(flow)
    if refusals:
        more = len(refusals) - 1
        others = f" It has {more} more such problem{'s' * (more > 1)}." if more else ""
        message = "%s is worked for as it was stored. A new document with it would be refused: %s.%s"
        _log.warning(message, what, refusals[0], others)


class RemoteDefinition:
    """What is known of a workflow whose code is in another process: its name.

    Handlers of its runs can await them and send them events, and a history that has the code in it can be replayed.
    """

    instance = None
    live_code: Any = None
    version = 0
    limits = RunLimits()
    is_verbose = False
    document = None
    state_type = DictState

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def steps(self) -> Mapping[str, StepConfig]:
        """None are known."""
        return {}

    @property
    def serializer(self) -> BaseSerializer:
        """A serializer that knows no type of the workflow's own."""
        return JsonSerializer().with_types(StartEvent, StopEvent, self.state_type)

    def config(self, *, stored: bool = False) -> BrokerConfig:
        """A config without steps: a run brings its own."""
        del stored
        return BrokerConfig(self.name)

    def start_event(self, given: StartEvent | None, inputs: dict[str, Any]) -> StartEvent:
        """The event as it was given, or a plain one: the process with the code checks it."""
        return given if given is not None else StartEvent(**inputs)

    def begun(self, event: EventRecord) -> EventRecord:
        """The event as it is: the process with the code adds what it has."""
        return event

    def check_target(self, event: Event, step: str | None) -> None:
        """Accept any event: the process with the code checks it."""

    def seed(self, run_id: str) -> int:
        """None is known: 0."""
        del run_id
        return 0

    def prepare(self) -> None:
        """Nothing is to be prepared here."""


class RemoteRegistration(Registration):
    """A name without code of its own: what there is to know of a run's code is in its history."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.definition = RemoteDefinition(name)
        self.codec = AnyEventCodec()
        self.bindings = {}
        self.planner = STEPS

    @property
    @override
    def steps(self) -> tuple[str, ...]:
        """None are known."""
        return ()

    @override
    def for_run(self, stored: StoredRun) -> Registration:
        """A flow is made from the document that came with the run."""
        if stored.row.document is None:
            return self
        return FlowRegistration(self.name, FlowDefinition(flow_of((stored.document or b"").decode())))

    @override
    def changed_since(self, config: BrokerConfig) -> BrokerConfig | None:
        """Nothing has changed: there is no other code."""
        del config
        return None

    @override
    def accepts(self, kind: EventKind, step: str | None = None) -> bool:
        """Not known here: False."""
        del kind, step
        return False

    @override
    def start_spec(
        self,
        inputs: Any,
        start_event: StartEvent | None = None,
        staged: InMemoryStateStore[Any] | None = None,
    ) -> StartSpec:
        """What was given, unchecked: the process with the code makes the start event of it."""
        del staged
        if start_event is not None:
            return StartSpec(event=self.codec.record(start_event))
        return StartSpec(inputs=self.codec.value(inputs))


def child_start(
    name: str, code: Registration | None, codec: EventCodec, inputs: dict[str, Any], event: StartEvent | None
) -> str:
    """What a child run of this name begins with, as it is stored. Without its code, the process that has it checks."""
    check_workflow(name)
    if code is not None:
        spec = code.start_spec(inputs, event)
    elif event is not None:
        spec = StartSpec(event=codec.record(event))
    else:
        spec = StartSpec(inputs=codec.value(inputs))
    return encode_start(spec).decode()

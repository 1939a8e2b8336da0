"""Flows: declarative workflows as their users and the runtimes see them. Their code is a document.

`load` makes a `Flow`, the object that users run and register. `FlowDefinition` is what runtimes ask of it.
"""

from __future__ import annotations

from functools import cached_property, partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec.structs import replace
from typing_extensions import override

from loom.effects.actions.binding import ActionBinding
from loom.effects.actions.handlers import HANDLERS, ActionHandlers
from loom.effects.actions.outcomes import NotPlainData, Services, plain
from loom.effects.flow_codec import FlowStartEvent
from loom.expressions import ExpressionError
from loom.flows.calls import FlowStart
from loom.flows.compiler import compile_flow
from loom.flows.diagnostics import DefinitionError, Problem, did_you_mean
from loom.flows.document import MAX_BYTES, document_text, read_document, stored_document
from loom.flows.limits import Limits
from loom.flows.plain import plain_value
from loom.flows.planner import flow_config
from loom.flows.triggers import body_problems, parameter_problems, variable_problems
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StartEvent, StopEvent
from loom.steps.loop_thread import run_to_end
from loom.steps.ports import RunLimits, definition_of, keep_runtime
from loom.steps.serializers import JsonSerializer
from loom.steps.state_store import DictState
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.records import EventRecord
    from loom.core.state import BrokerConfig
    from loom.effects.flow_result import FlowResult
    from loom.flows.beside import Beside
    from loom.flows.document import Document
    from loom.flows.program import Program
    from loom.steps.context import Context
    from loom.steps.events import Event
    from loom.steps.handler import WorkflowHandler
    from loom.steps.ports import RuntimePort
    from loom.steps.serializers import BaseSerializer
    from loom.steps.step_config import StepConfig


class Flow(Workflow):
    """A declarative workflow, made by `loom.load`. It runs where Python workflows run, and gives the same handlers."""

    def __init__(
        self,
        program: Program,
        document: Document,
        limits: Limits,
        warnings: list[Problem],
        *,
        runtime: RuntimePort | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        super().__init__(timeout=None, disable_validation=True, workflow_name=program.name, runtime=runtime)
        self.program = program
        self.surroundings = surroundings
        """What the project beside its document gives its runs; None: there is no project."""
        self.warnings = warnings
        """What `loom.load` had to say about the document, short of refusing it."""
        self._text = document_text(document, limits)

    @property
    def name(self) -> str:
        """The name that its runs are known by, unless it is registered under another one."""
        return self.program.name

    @property
    def digest(self) -> str:
        """Names this version of the document: the same text and limits have the same digest everywhere."""
        return self.program.digest

    @property
    def document(self) -> str:
        """The text that is stored with its runs."""
        return self._text

    def given(self) -> dict[str, Any]:
        """Return what its project gives a run that begins now, as a context of expressions.

        Raises `WorkflowRuntimeError` if a value of the project cannot be evaluated.
        """
        found = _given(self.program, self.surroundings)
        return {} if found is None else {"parameters": found.parameters, "appSettings": found.settings}

    @property
    @override
    def events(self) -> list[type[Event]]:
        """The events that begin and end its runs; between them it has none in Python."""
        return [self.start_event_class, self.stop_event_class]

    @override
    def validate(self, *, validate_resource_configs: bool = True, validate_resources: bool = False) -> bool:
        """`loom.load` has checked the document; a flow has no graph of steps. Returns False."""
        return False

    @override
    def run(  # type: ignore[override]  # a flow begins with other things than a workflow in Python
        self,
        body: Any = None,
        *,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        run_id: str | None = None,
        start_event: StartEvent | None = None,
        ctx: Context[Any] | None = None,
    ) -> WorkflowHandler:
        """Begin a run. `body` is the trigger's body; `variables` are set before the first action runs.

        The handler gives a `FlowResult`. Needs a running event loop.
        """
        given = {"body": body, "parameters": parameters, "variables": variables, "headers": headers}
        event = start_event or definition_of(self).start_event(
            None, {key: value for key, value in given.items() if value is not None}
        )
        return super().run(ctx, event, run_id=run_id)

    @override
    def run_sync(  # type: ignore[override]  # as above
        self,
        body: Any = None,
        *,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        run_id: str | None = None,
        start_event: StartEvent | None = None,
        ctx: Context[Any] | None = None,
    ) -> FlowResult:
        """Run to the end and return the result, for code that is not asynchronous. Takes what `run` takes."""
        begin = partial(self.run, body, parameters=parameters, variables=variables, headers=headers)
        result: FlowResult = run_to_end(partial(begin, run_id=run_id, start_event=start_event, ctx=ctx))
        return result

    @override
    def _find_bounds(self) -> tuple[type[StartEvent], type[StopEvent]]:
        return StartEvent, StopEvent

    @override
    def _make_definition(self) -> FlowDefinition:
        return FlowDefinition(self)

    @override
    def __repr__(self) -> str:
        return f"<Flow {self.name!r}, {len(self.program.nodes)} actions, version {self.digest[:12]}>"


_CONNECTIONS = "$connections"
"""Parameter of Consumption, in lower case, that holds the ids of connections."""


class FlowDefinition:
    """The definition of a flow: everything that is to be known of it is in its document.

    An unfinished run keeps the version that it began with, so a definition never changes.
    """

    limits = RunLimits()
    is_verbose = False
    version = 0
    state_type = DictState

    def __init__(self, flow: Flow) -> None:
        self.instance = flow
        self.program = flow.program
        self.live_code: Any = None

    @property
    def name(self) -> str:
        """The name that its runs go by, unless it is registered under another one."""
        return self.instance.workflow_name

    @property
    def steps(self) -> Mapping[str, StepConfig]:
        """None: the actions of a flow are no steps in Python."""
        return {}

    @cached_property
    def document(self) -> tuple[str, bytes]:
        """The digest and text that its runs are stored with."""
        return self.program.digest, self.instance.document.encode()

    @property
    def serializer(self) -> BaseSerializer:
        """The serializer of context dicts; only what was prepared for a run of a flow can be in one."""
        return JsonSerializer().with_types(*self.instance.events, self.state_type)

    def config(self, *, stored: bool = False) -> BrokerConfig:
        """The code as the reducer sees it. A flow has no timeout anywhere."""
        del stored
        return flow_config(self.program)

    def start_event(self, given: StartEvent | None, inputs: dict[str, Any]) -> FlowStartEvent:
        """Make the event that a run begins with. Its parameters and body are checked: a run that cannot begin is not
        stored.
        """
        if isinstance(given, FlowStartEvent):
            inputs = {name: getattr(given, name) for name in FlowStartEvent.model_fields}
        elif given is not None:
            inputs = {"body": given.model_dump(mode="json")}
        known = set(FlowStartEvent.model_fields)
        unknown = sorted(set(inputs) - known)
        if unknown:
            raise WorkflowRuntimeError(f"A flow begins with {', '.join(sorted(known))}, not with {unknown[0]!r}.")
        for key in ("parameters", "variables", "headers"):
            if not isinstance(inputs.get(key, {}), dict):
                raise WorkflowRuntimeError(f"{key} must be a dict of values by name.")
        values = {key: _as_data(value, key) for key, value in inputs.items()}
        problems = parameter_problems(self.program, values.get("parameters", {}))
        problems += variable_problems(self.program, values.get("variables", {}))
        problems += body_problems(self.program, values.get("trigger", ""), values.get("body"))
        if problems:
            raise WorkflowRuntimeError(f"The flow {self.name!r} cannot begin: {' '.join(problems)}")
        values["parameters"] = {
            self.program.parameters[name.lower()].name: value for name, value in values.get("parameters", {}).items()
        }
        self._add_connections(values["parameters"])
        return FlowStartEvent(**values)

    def with_connections(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return parameters as a start has them: with an id for each connection that has none."""
        added = dict(parameters)
        self._add_connections(added)
        return added

    def _add_connections(self, parameters: dict[str, Any]) -> None:
        """Give an id to each connection of `$connections` that has none: its name, by which a connector is found.

        A deployment would fill the parameter. What is added is part of the start, so that a replay reads the same.
        """
        known = self.program.parameters.get(_CONNECTIONS)
        if known is None or not self._connection_keys:
            return
        held = parameters.get(known.name, known.default if known.has_default else {})
        if not isinstance(held, dict):
            return
        there = {key.lower() for key in held}
        missing = [key for key in self._connection_keys if key.lower() not in there]
        if missing:
            added = {key: {"connectionId": key, "connectionName": key} for key in missing}
            parameters[known.name] = {**held, **added}

    @cached_property
    def _connection_keys(self) -> tuple[str, ...]:
        uses = [trigger.connection for trigger in self.program.triggers]
        uses += [node.connection for node in self.program.nodes]
        return tuple(dict.fromkeys(use.key for use in uses if use is not None and use.key))

    def begun(self, event: EventRecord) -> EventRecord:
        """Give a start what the project of the flow has for it now."""
        return with_given(self.program, self.instance.surroundings, event)

    def check_target(self, event: Event, step: str | None) -> None:
        """Raise `WorkflowRuntimeError` for an action that does not exist. Any event may come: actions wait by name."""
        del event
        if step is not None and self.program.find(step) is None:
            raise WorkflowRuntimeError(f"The flow {self.name!r} has no action {step!r}.")

    def seed(self, run_id: str) -> int:
        """What chance in a run follows from: its id, so it is the same on every runtime."""
        return seed_of(run_id)

    def prepare(self) -> None:
        """Fix the flow's name and runtime. `loom.load` has validated it."""
        keep_runtime(self.instance)


class Surroundings(Protocol):
    """What a project gives the runs of its flows."""

    def given(self, beside: Beside) -> Given:
        """Return the values of these names, as they are now."""
        ...

    def connection(self, name: str) -> dict[str, Any] | None:
        """Return a connection of the project, with its secrets as they are now; None if there is none."""
        ...

    def secrets(self, name: str) -> tuple[str, ...]:
        """List the settings in a connection, as they are now, longest first: errors must not repeat them."""
        ...


class Given(NamedTuple):
    """Values that a project gives a run."""

    parameters: dict[str, Any]
    settings: dict[str, str]


def _given(program: Program, surroundings: Surroundings | None) -> Given | None:
    """Return what a project gives a run that begins now; None if the program has no project beside it."""
    if surroundings is None or program.beside is None:
        return None
    try:
        parameters, settings = surroundings.given(program.beside)
    except ExpressionError as error:
        raise WorkflowRuntimeError(f"The flow {program.name!r} cannot begin: {error}") from error
    known = program.parameters
    return Given({known[name.lower()].name: value for name, value in parameters.items()}, settings)


def with_given(program: Program, surroundings: Surroundings | None, event: EventRecord) -> EventRecord:
    """Give a start the values of its project. What the caller gives wins; a start that has them stays as it is."""
    start = event.body
    if not isinstance(start, FlowStart) or start.settings is not None:
        return event
    given = _given(program, surroundings)
    if given is None:
        return event
    parameters = {**given.parameters, **start.parameters}
    return replace(event, body=replace(start, parameters=parameters, settings=given.settings))


class ActionBodies(dict[str, Any]):
    """The bodies of a flow's actions by step, made when a step is first asked for."""

    def __init__(self, services: Services | None = None) -> None:
        super().__init__()
        self._services = services

    def __missing__(self, step: str) -> ActionBinding:
        body = self[step] = ActionBinding(step, self._services)
        return body


def bodies_of(program: Program, surroundings: Surroundings | None) -> ActionBodies:
    """Make the bodies of a flow's actions, in a process that has no services of its own."""
    return ActionBodies(services_of(program, None, surroundings))


def services_of(program: Program, services: Services | None, surroundings: Surroundings | None) -> Services:
    """Return what the actions and triggers of a flow find. Only a flow of a project reaches its connections."""
    services = services or Services()
    if surroundings is None or program.beside is None:
        return services
    return replace(services, connection=surroundings.connection, secrets=surroundings.secrets)


def _as_data(value: Any, key: str) -> Any:
    """What a run is given, as JSON data. Models, dataclasses and dates have a form in it; a ValueError for the rest."""
    try:
        return plain_value(value, key)
    except ValueError as error:
        try:
            return plain_value(plain(value), key)
        except NotPlainData:
            raise error from None


def seed_of(run_id: str) -> int:
    """The seed of a flow's run: what is random in it follows from its id, wherever it runs."""
    return int.from_bytes(sha256(run_id.encode()).digest()[:8])


# -- loading ----------------------------------------------------------------------------------------------------------


FLOW_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
"""The endings of files that are taken for flows."""

_NAMELESS = "flow"


def load(
    source: str | PathLike[str] | dict[str, Any],
    *,
    name: str | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    runtime: RuntimePort | None = None,
    handlers: ActionHandlers | None = None,
) -> Flow:
    """A flow from a path, from JSON or YAML text, or from a dict, in Logic Apps' dialect or in Loom's.

    Raises `DefinitionError`, which lists every problem with its JSON path. `limits` raises what the document may ask
    for: `{"max_iterations": 100_000, "max_duration_s": 7 * 86_400}`. A flow is named after its
    file, or as its document says. Its calls of connections are checked against the documents of the connectors in
    `handlers`; None: those that are registered with `loom.connector`.
    """
    allowed = limits_of(limits)
    data, stem = _read(source)
    document = read_document(data, name=name or stem)
    if not document.name:
        document = replace(document, name=_NAMELESS)
    program, problems = compile_flow(document, limits=allowed)
    if program is not None:
        problems = [*problems, *connection_problems(program, handlers)]
    errors = [problem for problem in problems if problem.severity == "error"]
    if program is None or errors:
        raise DefinitionError(errors)
    return Flow(program, document, allowed, problems, runtime=runtime)


def connection_problems(program: Program, handlers: ActionHandlers | None = None) -> list[Problem]:
    """List what the documents of connectors say against the calls of a program. Without a connector it costs nothing.

    `handlers` has the connectors; None: those that are registered with `loom.connector`.
    """
    registry = handlers if handlers is not None else HANDLERS
    if not registry.connectors:
        return []
    from loom.effects.actions.connectors.checks import connection_problems

    return connection_problems(program, registry)


def limits_of(given: Limits | Mapping[str, Any] | None) -> Limits:
    """Make limits of what a caller gives by name; a `ValueError` for what is none."""
    if isinstance(given, Limits):
        return given
    given = given or {}
    known = Limits.__struct_fields__
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"There is no limit {name!r}: {', '.join(known)}.{did_you_mean(name, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"The limit {name} must be a number above 0, not {value!r}.")
    return Limits(**given)


def flow_of(text: str) -> Flow:
    """Make a flow of the text that it was stored as. It loads although a new document with the text may be refused."""
    document, limits = stored_document(text)
    program, warnings = compile_flow(document, limits=limits, stored=True)
    if program is None:
        raise DefinitionError(problem for problem in warnings if problem.severity == "error")
    return Flow(program, document, limits, warnings)


def refusals_of(flow: Flow) -> list[Problem]:
    """List why a stored flow would be refused as a new document."""
    if not flow.warnings:
        return []  # it need not be compiled anew to find that out
    document, limits = stored_document(flow.document)
    return [problem for problem in compile_flow(document, limits=limits)[1] if problem.severity == "error"]


def _read(source: str | PathLike[str] | dict[str, Any]) -> tuple[dict[str, Any] | str, str]:
    """The document's data or text, and the name of its file."""
    if isinstance(source, dict):
        return source, ""
    if isinstance(source, str) and (not source.strip() or "\n" in source or source.lstrip("\ufeff \t\r")[:1] in "{["):
        return source, ""
    if not isinstance(source, str | PathLike):
        raise TypeError(f"loom.load() takes a path, a text in JSON or YAML, or a dict, not {type(source).__name__}.")
    path = Path(source)
    stem = path.parent.name if path.name.lower() == "workflow.json" and path.parent.name else path.stem
    return file_text(path, str(path)), stem


def file_text(path: Path, subject: str = "it") -> str:
    """The text of a file; a `DefinitionError` about the `subject` if there is none to read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DefinitionError([Problem("", f"{subject} is larger than {MAX_BYTES >> 20} MiB")])
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DefinitionError([Problem("", f"{subject} is no text in UTF-8: {error}")]) from error
    except OSError as error:
        raise DefinitionError([Problem("", f"{subject} cannot be read: {error.strerror or error}")]) from error

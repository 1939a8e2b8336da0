"""What a project lacks to run as it does in Azure: settings, handlers of connections, and what has no equal here.

None of it keeps a project from being served: an action that cannot be done fails when its turn comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.effects.actions.binding import BUILT_IN_ACTIONS
from loom.effects.actions.child import child_name
from loom.effects.actions.handlers import HANDLERS, ActionHandlers
from loom.effects.actions.outcomes import ActionFailed
from loom.flows.action_types import spelt
from loom.flows.beside import PARAMETER, SETTING, NamedCall, calls_of, connection_name, find_name
from loom.flows.calls import ActionCall
from loom.flows.diagnostics import Problem, at, suggestion
from loom.flows.nodes.external import ExternalCall
from loom.flows.triggers import POLLED, SUBSCRIBED, TIMED, fires_by_request
from loom.runtime.project import FileProblem, Project
from loom.runtime.project_folder import CONNECTIONS, PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loom.flows.program import Node, Trigger
    from loom.runtime.flow import Flow

_IDENTITY = "managedserviceidentity"


class _Use(NamedTuple):
    """An action or a trigger that names a connection."""

    file: Path
    path: str
    type: str
    """In lower case."""
    name: str
    """The connection, as it is written there."""


def project_problems(project: Project, handlers: ActionHandlers = HANDLERS) -> list[FileProblem]:
    """List what a project lacks. A setting or a connection that is not there is an error, the rest are warnings."""
    checks = _Checks(project, handlers)
    checks.settings()
    for name, flow in project.items():
        checks.flow(project.files[name], flow)
    checks.connections()
    return checks.found


class _Checks:
    """The problems of one project so far."""

    def __init__(self, project: Project, handlers: ActionHandlers) -> None:
        self.found: list[FileProblem] = []
        self._project = project
        self._handlers = handlers
        self._uses: dict[str, list[_Use]] = {}

    def _add(self, file: Path, path: str, message: str, hint: str = "", *, is_error: bool = False) -> None:
        problem = Problem(path, message, hint, "error" if is_error else "warning")
        if FileProblem(file, problem) not in self.found:
            self.found.append(FileProblem(file, problem))

    # -- settings -----------------------------------------------------------------------------------------------------

    def settings(self) -> None:
        """Check the settings that the files beside the workflows name."""
        values = self._project.values_of_runs
        for name, (file, path) in self._project.parameter_places.items():
            self._settings(file, calls_of(SETTING, values.parameters[name].value, path))
        for name, section in self._project.connections.items():
            path = at(section, name)
            self._settings(self._project.file(CONNECTIONS), calls_of(SETTING, values.connections[name], path))
            for call in calls_of(PARAMETER, values.connections[name], path):
                if call.name is not None and call.name.lower() not in values.parameters:
                    known = (each.name for each in values.parameters.values())
                    message = f"there is no parameter '{call.name}' in {PARAMETERS}"
                    hint = suggestion(call.name, known)
                    self._add(self._project.file(CONNECTIONS), call.path, message, hint, is_error=True)

    def _settings(self, file: Path, calls: list[NamedCall]) -> None:
        for call in calls:
            if call.name is None:
                message = "the name of a setting is known only in the run: such an action fails"
                hint = "unless another expression of the workflow names that setting"
                self._add(file, call.path, message, hint)
            elif self._project.values_of_runs.settings.find(call.name) is None:
                hint = f"set {call.name} in the environment, or in local.settings.json"
                self._add(file, call.path, f"there is no setting '{call.name}'", hint, is_error=True)

    # -- workflows ----------------------------------------------------------------------------------------------------

    def flow(self, file: Path, flow: Flow) -> None:
        """Check one workflow."""
        facts: dict[str, Any] = json.loads(flow.document)
        definition, path = facts["definition"], facts["path"]
        self._settings(file, calls_of(SETTING, definition, path))
        parts = {place: part for part, place in _parts(definition, path)}
        for place, part in parts.items():
            self._part(file, part, place)
        for trigger in flow.program.triggers:
            self._trigger(file, at(at(path, "triggers"), trigger.name), trigger)
        for node in flow.program.nodes:
            if isinstance(node.operation, ExternalCall) and node.static_result is None:
                self._action(file, node, parts.get(node.path))

    def _part(self, file: Path, part: dict[str, Any], path: str) -> None:
        inputs = part.get("inputs")
        name = connection_name(inputs)
        if name is not None:
            self._uses.setdefault(name.lower(), []).append(_Use(file, path, str(part["type"]).lower(), name))
        kind = inputs.get("authentication") if isinstance(inputs, dict) else None
        if isinstance(kind, dict) and str(kind.get("type")).lower() == _IDENTITY:
            place = at(at(at(path, "inputs"), "authentication"), "type")
            hint = "use Basic, Raw, ActiveDirectoryOAuth or ClientCertificate with settings"
            self._add(file, place, "there is no managed identity here", hint)

    def _trigger(self, file: Path, path: str, trigger: Trigger) -> None:
        kind = trigger.definition.get("type")
        if trigger.type in POLLED or trigger.type in SUBSCRIBED:
            names = trigger.connection.names if trigger.connection is not None else ()
            if trigger.connection is not None and self._handlers.connector_for(names) is None:
                how = "polls" if trigger.type in POLLED else "subscribes"
                hint = f'register loom.connector("{names[0] if names else "NAME"}", ...)'
                self._add(file, path, f"nothing here {how} for this trigger of type {kind}", hint)
        elif not fires_by_request(trigger) and trigger.type not in TIMED:
            hint = "start its runs with POST /v1/definitions/NAME/invoke"
            self._add(file, path, f"nothing fires a trigger of type {kind} here", hint)

    def _action(self, file: Path, node: Node, part: Any) -> None:
        inputs = part.get("inputs") if isinstance(part, dict) else None
        if node.type == "workflow":
            self._child(file, node, inputs)
        if node.type in BUILT_IN_ACTIONS or node.type in self._handlers.actions or connection_name(inputs) is not None:
            return
        kind = spelt(node.type)
        self._add(file, node.path, f"nothing here does actions of type {kind}", f'register @loom.action("{kind}")')

    def _child(self, file: Path, node: Node, inputs: Any) -> None:
        try:
            name = child_name(ActionCall(action=node.name, type=node.type, inputs=inputs))
        except ActionFailed:
            return  # the name is in an expression, or loading has told that there is none
        if "@" not in name and not name.endswith("]") and find_name(self._project, name) is None:
            path = at(node.path, "inputs")
            self._add(file, path, f"the project has no workflow '{name}'", suggestion(name, self._project))

    # -- connections --------------------------------------------------------------------------------------------------

    def connections(self) -> None:
        """Check the connections that actions and triggers name, and whether there is a handler for them."""
        file = self._project.file(CONNECTIONS)
        known = {name.lower(): name for name in self._project.connections}
        for key, uses in self._uses.items():
            name, first = known.get(key), uses[0]
            if name is None:
                hint = suggestion(key, known.values()) or f"known are {', '.join(known.values()) or 'none'}"
                for use in uses:
                    message = f"there is no connection '{use.name}' in {CONNECTIONS}"
                    self._add(use.file, use.path, message, hint, is_error=file.exists())
                continue
            for kind in sorted({use.type for use in uses}):
                if not self._handlers.serves_connection(name, kind):
                    count = sum(use.type == kind for use in uses)
                    where = f"the first is {first.path} in {first.file.parent.name}"
                    message = f"nothing here does actions of type {spelt(kind)} over this connection: {count} name it"
                    hint = f'{where}; register @loom.action("{spelt(kind)}")'
                    self._add(file, at(self._project.connections[name], name), message, hint)


def _parts(definition: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """List the triggers and actions of a definition, at any depth, each with its JSON path."""
    waiting: list[tuple[Any, str]] = [
        (definition.get(key), at(path, key)) for key in ("triggers", "actions") if key in definition
    ]
    while waiting:
        value, place = waiting.pop(0)
        if not isinstance(value, dict):
            continue
        if isinstance(value.get("type"), str) and "inputs" in value:
            yield value, place
        waiting += [(item, at(place, key)) for key, item in value.items() if key != "inputs"]

"""Checks of a program against the documents of its connectors, before anything runs.

An operation that does not exist and a parameter that is missing are errors with their JSON path. What only a run can
tell is left to the run: a path that is one expression, parameters that come as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.effects.actions.connectors.calls import Connector, connector_of
from loom.effects.actions.connectors.openapi import ApiError, path_shape
from loom.effects.actions.connectors.requests import (
    GATEWAY_QUERIES,
    is_by_id,
    is_missed,
    method_of,
    needs_body,
    place_of,
)
from loom.flows.diagnostics import ProblemList, at, suggestion

if TYPE_CHECKING:
    from loom.effects.actions.connectors.openapi import ApiOperation
    from loom.effects.actions.handlers import ActionHandlers
    from loom.flows.connections import ConnectionUse
    from loom.flows.diagnostics import Problem
    from loom.flows.program import Program


def connection_problems(program: Program, handlers: ActionHandlers) -> list[Problem]:
    """List what is wrong with the calls of connections, as far as connectors with documents are registered."""
    problems = ProblemList()
    uses = [trigger.connection for trigger in program.triggers] + [node.connection for node in program.nodes]
    for use in uses:
        spec = handlers.connector_for(use.names) if use is not None else None
        if use is None or spec is None or spec.openapi is None:
            continue
        try:
            _Check(problems, use, connector_of(spec)).look()
        except ApiError as error:
            problems.error(use.path, f"the document of the connector '{spec.name}' cannot be used: {error}")
    return problems.found


class _Check:
    """The check of one call."""

    def __init__(self, problems: ProblemList, use: ConnectionUse, connector: Connector) -> None:
        self.problems = problems
        self.use = use
        self.connector = connector
        self.inputs: dict[str, Any] = use.inputs if isinstance(use.inputs, dict) else {}

    def look(self) -> None:
        """Check the operation, then what it is given."""
        if not isinstance(self.use.inputs, dict):
            return
        if is_by_id(self.use.type):
            operation = self._named()
            if operation is not None:
                self._given_by_name(operation)
        else:
            operation = self._found()
            if operation is not None:
                self._given_by_place(operation)
        if operation is not None and self.use.page_items and operation.pages is None:
            path = at(at(self.use.path, "runtimeConfiguration"), "paginationPolicy")
            self.problems.warn(path, f"'{operation.label}' has no pages: its document has no x-ms-pageable")

    # -- the operation -------------------------------------------------------------------------------------------------

    def _named(self) -> ApiOperation | None:
        host = self.inputs.get("host")
        name = host.get("operationId") if isinstance(host, dict) else None
        place = at(self.use.inputs_path, "host")
        if name is None:
            self.problems.error(place, f"an action of the connector '{self.connector.name}' needs an operationId")
        if not isinstance(name, str) or _is_open(name):
            return None
        found = self.connector.api.by_id(name)
        if found is None:
            message = f"the connector '{self.connector.name}' has no operation '{name}'"
            self.problems.error(at(place, "operationId"), message, self.connector.api.near_id(name))
        return found

    def _found(self) -> ApiOperation | None:
        text, method = self.inputs.get("path"), method_of(self.use.type, self.inputs)
        if text is None:
            self.problems.error(
                self.use.inputs_path, f"an action of the connector '{self.connector.name}' needs a path"
            )
        shape = path_shape(text) if isinstance(text, str) else None
        if shape is None or _is_open(method):
            return None
        api = self.connector.api
        found = api.possible(method, shape)
        if found:
            return found[0] if len(found) == 1 else None
        others = sorted({operation.method.upper() for operation in api.possible(None, shape)})
        if others:
            place = at(self.use.inputs_path, "method") if "method" in self.inputs else self.use.inputs_path
            message = f"the connector '{self.connector.name}' has no {method.upper()} for this path"
            self.problems.error(place, message, f"it has {', '.join(others)}")
            return None
        tell = self.problems.error if shape.is_certain else self.problems.warn
        message = f"the connector '{self.connector.name}' has no operation {method.upper()} {text}"
        tell(at(self.use.inputs_path, "path"), message, api.near_path(shape))
        return None

    # -- parameters ----------------------------------------------------------------------------------------------------

    def _given_by_place(self, operation: ApiOperation) -> None:
        queries, headers = self.inputs.get("queries"), self.inputs.get("headers")
        self._missing(operation, "query", queries, "queries")
        self._missing(operation, "header", headers, "headers")
        for name in queries if isinstance(queries, dict) else ():
            if operation.parameter(name) is None and not _is_open(name) and name.lower() not in GATEWAY_QUERIES:
                known = [one.name for one in operation.parameters if one.place == "query"]
                path = at(at(self.use.inputs_path, "queries"), name)
                message = f"'{operation.label}' has no query parameter '{name}'"
                self.problems.warn(path, message, suggestion(name, known))
        if needs_body(operation) and self.inputs.get("body") is None:
            self.problems.error(self.use.inputs_path, f"'{operation.label}' needs a body")

    def _missing(self, operation: ApiOperation, place: str, given: Any, field: str) -> None:
        """Report parameters that a request cannot do without."""
        if given is not None and (not isinstance(given, dict) or any(map(_is_open, given))):
            return
        held = {name.lower() for name, value in (given or {}).items() if value is not None}
        path = at(self.use.inputs_path, field) if given is not None else self.use.inputs_path
        for parameter in operation.parameters:
            is_given = parameter.name.lower() in held
            if parameter.place == place and not is_given and is_missed(parameter, self.connector.target):
                self.problems.error(path, f"'{operation.label}' needs the {place} parameter '{parameter.name}'")

    def _given_by_name(self, operation: ApiOperation) -> None:
        given = self.inputs.get("parameters")
        if given is not None and (not isinstance(given, dict) or any(map(_is_open, given))):
            return
        place = at(self.use.inputs_path, "parameters") if given is not None else self.use.inputs_path
        found: set[str] = set()
        for key, value in (given or {}).items():
            parameter, _ = place_of(operation, key)
            if parameter is None:
                known = [one.name for one in (*operation.parameters, operation.body) if one is not None]
                message = f"'{operation.label}' has no parameter '{key}'"
                self.problems.error(at(place, key), message, suggestion(key, known))
            elif value is not None:
                found.add(parameter.name)
        for parameter in operation.parameters:
            if is_missed(parameter, self.connector.target) and parameter.name not in found:
                self.problems.error(place, f"'{operation.label}' needs the parameter '{parameter.name}'")
        if operation.body is not None and needs_body(operation) and operation.body.name not in found:
            self.problems.error(place, f"'{operation.label}' needs the parameter '{operation.body.name}'")


def _is_open(text: str) -> bool:
    """Say whether a text may be something else in a run."""
    return "@" in text or text.startswith("[")

"""The connection that an action calls, and the connector that is registered for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.flows.connections import CONNECTION_TYPES, connection_names

if TYPE_CHECKING:
    from loom.effects.actions.connections import ConnectorSpec
    from loom.effects.actions.handlers import ActionHandlers
    from loom.effects.execution import StepExecution
    from loom.flows.calls import ActionCall
    from loom.flows.connections import ConnectionUse
    from loom.flows.program import Program


def connector_of(execution: StepExecution, call: ActionCall, handlers: ActionHandlers) -> ConnectorSpec | None:
    """Find the connector of an action's connection; None if it calls no connection, or nothing is registered."""
    if not handlers.connectors or call.type not in CONNECTION_TYPES:
        return None
    return handlers.connector_for(names_of(execution, call))


def names_of(execution: StepExecution, call: ActionCall) -> tuple[str, ...]:
    """List the names of an action's connection: as the document has it, then as the run has evaluated it."""
    if call.type not in CONNECTION_TYPES:
        return ()
    use = use_of(execution, call)
    evaluated = connection_names(call.type, call.inputs)
    return evaluated if use is None else tuple(dict.fromkeys((*use.names, *evaluated)))


def use_of(execution: StepExecution, call: ActionCall) -> ConnectionUse | None:
    """Find what the document says about an action that calls a connection."""
    program: Program | None = getattr(getattr(execution.host, "definition", None), "program", None)
    node = program.find(call.action) if program is not None else None
    return node.connection if node is not None else None

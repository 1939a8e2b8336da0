"""Actions of all other types: handlers registered with `loom.action`. May import loom.flows and loom.effects.

Connectors answer like servers: what a handler returns becomes `{statusCode, headers, body}` unless it is that already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.effects.actions.handlers import call_handler
from loom.effects.actions.outcomes import NOT_SUPPORTED, ActionFailed, argument_of, context_of, within_limit
from loom.effects.actions.plain import plain
from loom.effects.actions.statuses import code_of, is_failure
from loom.flows.calls import ActionCall, ActionOutcome
from loom.flows.schemas_table import spelt

if TYPE_CHECKING:
    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution

BARE = frozenset({"activity", "actor", "ai", "waitforevent"})
"""Types whose outputs are what their handler returned."""


async def connector_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Call the handler of the action's type."""
    function = services.handlers.actions.get(call.type)
    if function is None:
        raise ActionFailed(
            f"Nothing here can do the action '{call.action}' of type '{spelt(call.type)}'. Register a handler with "
            f'@loom.action("{spelt(call.type)}").',
            NOT_SUPPORTED,
        )

    async def work() -> ActionOutcome:
        inputs = call.inputs
        argument = argument_of(inputs) if isinstance(inputs, dict) and set(inputs) == {"input"} else inputs
        result = plain(await call_handler(function, {} if argument is None else argument, context_of(execution, call)))
        return ActionOutcome(outputs=result) if call.type in BARE else _answered(result)

    return await within_limit(execution, call, work)


def _answered(result: Any) -> ActionOutcome:
    """What a connector's handler returned, as a server's answer."""
    if not isinstance(result, dict) or not ({"body", "statusCode"} & set(result)):
        result = {"body": result}
    outputs = {"statusCode": 200, "headers": {}, **result}
    try:
        status = int(outputs["statusCode"])
    except (TypeError, ValueError):
        return ActionOutcome(outputs=outputs, code=str(outputs["statusCode"]))
    if is_failure(status):
        message = f"The handler answered {status} {code_of(status)}."
        return ActionOutcome("Failed", outputs, code_of(status), message)
    return ActionOutcome(outputs=outputs, code=code_of(status))

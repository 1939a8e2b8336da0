"""The activity action: a registered function of the author's. May import loom.flows and loom.effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.effects.actions.handlers import call_handler
from loom.effects.actions.outcomes import ActionFailed, argument_of, context_of, text_input, within_limit
from loom.effects.actions.plain import plain
from loom.flows.calls import ActionCall, ActionOutcome
from loom.flows.suggest import did_you_mean

if TYPE_CHECKING:
    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution


async def activity_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Call the activity. What it returns are the outputs."""
    name = text_input(call, "activityType")
    function = services.handlers.activities.get(name)
    if function is None:
        near = did_you_mean(name, services.handlers.activities)
        raise ActionFailed(
            f"No activity is registered as {name!r}.{near} Register one with @loom.activity({name!r}).",
            "ActivityNotFound",
        )

    async def work() -> ActionOutcome:
        argument = argument_of(call.inputs, "activityType")
        return ActionOutcome(outputs=plain(await call_handler(function, argument, context_of(execution, call))))

    return await within_limit(execution, call, work)

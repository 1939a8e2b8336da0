"""Reference and workflow functions: what the run around the expression knows. Pure.

Each asks the environment, which raises `FunctionError` for a name that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.arguments import want_string
from loom.expressions.registry import function

if TYPE_CHECKING:
    from loom.expressions.environment import Environment


@function("variables", 1, asks=True)
def variables(env: Environment, name: Any) -> Any:
    """The value of a variable."""
    return env.variable(name if isinstance(name, str) else want_string("variableName", name))


@function("parameters", 1, asks=True)
def parameters(env: Environment, name: Any) -> Any:
    """The value of a parameter of the definition."""
    return env.parameter(want_string("parameterName", name))


@function("appsetting", 1, asks=True)
def app_setting(env: Environment, name: Any) -> Any:
    """A setting of the host, null if there is none."""
    return env.app_setting(want_string("settingName", name))


@function("actions", 1, asks=True)
def actions(env: Environment, name: Any) -> Any:
    """The record of an action."""
    return env.action(want_string("actionName", name))


@function("outputs", 1, asks=True)
@function("actionOutputs", 1, asks=True)
def outputs(env: Environment, name: Any) -> Any:
    """The outputs of an action."""
    return env.outputs(name if isinstance(name, str) else want_string("actionName", name))


@function("body", 1, asks=True)
@function("actionBody", 1, asks=True)
def body(env: Environment, name: Any) -> Any:
    """The body in the outputs of an action; outputs without one are all body."""
    result = env.outputs(name if isinstance(name, str) else want_string("actionName", name))
    return result["body"] if isinstance(result, dict) and "body" in result else result


@function("action", 0, asks=True)
def action(env: Environment) -> Any:
    """The record of the action that the expression belongs to."""
    return env.current_action()


@function("trigger", 0, asks=True)
@function("triggers", 0, asks=True)
def trigger(env: Environment) -> Any:
    """The record of the trigger."""
    return env.trigger()


@function("triggerOutputs", 0, asks=True)
def trigger_outputs(env: Environment) -> Any:
    """The outputs of the trigger, null if it has none."""
    record = env.trigger()
    return record.get("outputs") if isinstance(record, dict) else None


@function("triggerBody", 0, asks=True)
def trigger_body(env: Environment) -> Any:
    """The body in the outputs of the trigger, null if there is none."""
    result = trigger_outputs(env)
    return result.get("body") if isinstance(result, dict) else None


@function("item", 0, asks=True)
def item(env: Environment) -> Any:
    """The element at hand of the innermost loop or of the data operation."""
    return env.item()


@function("items", 1, asks=True)
def items(env: Environment, loop: Any) -> Any:
    """The element at hand of a named loop."""
    return env.items(want_string("loopName", loop))


@function("iterationIndexes", 1, asks=True)
def iteration_indexes(env: Environment, loop: Any) -> int:
    """The number of a named loop's iteration, from 0."""
    return env.iteration_index(want_string("loopName", loop))


@function("result", 1, asks=True)
def result(env: Environment, scope: Any) -> Any:
    """The records of what is in a scope or loop."""
    return env.result(want_string("scopeName", scope))


@function("workflow", 0, asks=True)
def workflow(env: Environment) -> Any:
    """The record of the workflow and of its run."""
    return env.workflow()


@function("listCallbackUrl", 0, asks=True)
def list_callback_url(env: Environment) -> str:
    """Where the service that is being subscribed to shall answer."""
    return env.callback_url()


@function("agentParameters", 1, asks=True)
def agent_parameters(env: Environment, name: Any) -> Any:
    """A parameter of an agent's tool."""
    return env.agent_parameter(want_string("parameterName", name))

"""Reference and workflow functions: what the run around the expression knows. Pure.

Each asks the environment, which raises `FunctionError` for a name that it does not know. The functions of form and
multipart bodies read parts of what an action or the trigger has left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import function, want_integer, want_string
from loom.expressions.meter import ELEMENT, FEW, spend
from loom.expressions.values import kind_of

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
    """The current element of the innermost loop or of the data operation."""
    return env.item()


@function("items", 1, asks=True)
def items(env: Environment, loop: Any) -> Any:
    """The current element of a named loop."""
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
    """The address at which the service that is being subscribed to shall answer."""
    return env.callback_url()


@function("agentParameters", 1, asks=True)
def agent_parameters(env: Environment, name: Any) -> Any:
    """A parameter of an agent's tool."""
    return env.agent_parameter(want_string("parameterName", name))


_FORM_DATA, _MULTIPART = "$formdata", "$multipart"


def _action_part(env: Environment, action: Any, key: str) -> tuple[str, list[Any]]:
    name = want_string("actionName", action)
    return _part(f"the body of the action '{name}'", env.outputs(name), key)


def _trigger_part(env: Environment, key: str) -> tuple[str, list[Any]]:
    record = env.trigger()
    return _part("the body of the trigger", record.get("outputs") if isinstance(record, dict) else None, key)


def _part(whose: str, outputs: Any, key: str) -> tuple[str, list[Any]]:
    """Find the list that a body has under a key; returns the name of the body, for errors, and the list."""
    body = outputs.get("body", outputs) if isinstance(outputs, dict) else outputs
    part = body.get(key) if isinstance(body, dict) else None
    if not isinstance(part, list):
        found = f"has no '{key}'" if isinstance(body, dict) else f"is of kind {kind_of(body)}"
        raise FunctionError(f"{whose} is no {'form' if key == _FORM_DATA else 'multipart body'}: it {found}")
    return whose, part


# --- form data ----------------------------------------------------------------------------------------------------


@function("formDataValue", 2, asks=True)
def form_data_value(env: Environment, action: Any, key: Any) -> Any:
    """The one value that the form of an action has under a key, null if it has none."""
    return _single(*_action_part(env, action, _FORM_DATA), key)


@function("formDataMultiValues", 2, asks=True)
def form_data_multi_values(env: Environment, action: Any, key: Any) -> list[Any]:
    """All values that the form of an action has under a key."""
    return _values(_action_part(env, action, _FORM_DATA)[1], key)


@function("triggerFormDataValue", 1, asks=True)
def trigger_form_data_value(env: Environment, key: Any) -> Any:
    """The one value that the form of the trigger has under a key, null if it has none."""
    return _single(*_trigger_part(env, _FORM_DATA), key)


@function("triggerFormDataMultiValues", 1, asks=True)
def trigger_form_data_multi_values(env: Environment, key: Any) -> list[Any]:
    """All values that the form of the trigger has under a key."""
    return _values(_trigger_part(env, _FORM_DATA)[1], key)


def _values(form: list[Any], key: Any) -> list[Any]:
    wanted = want_string("key", key)
    if len(form) > FEW:
        spend(len(form) * ELEMENT)
    return [field.get("value") for field in form if isinstance(field, dict) and field.get("key") == wanted]


def _single(whose: str, form: list[Any], key: Any) -> Any:
    values = _values(form, key)
    if len(values) > 1:
        raise FunctionError(f"{whose} has {len(values)} values for '{key}'; the function for several takes them all")
    return values[0] if values else None


# --- multipart ----------------------------------------------------------------------------------------------------


@function("multipartBody", 2, asks=True)
def multipart_body(env: Environment, action: Any, index: Any) -> Any:
    """The body of one part, from 0, of the multipart body of an action."""
    return _body(*_action_part(env, action, _MULTIPART), index)


@function("triggerMultipartBody", 1, asks=True)
def trigger_multipart_body(env: Environment, index: Any) -> Any:
    """The body of one part, from 0, of the multipart body of the trigger."""
    return _body(*_trigger_part(env, _MULTIPART), index)


def _body(whose: str, parts: list[Any], index: Any) -> Any:
    position = want_integer("index", index)
    if not 0 <= position < len(parts):
        raise FunctionError(f"{whose} has {len(parts)} parts, numbered from 0; there is no part {position}")
    part = parts[position]
    return part.get("body", part) if isinstance(part, dict) else part

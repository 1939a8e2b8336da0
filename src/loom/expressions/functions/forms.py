"""Conversion functions for form and multipart bodies of actions and of the trigger. Pure.

May import `arguments`, `environment`, `errors`, `registry` and `values`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.arguments import want_integer, want_string
from loom.expressions.errors import FunctionError
from loom.expressions.limits import ELEMENT, FEW
from loom.expressions.metering import spend
from loom.expressions.registry import function
from loom.expressions.values import kind_of

if TYPE_CHECKING:
    from loom.expressions.environment import Environment

FORM_DATA, MULTIPART = "$formdata", "$multipart"


def _action_part(env: Environment, action: Any, key: str) -> tuple[str, list[Any]]:
    name = want_string("actionName", action)
    return _part(f"the body of the action '{name}'", env.outputs(name), key)


def _trigger_part(env: Environment, key: str) -> tuple[str, list[Any]]:
    record = env.trigger()
    return _part("the body of the trigger", record.get("outputs") if isinstance(record, dict) else None, key)


def _part(whose: str, outputs: Any, key: str) -> tuple[str, list[Any]]:
    """What to call a body, and the list that it has under a key."""
    body = outputs.get("body", outputs) if isinstance(outputs, dict) else outputs
    part = body.get(key) if isinstance(body, dict) else None
    if not isinstance(part, list):
        found = f"has no '{key}'" if isinstance(body, dict) else f"is of kind {kind_of(body)}"
        raise FunctionError(f"{whose} is no {'form' if key == FORM_DATA else 'multipart body'}: it {found}")
    return whose, part


# --- form data ----------------------------------------------------------------------------------------------------


@function("formDataValue", 2, asks=True)
def form_data_value(env: Environment, action: Any, key: Any) -> Any:
    """The one value that the form of an action has under a key, null if it has none."""
    return _single(*_action_part(env, action, FORM_DATA), key)


@function("formDataMultiValues", 2, asks=True)
def form_data_multi_values(env: Environment, action: Any, key: Any) -> list[Any]:
    """All values that the form of an action has under a key."""
    return _values(_action_part(env, action, FORM_DATA)[1], key)


@function("triggerFormDataValue", 1, asks=True)
def trigger_form_data_value(env: Environment, key: Any) -> Any:
    """The one value that the form of the trigger has under a key, null if it has none."""
    return _single(*_trigger_part(env, FORM_DATA), key)


@function("triggerFormDataMultiValues", 1, asks=True)
def trigger_form_data_multi_values(env: Environment, key: Any) -> list[Any]:
    """All values that the form of the trigger has under a key."""
    return _values(_trigger_part(env, FORM_DATA)[1], key)


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
    return _body(*_action_part(env, action, MULTIPART), index)


@function("triggerMultipartBody", 1, asks=True)
def trigger_multipart_body(env: Environment, index: Any) -> Any:
    """The body of one part, from 0, of the multipart body of the trigger."""
    return _body(*_trigger_part(env, MULTIPART), index)


def _body(whose: str, parts: list[Any], index: Any) -> Any:
    position = want_integer("index", index)
    if not 0 <= position < len(parts):
        raise FunctionError(f"{whose} has {len(parts)} parts, numbered from 0; there is no part {position}")
    part = parts[position]
    return part.get("body", part) if isinstance(part, dict) else part

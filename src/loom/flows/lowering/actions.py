"""One action: its type decides who makes its operation; what all actions have is made here. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loom.flows.diagnostics import at
from loom.flows.lowering import calls, containers, data, ends, loops, variables
from loom.flows.lowering.context import Action, Lowered, Lowering, Place
from loom.flows.lowering.keys import check_keys
from loom.flows.lowering.policies import retry_limits, retry_policy, static_result, wants_secure
from loom.flows.lowering.quantities import checked, duration
from loom.flows.program import Node, Value
from loom.flows.schemas_table import ACTION_TYPES

if TYPE_CHECKING:
    from loom.flows.lowering.sources import Source

Lower = Callable[[Action], Lowered]

_LOWER: dict[str, Lower] = {
    "compose": data.compose,
    "parsejson": data.parse_json,
    "select": data.select,
    "query": data.query,
    "join": data.join,
    "table": data.table,
    "expression": data.expression,
    "initializevariable": variables.initialize,
    "setvariable": variables.set_variable,
    "incrementvariable": variables.increment,
    "decrementvariable": variables.decrement,
    "appendtoarrayvariable": variables.append_to_array,
    "appendtostringvariable": variables.append_to_string,
    "scope": containers.scope,
    "parallel": containers.parallel,
    "if": containers.if_,
    "switch": containers.switch,
    "retry": containers.retry,
    "foreach": loops.foreach,
    "until": loops.until,
    "while": loops.until,
    "dountil": loops.until,
    "wait": ends.wait,
    "terminate": ends.terminate,
    "response": ends.response,
}
LOOPS = frozenset({"foreach", "until", "while", "dountil"})

MAX_DEPTH, MAX_NAME = 8, 80
"""Limits of the platform: exceeding them is warned of."""


def lower_action(low: Lowering, source: Source, place: Place, block: int) -> int:
    """Make the node of an action, and those of the actions in it. Returns its number."""
    index = len(low.nodes)
    low.nodes.append(None)
    low.reading(index, source.path)
    _check(low, source, place)
    action = Action(low, source, index, place)
    made = _LOWER.get(source.type, calls.call)(action)
    secure_inputs, secure_outputs = wants_secure(source)
    low.nodes[index] = Node(
        index=index,
        name=source.name,
        type=source.type,
        path=source.path,
        block=block,
        operation=made.operation,
        loops=place.loops,
        descendants=tuple(range(index + 1, len(low.nodes))),
        blocks=made.blocks,
        retry=retry_policy(action),
        retry_limits=retry_limits(action),
        secure_inputs=secure_inputs,
        secure_outputs=secure_outputs,
        static_result=static_result(action),
        tracked=_tracked(action),
        timeout_s=_timeout(action),
    )
    return index


def _check(low: Lowering, source: Source, place: Place) -> None:
    if source.type not in ACTION_TYPES:
        name = source.data["type"]
        hint = low.problems.near(name, (known.name for known in ACTION_TYPES.values()))
        low.problems.warn(at(source.path, "type"), f"'{name}' is no known action type, so it needs a handler", hint)
    else:
        check_keys(low, source)
    if place.depth == MAX_DEPTH + 1:
        low.problems.warn(source.path, f"actions are nested deeper than {MAX_DEPTH} levels")
    if len(source.name) > MAX_NAME:
        low.problems.warn(source.path, f"the name is longer than {MAX_NAME} characters")
    if place.loops and source.type in ("terminate", "response"):
        low.problems.warn(
            source.path, f"{source.data['type']} stands in a loop: the first iteration that comes here decides"
        )


def _tracked(action: Action) -> Value | None:
    part = action.source.top("trackedProperties")
    return action.value(part) if part is not None else None


def _timeout(action: Action) -> Value | None:
    limit = action.source.top("limit")
    part = limit.child("timeout") if limit is not None else None
    if part is None or part.value is None or action.source.type in LOOPS:
        return None
    return checked(action, part, duration)

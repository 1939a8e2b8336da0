"""Blocks and actions: order the actions of a block, and make a node of each.

An action's type decides which function makes its operation; what all actions have in common is made here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.flows.action_types import ACTION_TYPES, LOOP_TYPES
from loom.flows.diagnostics import at
from loom.flows.limits import MAX_NAME_LENGTH, MAX_NESTING
from loom.flows.lowering import containers, data, external
from loom.flows.lowering.context import EVERYWHERE, ActionDraft, ActionSource, BlockContext, Located, Lowered, Lowering
from loom.flows.lowering.external import connection_use
from loom.flows.lowering.fields import checked, duration, retry_limits, retry_policy, static_result, wants_secure
from loom.flows.program import STATUS_BITS, SUCCEEDED, Block, Node, Value

if TYPE_CHECKING:
    from collections.abc import Iterable


_After = dict[int, int]
"""Siblings that an action runs after, with the statuses that it asks for, as bits."""

_BITS = {name.lower(): bits for name, bits in STATUS_BITS.items()}


def lower_block(
    low: Lowering, actions: Located | None, place: BlockContext, *, ordered: bool | None = None, only: str = ""
) -> int:
    """Make a block of a map of actions, or of the one action of the name `only`. Return its number."""
    block = Block(len(low.blocks), place.owner)
    low.blocks.append(block)
    made = [
        (source, _lower_action(low, source, place, block.index)) for source in _sources(low, actions, place.loom, only)
    ]
    nodes = {source.name: index for source, index in made}
    if ordered is None:
        ordered = place.loom and not any("runAfter" in source.data or _preview(source) for source, _ in made)
    afters = _in_order(nodes) if ordered else _by_run_after(low, made, nodes)
    _check_cycles(low, afters, {index: source for source, index in made})
    _link(low, block, afters)
    return block.index


def _sources(low: Lowering, actions: Located | None, loom: bool, only: str) -> list[ActionSource]:
    """List the actions that are objects with a type; report each of the others."""
    if actions is None:
        return []
    if only:
        named = [(only, actions)]
    elif isinstance(actions.value, dict):
        named = [(name, Located(data, at(actions.path, name))) for name, data in actions.value.items()]
        for name in getattr(actions.value, "doubles", ()):
            low.problems.error(at(actions.path, name), f"there are two actions named '{name}'")
        for name, part in named:
            _check_second_name(low, name, part)
    else:
        low.problems.error(actions.path, "'actions' must be an object: the actions by their names")
        return []
    return [
        ActionSource(name, data, path, loom)
        for name, (data, path) in named
        if _is_new(low, name, path) and _is_action(low, data, path)
    ]


def _check_second_name(low: Lowering, name: str, part: Located) -> None:
    """Refuse another `name` in an action of a map, whose key is its name. Some types have a field of this name."""
    own = part.child("name")
    if own is None or own.value == name:
        return
    kind = part.value.get("type")
    known = ACTION_TYPES.get(kind.lower()) if isinstance(kind, str) else None
    if known is None or all(field.name != "name" for field in known.fields):
        hint = f"its key is its name: call it {own.value!r:.100} there, or leave this out"
        low.refuse(own.path, f"the action is named '{name}' already", hint)


def _is_new(low: Lowering, name: str, path: str) -> bool:
    first = low.names.setdefault(name.lower(), path)
    if first == path:
        return True
    low.problems.error(path, f"there are two actions named '{name}': the other one is {first}", "case does not matter")
    return False


def _is_action(low: Lowering, data: Any, path: str) -> bool:
    if not isinstance(data, dict):
        low.problems.error(path, "an action must be an object")
        return False
    if not isinstance(data.get("type"), str) or not data["type"].strip():
        low.problems.error(path, "an action needs a 'type'")
        return False
    return True


def _preview(source: ActionSource) -> list[str]:
    """List the names in `conditions: [{dependsOn: name}]`, the `runAfter` of the preview of 2015."""
    conditions = source.data.get("conditions")
    if not isinstance(conditions, list):
        return []
    return [
        item["dependsOn"] for item in conditions if isinstance(item, dict) and isinstance(item.get("dependsOn"), str)
    ]


def _in_order(nodes: dict[str, int]) -> dict[int, _After]:
    indexes = list(nodes.values())
    return {index: {indexes[place - 1]: SUCCEEDED} if place else {} for place, index in enumerate(indexes)}


def _by_run_after(low: Lowering, made: list[tuple[ActionSource, int]], nodes: dict[str, int]) -> dict[int, _After]:
    triggers = low.document.definition.get("triggers")
    siblings = _Siblings(
        nodes,
        {name.lower(): name for name in reversed(nodes)},
        {name.lower() for name in triggers} if isinstance(triggers, dict) else set(),
    )
    return {
        index: {nodes[name]: bits for name, bits in _run_after(low, source, siblings).items()} for source, index in made
    }


class _Siblings(NamedTuple):
    """The names that a `runAfter` may use: actions of the block, and triggers."""

    nodes: dict[str, int]
    by_lower: dict[str, str]
    triggers: set[str]


def _run_after(low: Lowering, source: ActionSource, siblings: _Siblings) -> dict[str, int]:
    part = source.top("runAfter")
    if part is None or part.value is None:
        path = at(source.path, "conditions")
        named = (_sibling(low, name, path, siblings) for name in _preview(source))
        return {sibling: SUCCEEDED for sibling in named if sibling is not None}
    if not isinstance(part.value, dict):
        low.problems.error(part.path, "'runAfter' must be an object: statuses by the names of actions")
        return {}
    found: dict[str, int] = {}
    for name, statuses in part.value.items():
        path = at(part.path, name)
        sibling = _sibling(low, name, path, siblings)
        bits = _bits(low, statuses, path)
        if sibling is not None:
            found[sibling] = found.get(sibling, 0) | bits
    return found


def _sibling(low: Lowering, name: str, path: str, siblings: _Siblings) -> str | None:
    """Find the action of this name. None for a trigger, which has always succeeded, and for an unknown name."""
    if name in siblings.nodes:
        return name
    found = siblings.by_lower.get(name.lower())
    if found is not None or name.lower() in siblings.triggers:
        return found
    hint = low.problems.near(name, siblings.nodes)
    low.problems.error(path, f"'{name}' is no action in the same container, and no trigger", hint)
    return None


def _bits(low: Lowering, statuses: Any, path: str) -> int:
    wanted = [statuses] if isinstance(statuses, str) else statuses
    if not wanted:
        return SUCCEEDED
    if not isinstance(wanted, list):
        low.problems.error(path, 'the statuses must be an array such as ["Succeeded"]')
        return SUCCEEDED
    bits = 0
    for status in wanted:
        known = _BITS.get(status.lower()) if isinstance(status, str) else None
        if known is None:
            message = f"{status!r} is no status that an action can be waited for: {', '.join(STATUS_BITS)}"
            low.problems.warn(path, message, low.problems.near(str(status), STATUS_BITS))
        bits |= known or 0
    if not bits:
        low.problems.error(path, "none of these statuses exists, so the action could never run")
    return bits


def _followers(afters: dict[int, _After]) -> dict[int, list[int]]:
    followers: dict[int, list[int]] = {index: [] for index in afters}
    for index, after in afters.items():
        for one in after:
            followers[one].append(index)
    return followers


def _check_cycles(low: Lowering, afters: dict[int, _After], sources: dict[int, ActionSource]) -> None:
    """Remove actions that can run, then the actions that these let run. What is left waits for itself."""
    missing = {index: len(after) for index, after in afters.items()}
    followers = _followers(afters)
    ready = [index for index, count in missing.items() if not count]
    while ready:
        index = ready.pop()
        del missing[index]
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    if not missing:
        return
    here = next(iter(missing))
    seen: list[int] = []
    while here not in seen:
        seen.append(here)
        here = next(one for one in afters[here] if one in missing)
    cycle = [*seen[seen.index(here) :], here]
    names = " after ".join(sources[index].name for index in cycle)
    low.problems.error(at(sources[here].path, "runAfter"), f"these actions wait for each other: {names}")


def _link(low: Lowering, block: Block, afters: dict[int, _After]) -> None:
    followers = _followers(afters)
    block.nodes = tuple(afters)
    block.roots = tuple(index for index, after in afters.items() if not after)
    block.leaves = tuple(index for index in afters if not followers[index])
    for index, after in afters.items():
        node = low.nodes[index]
        if node is not None:
            node.after = tuple(after.items())
            node.followers = tuple(followers[index])


# -- actions -----------------------------------------------------------------------------------------------------------

_Lower = Callable[[ActionDraft], Lowered]

_LOWER: dict[str, _Lower] = {
    "compose": data.compose,
    "parsejson": data.parse_json,
    "select": data.select,
    "query": data.query,
    "join": data.join,
    "table": data.table,
    "expression": data.expression,
    "initializevariable": data.initialize,
    "setvariable": data.set_variable,
    "incrementvariable": data.increment,
    "decrementvariable": data.decrement,
    "appendtoarrayvariable": data.append_to_array,
    "appendtostringvariable": data.append_to_string,
    "scope": containers.scope,
    "parallel": containers.parallel,
    "if": containers.if_,
    "switch": containers.switch,
    "retry": containers.retry,
    "foreach": containers.foreach,
    "until": containers.until,
    "while": containers.until,
    "dountil": containers.until,
    "wait": external.wait,
    "terminate": external.terminate,
    "response": external.response,
}


def _lower_action(low: Lowering, source: ActionSource, place: BlockContext, block: int) -> int:
    """Make the node of an action and of all actions in it. Return its number."""
    index = len(low.nodes)
    low.nodes.append(None)
    low.reading(index, source.path)
    _check(low, source, place)
    action = ActionDraft(low, source, index, place)
    made = _LOWER.get(source.type, external.call)(action)
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
        connection=connection_use(source),
    )
    return index


def _check(low: Lowering, source: ActionSource, place: BlockContext) -> None:
    if source.type not in ACTION_TYPES:
        name = source.data["type"]
        hint = low.problems.near(name, (known.name for known in ACTION_TYPES.values()))
        low.problems.warn(at(source.path, "type"), f"'{name}' is no known action type, so it needs a handler", hint)
    else:
        _check_keys(low, source)
    if place.depth == MAX_NESTING + 1:
        low.problems.warn(source.path, f"actions are nested deeper than {MAX_NESTING} levels")
    if len(source.name) > MAX_NAME_LENGTH:
        low.problems.warn(source.path, f"the name is longer than {MAX_NAME_LENGTH} characters")
    if place.loops and source.type in ("terminate", "response"):
        low.problems.warn(
            source.path, f"{source.data['type']} stands in a loop: the first iteration that comes here decides"
        )


def _tracked(action: ActionDraft) -> Value | None:
    part = action.source.top("trackedProperties")
    return action.value(part) if part is not None else None


def _timeout(action: ActionDraft) -> Value | None:
    limit = action.source.top("limit")
    part = limit.child("timeout") if limit is not None else None
    if part is None or part.value is None or action.source.type in LOOP_TYPES:
        return None
    return checked(action, part, duration)


# -- misspelt keys -----------------------------------------------------------------------------------------------------

_BODIES = frozenset({"then", "do", "steps"})
"""Names that other languages have for `actions`."""


_POLICY = {"type", "count", "interval", "minimumInterval", "maximumInterval", "maxInterval", "on"}
_INSIDE = {"limit": {"count", "timeout"}, "retry": _POLICY, "retryPolicy": _POLICY}
"""Keys of the objects that any action may have."""


def _check_keys(low: Lowering, source: ActionSource) -> None:
    """Warn of keys of an action and of its inputs that look like the misspelt name of a missing field.

    Other unknown keys are kept and ignored, because real documents have many.
    """
    kind = ACTION_TYPES[source.type]
    own = {field.name for field in kind.fields}
    in_action = own if kind.home == "action" or source.loom else set()
    _check_spelling(low, source.path, source.data, {*EVERYWHERE, *in_action})
    for name, known in _INSIDE.items():
        if isinstance(inside := source.data.get(name), dict):
            _check_spelling(low, at(source.path, name), inside, known)
    inputs = source.data.get("inputs")
    if isinstance(inputs, dict) and own:
        _check_spelling(low, at(source.path, "inputs"), inputs, own)


def _check_spelling(low: Lowering, path: str, keys: Iterable[str], known: set[str]) -> None:
    missing = known.difference(keys)
    for key in keys:
        if key in known:
            continue
        hint = "did you mean 'actions'?" if key in _BODIES and "actions" in missing else low.problems.near(key, missing)
        if hint:
            low.problems.warn(at(path, key), f"'{key}' means nothing here", hint)

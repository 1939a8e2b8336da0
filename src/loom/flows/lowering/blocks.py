"""Blocks: the actions in one pair of braces, in the order that they run in. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.flows.diagnostics import at
from loom.flows.lowering.actions import lower_action
from loom.flows.lowering.sources import Located, Source
from loom.flows.program import STATUS_BITS, SUCCEEDED, Block

if TYPE_CHECKING:
    from loom.flows.lowering.context import Lowering, Place

After = dict[int, int]
"""The siblings that an action runs after, with the statuses that it asks for, as bits."""

_BITS = {name.lower(): bits for name, bits in STATUS_BITS.items()}


def lower_block(
    low: Lowering, actions: Located | None, place: Place, *, ordered: bool | None = None, only: str = ""
) -> int:
    """Make a block of a map of actions, or of the one action of the name `only`. Returns its number."""
    block = Block(len(low.blocks), place.owner)
    low.blocks.append(block)
    made = [
        (source, lower_action(low, source, place, block.index)) for source in _sources(low, actions, place.loom, only)
    ]
    nodes = {source.name: index for source, index in made}
    if ordered is None:
        ordered = place.loom and not any("runAfter" in source.data or _preview(source) for source, _ in made)
    afters = _in_order(nodes) if ordered else _by_run_after(low, made, nodes)
    _check_cycles(low, afters, {index: source for source, index in made})
    _link(low, block, afters)
    return block.index


def _sources(low: Lowering, actions: Located | None, loom: bool, only: str) -> list[Source]:
    """The actions that are objects with a type; a problem for each of the others."""
    if actions is None:
        return []
    if only:
        named = [(only, actions)]
    elif isinstance(actions.value, dict):
        named = [(name, Located(data, at(actions.path, name))) for name, data in actions.value.items()]
        for name in getattr(actions.value, "doubles", ()):
            low.problems.error(at(actions.path, name), f"there are two actions named '{name}'")
    else:
        low.problems.error(actions.path, "'actions' must be an object: the actions by their names")
        return []
    return [
        Source(name, data, path, loom)
        for name, (data, path) in named
        if _is_new(low, name, path) and _is_action(low, data, path)
    ]


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


def _preview(source: Source) -> list[str]:
    """The names in `conditions: [{dependsOn: name}]`, as the preview of 2015 wrote what `runAfter` says today."""
    conditions = source.data.get("conditions")
    if not isinstance(conditions, list):
        return []
    return [
        item["dependsOn"] for item in conditions if isinstance(item, dict) and isinstance(item.get("dependsOn"), str)
    ]


def _in_order(nodes: dict[str, int]) -> dict[int, After]:
    indexes = list(nodes.values())
    return {index: {indexes[place - 1]: SUCCEEDED} if place else {} for place, index in enumerate(indexes)}


def _by_run_after(low: Lowering, made: list[tuple[Source, int]], nodes: dict[str, int]) -> dict[int, After]:
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
    """The actions of a block by their names, and what else a `runAfter` may name."""

    nodes: dict[str, int]
    by_lower: dict[str, str]
    triggers: set[str]


def _run_after(low: Lowering, source: Source, siblings: _Siblings) -> dict[str, int]:
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
    """The action that is meant; None for a trigger, which has always succeeded, and for a problem."""
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


def _followers(afters: dict[int, After]) -> dict[int, list[int]]:
    followers: dict[int, list[int]] = {index: [] for index in afters}
    for index, after in afters.items():
        for one in after:
            followers[one].append(index)
    return followers


def _check_cycles(low: Lowering, afters: dict[int, After], sources: dict[int, Source]) -> None:
    """Take away what can run, and then what that lets run; whatever is left waits for itself."""
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


def _link(low: Lowering, block: Block, afters: dict[int, After]) -> None:
    followers = _followers(afters)
    block.nodes = tuple(afters)
    block.roots = tuple(index for index, after in afters.items() if not after)
    block.leaves = tuple(index for index in afters if not followers[index])
    for index, after in afters.items():
        node = low.nodes[index]
        if node is not None:
            node.after = tuple(after.items())
            node.followers = tuple(followers[index])

"""How a failed flow goes on: what had failed at its top level runs again, and what follows on it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from immutables import Map
from msgspec.structs import replace

from loom.core.persistent import EMPTY_MAP
from loom.flows.outcomes import forgotten
from loom.flows.walk import ENTER

if TYPE_CHECKING:
    from loom.flows.walk import Walk

_FINE = frozenset({"Succeeded", "Skipped"})


def begin_again(walk: Walk) -> None:
    """Forget the top-level actions that did not succeed, with all that is inside of them, and let them run again.

    An action that ran because another had failed is forgotten too: its reason is gone.
    """
    root = walk.frames[1]
    again = _to_repeat(walk)
    gone = [one for index in again for one in (index, *walk.program.nodes[index].descendants)]
    records, _ = forgotten(walk.program, root.records, gone)
    nodes = walk.program.blocks[0].nodes
    left = sum(index not in records for index in nodes)
    fresh = replace(root, records=records, entered=EMPTY_MAP, inputs=EMPTY_MAP, tries=EMPTY_MAP, left=left)
    walk.frames = Map({1: fresh})
    walk.loops = walk.eaches = walk.waits = EMPTY_MAP
    walk.yielding = False
    if not any(walk.program.nodes[i].type == "response" and records[i].status == "Succeeded" for i in records):
        walk.response = None
    walk.agenda.clear()
    for index in nodes:
        if index in again and all(before in records for before, _ in walk.program.nodes[index].after):
            walk.agenda.append((ENTER, 1, index))


def _to_repeat(walk: Walk) -> set[int]:
    """Actions that did not end well, were under way or ended the run, and all that run after one of them.

    What was skipped for another reason than these stays skipped.
    """
    records, nodes = walk.frames[1].records, walk.program.nodes
    again = {
        index
        for index in walk.program.blocks[0].nodes
        if index not in records or records[index].status not in _FINE or nodes[index].type == "terminate"
    }
    pending = sorted(again)
    while pending:
        for follower in nodes[pending.pop()].followers:
            if follower not in again:
                again.add(follower)
                pending.append(follower)
    return again

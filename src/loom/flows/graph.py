"""A flow as a graph: what stands in what, and what runs after what; as data and as an outline. Pure.

Containers are boxes around their actions, with a box of its own for each branch. An arrow is a `runAfter`; it says so
if it asks for anything else than success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.flows.nodes.branches import If, Switch
from loom.flows.nodes.foreach import Foreach
from loom.flows.nodes.loops import Loop
from loom.flows.program import STATUS_BITS, SUCCEEDED
from loom.flows.schemas_table import spelt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.flows.program import Node, Program

_MAX_CONDITION = 80


class Box(NamedTuple):
    """Actions side by side in a container: a branch of it, or all it has."""

    label: str
    """Of a branch; empty if the container has only one block."""
    nodes: tuple[int, ...]


class Arrow(NamedTuple):
    """`target` runs after `source`. A source of -1 and less is a trigger."""

    source: int
    target: int
    label: str


def type_words(kind: str) -> str:
    """A type as people write it in Loom's dialect."""
    name = spelt(kind)
    return name[:1].lower() + name[1:]


def boxes_of(program: Program, node: Node) -> list[Box]:
    """The branches of a container that have actions; none for an action that is no container."""
    names = _branches(node)
    found = [Box(name, program.blocks[block].nodes) for name, block in zip(names, node.blocks, strict=True)]
    return [box for box in found if box.nodes]


def _branches(node: Node) -> list[str]:
    operation = node.operation
    if isinstance(operation, If):
        return ["true", "false"]
    if isinstance(operation, Switch):
        cases = [f"case {case}" for case in operation.cases]
        return [*cases, "default"] if operation.has_default else cases
    return [""] * len(node.blocks)


def label_of(node: Node) -> str:
    """An action's name and type; a loop also says by what it goes."""
    operation = node.operation
    words = f"{node.name} ({type_words(node.type)})"
    if isinstance(operation, Loop):
        text = " ".join(operation.text.split())
        text = text if len(text) <= _MAX_CONDITION else f"{text[: _MAX_CONDITION - 1]}…"
        return f"{words} ↻ {'while' if operation.negated else 'until'} {text}"
    return f"{words} ↻ for each item" if isinstance(operation, Foreach) else words


def arrows_of(program: Program) -> Iterator[Arrow]:
    """What runs after what: first the triggers, then the actions in the order of the document."""
    for number, _ in enumerate(program.triggers):
        for root in program.blocks[0].roots:
            yield Arrow(-1 - number, root, "")
    for node in program.nodes:
        for before, wanted in node.after:
            yield Arrow(before, node.index, statuses_of(wanted))


def statuses_of(wanted: int) -> str:
    """The statuses that a `runAfter` asks for; empty for success alone."""
    return "" if wanted == SUCCEEDED else ", ".join(name for name, bit in STATUS_BITS.items() if wanted & bit)


def triggers_of(program: Program) -> list[str]:
    """The triggers in words."""
    return [f"{trigger.name} ({trigger.type})" for trigger in program.triggers]


def to_outline(program: Program) -> str:
    """The flow as an indented list."""
    lines = [program.name, *(f"  on {trigger}" for trigger in triggers_of(program))]
    # Explicit, for the innermost lines come from as deep as documents go.
    left: list[tuple[int, str | int]] = [(1, index) for index in reversed(program.blocks[0].nodes)]
    while left:
        depth, entry = left.pop()
        margin = "  " * depth
        if isinstance(entry, str):
            lines.append(f"{margin}{entry}:")
            continue
        node = program.nodes[entry]
        lines.append(f"{margin}{label_of(node)}{_after(program, node)}")
        below: list[tuple[int, str | int]] = []
        for box in boxes_of(program, node):
            below += [(depth + 1, box.label)] if box.label else []
            below += [(depth + (2 if box.label else 1), index) for index in box.nodes]
        left += reversed(below)
    return "\n".join(lines) + "\n"


def _after(program: Program, node: Node) -> str:
    if not node.after:
        return ""
    parts = []
    for before, wanted in node.after:
        statuses = statuses_of(wanted)
        parts.append(program.nodes[before].name + (f" [{statuses}]" if statuses else ""))
    return f", after {', '.join(parts)}"


def to_data(program: Program) -> dict[str, Any]:
    """The flow as nodes and edges, for programs."""
    nodes: list[dict[str, Any]] = []
    for node in program.nodes:
        owner = program.blocks[node.block].owner
        branch = ""
        if owner >= 0:
            around = program.nodes[owner]
            branch = _branches(around)[around.blocks.index(node.block)]
        parent = program.nodes[owner].name if owner >= 0 else None
        nodes.append(
            {"name": node.name, "type": node.type, "path": node.path, "parent": parent, "branch": branch or None}
        )
    edges = [
        {
            "source": program.nodes[before].name,
            "target": node.name,
            "statuses": [name for name, bit in STATUS_BITS.items() if wanted & bit],
        }
        for node in program.nodes
        for before, wanted in node.after
    ]
    triggers = [{"name": trigger.name, "type": trigger.type} for trigger in program.triggers]
    return {"name": program.name, "digest": program.digest, "triggers": triggers, "nodes": nodes, "edges": edges}


def to_graph(program: Program) -> dict[str, Any]:
    """The same with the keys of a graph of Python steps, `id`, `label` and `node_type`; triggers are nodes too."""
    data = to_data(program)
    triggers = [
        {"id": f"trigger:{trigger['name']}", "label": trigger["name"], "node_type": "trigger", "type": trigger["type"]}
        for trigger in data["triggers"]
    ]
    actions = [{"id": node["name"], "label": node["name"], "node_type": "action", **node} for node in data["nodes"]]
    names = [node.name for node in program.nodes]
    edges = [
        {
            "source": names[arrow.source] if arrow.source >= 0 else triggers[-1 - arrow.source]["id"],
            "target": names[arrow.target],
            "label": arrow.label or None,
        }
        for arrow in arrows_of(program)
    ]
    return {"name": program.name, "nodes": [*triggers, *actions], "edges": edges}

"""A flow as a graph: data, an outline, Mermaid and DOT.

Containers are boxes around their actions, with a box of its own for each branch. An arrow is a `runAfter`; its label
names the statuses, unless it asks for success alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.flows.action_types import type_words
from loom.flows.nodes.containers import If, Switch
from loom.flows.nodes.loops import ConditionLoop, Foreach
from loom.flows.program import STATUS_BITS, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.flows.program import Node, Program


_MAX_CONDITION = 80


class _Box(NamedTuple):
    """Actions side by side in a container: a branch of it, or all it has."""

    label: str
    """Label of a branch; empty if the container has only one block."""
    nodes: tuple[int, ...]


class _Arrow(NamedTuple):
    """`target` runs after `source`. A source of -1 and less is a trigger."""

    source: int
    target: int
    label: str


def _boxes_of(program: Program, node: Node) -> list[_Box]:
    """List the branches of a container that have actions; empty for an action that is no container."""
    names = _branches(node)
    found = [_Box(name, program.blocks[block].nodes) for name, block in zip(names, node.blocks, strict=True)]
    return [box for box in found if box.nodes]


def _branches(node: Node) -> list[str]:
    operation = node.operation
    if isinstance(operation, If):
        return ["true", "false"]
    if isinstance(operation, Switch):
        cases = [f"case {case}" for case in operation.cases]
        return [*cases, "default"] if operation.has_default else cases
    return [""] * len(node.blocks)


def _label_of(node: Node) -> str:
    """Label an action with its name and type, and a loop also with its condition."""
    operation = node.operation
    words = f"{node.name} ({type_words(node.type)})"
    if isinstance(operation, ConditionLoop):
        text = " ".join(operation.text.split())
        text = text if len(text) <= _MAX_CONDITION else f"{text[: _MAX_CONDITION - 1]}…"
        return f"{words} ↻ {'while' if operation.negated else 'until'} {text}"
    return f"{words} ↻ for each item" if isinstance(operation, Foreach) else words


def _arrows_of(program: Program) -> Iterator[_Arrow]:
    """Yield the arrows: first from the triggers, then between actions in the order of the document."""
    for number, _ in enumerate(program.triggers):
        for root in program.blocks[0].roots:
            yield _Arrow(-1 - number, root, "")
    for node in program.nodes:
        for before, wanted in node.after:
            yield _Arrow(before, node.index, _statuses_of(wanted))


def _statuses_of(wanted: int) -> str:
    """Name the statuses that a `runAfter` asks for; empty for success alone."""
    return "" if wanted == SUCCEEDED else ", ".join(name for name, bit in STATUS_BITS.items() if wanted & bit)


def _triggers_of(program: Program) -> list[str]:
    """Label the triggers with their names and types."""
    return [f"{trigger.name} ({trigger.type})" for trigger in program.triggers]


def to_outline(program: Program) -> str:
    """Draw the flow as an indented list."""
    lines = [program.name, *(f"  on {trigger}" for trigger in _triggers_of(program))]
    # An explicit stack, because documents may nest deeper than Python recurses.
    left: list[tuple[int, str | int]] = [(1, index) for index in reversed(program.blocks[0].nodes)]
    while left:
        depth, entry = left.pop()
        margin = "  " * depth
        if isinstance(entry, str):
            lines.append(f"{margin}{entry}:")
            continue
        node = program.nodes[entry]
        lines.append(f"{margin}{_label_of(node)}{_after(program, node)}")
        below: list[tuple[int, str | int]] = []
        for box in _boxes_of(program, node):
            below += [(depth + 1, box.label)] if box.label else []
            below += [(depth + (2 if box.label else 1), index) for index in box.nodes]
        left += reversed(below)
    return "\n".join(lines) + "\n"


def _after(program: Program, node: Node) -> str:
    if not node.after:
        return ""
    parts = []
    for before, wanted in node.after:
        statuses = _statuses_of(wanted)
        parts.append(program.nodes[before].name + (f" [{statuses}]" if statuses else ""))
    return f", after {', '.join(parts)}"


def to_data(program: Program) -> dict[str, Any]:
    """Give the flow as nodes and edges, for programs."""
    nodes: list[dict[str, Any]] = []
    for node in program.nodes:
        owner = program.blocks[node.block].owner
        branch = ""
        if owner >= 0:
            around = program.nodes[owner]
            branch = _branches(around)[around.blocks.index(node.block)]
        parent = program.nodes[owner].name if owner >= 0 else None
        nodes.append(
            {
                "name": node.name,
                "type": type_words(node.type),
                "path": node.path,
                "parent": parent,
                "branch": branch or None,
            }
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
    """Give the flow with the keys of a graph of Python steps: `id`, `label`, `node_type`. Triggers are nodes too."""
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
        for arrow in _arrows_of(program)
    ]
    return {"name": program.name, "nodes": [*triggers, *actions], "edges": edges}


# -- Mermaid -----------------------------------------------------------------------------------------------------------

_STYLES = {
    "trigger": "fill:#fef9c3,stroke:#a16207,color:#111827",
    "action": "fill:#dbeafe,stroke:#1d4ed8,color:#111827",
    "loop": "fill:#fdf2f8,stroke:#be185d,color:#111827",
    "container": "fill:#f3f4f6,stroke:#4b5563,color:#111827",
}


def to_mermaid(program: Program) -> str:
    """Draw the flow as a Mermaid flowchart, which Markdown viewers show."""
    lines = ["flowchart TD"]
    used = dict.fromkeys(["trigger"] if program.triggers else [])
    lines += [f'    t{n}(["{_escaped(words)}"]):::trigger' for n, words in enumerate(_triggers_of(program))]
    for depth, line, style in _mermaid_lines(program):
        lines.append("    " * depth + line)
        used |= dict.fromkeys([style] if style else [])
    for arrow in _arrows_of(program):
        label = f'|"{_escaped(arrow.label)}"|' if arrow.label else ""
        lines.append(f"    {_id(arrow.source)} -->{label} n{arrow.target}")
    for node in program.nodes:
        if _boxes_of(program, node):
            style = _style(node, True)
            used |= {style: None}
            lines.append(f"    class n{node.index} {style}")
    lines += [f"    classDef {name} {style}" for name, style in _STYLES.items() if name in used]
    return "\n".join(lines) + "\n"


def _mermaid_lines(program: Program) -> Iterator[tuple[int, str, str]]:
    """Yield lines with their depth and the style that they use."""
    left: list[tuple[int, str | int]] = [(1, index) for index in reversed(program.blocks[0].nodes)]
    while left:
        depth, entry = left.pop()
        if isinstance(entry, str):
            yield depth, entry, ""
            continue
        node = program.nodes[entry]
        boxes = _boxes_of(program, node)
        if not boxes:
            yield depth, f'n{node.index}["{_escaped(_label_of(node))}"]:::{_style(node, False)}', _style(node, False)
            continue
        below: list[tuple[int, str | int]] = [(depth, f'subgraph n{node.index}["{_escaped(_label_of(node))}"]')]
        for number, box in enumerate(boxes):
            inner = depth + 1
            if box.label:
                below.append((inner, f'subgraph n{node.index}b{number}["{_escaped(box.label)}"]'))
            below += [(inner + bool(box.label), index) for index in box.nodes]
            below += [(inner, "end")] if box.label else []
        left += reversed([*below, (depth, "end")])


def _style(node: Node, has_actions: bool) -> str:
    if isinstance(node.operation, ConditionLoop | Foreach):
        return "loop"
    return "container" if has_actions else "action"


def _id(index: int) -> str:
    return f"n{index}" if index >= 0 else f"t{-1 - index}"


def _escaped(text: str) -> str:
    """Write quotes, markup and backticks as entities, because Mermaid interprets them in labels."""
    escaped = "".join(f"#{ord(char)};" if char in "\"'#&<>`\\|;" else char for char in text)
    return re.sub(r"\r\n|\r|\n", "<br/>", escaped)


# -- DOT ---------------------------------------------------------------------------------------------------------------


def to_dot(program: Program) -> str:
    """Draw the flow in DOT, the language of Graphviz."""
    lines = [
        "digraph flow {",
        "    compound=true;",
        '    node [shape=box, style="rounded,filled", fillcolor="#dbeafe"];',
    ]
    lines += [f'    t{n} [label="{_quoted(words)}", shape=oval];' for n, words in enumerate(_triggers_of(program))]
    lines += ["    " * depth + line for depth, line in _dot_lines(program)]
    for arrow in _arrows_of(program):
        source, tail = _end_of(program, arrow.source)
        target, head = _end_of(program, arrow.target)
        facts = [f'label="{_quoted(arrow.label)}"'] if arrow.label else []
        facts += [f"ltail={tail}"] if tail else []
        facts += [f"lhead={head}"] if head else []
        known = f" [{', '.join(facts)}]" if facts else ""
        lines.append(f"    {source} -> {target}{known};")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_lines(program: Program) -> Iterator[tuple[int, str]]:
    left: list[tuple[int, str | int]] = [(1, index) for index in reversed(program.blocks[0].nodes)]
    while left:
        depth, entry = left.pop()
        if isinstance(entry, str):
            yield depth, entry
            continue
        node = program.nodes[entry]
        label, boxes = _quoted(_label_of(node)), _boxes_of(program, node)
        if not boxes:
            yield depth, f'n{node.index} [label="{label}"];'
            continue
        below: list[tuple[int, str | int]] = [
            (depth, f"subgraph cluster_n{node.index} {{"),
            (depth + 1, f'label="{label}";'),
        ]
        for number, box in enumerate(boxes):
            inner = depth + 1
            if box.label:
                below.append((inner, f"subgraph cluster_n{node.index}b{number} {{"))
                below.append((inner + 1, f'label="{_quoted(box.label)}";'))
            below += [(inner + bool(box.label), index) for index in box.nodes]
            below += [(inner, "}")] if box.label else []
        left += reversed([*below, (depth, "}")])


def _end_of(program: Program, index: int) -> tuple[str, str]:
    """Find the node that an arrow is drawn to, and the box that it ends at: in DOT, arrows join nodes only."""
    if index < 0:
        return _id(index), ""
    inner = index
    while boxes := _boxes_of(program, program.nodes[inner]):
        inner = boxes[0].nodes[0]
    return f"n{inner}", f"cluster_n{index}" if inner != index else ""


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "")

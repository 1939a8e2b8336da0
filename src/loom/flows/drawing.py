"""A flow in the languages that draw graphs: Mermaid, which Markdown viewers draw, and DOT of Graphviz.

Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom.flows.graph import arrows_of, boxes_of, label_of, triggers_of
from loom.flows.nodes.foreach import Foreach
from loom.flows.nodes.loops import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.flows.program import Node, Program

_STYLES = {
    "trigger": "fill:#fef9c3,stroke:#a16207,color:#111827",
    "action": "fill:#dbeafe,stroke:#1d4ed8,color:#111827",
    "loop": "fill:#fdf2f8,stroke:#be185d,color:#111827",
    "container": "fill:#f3f4f6,stroke:#4b5563,color:#111827",
}


def to_mermaid(program: Program) -> str:
    """The flow as a Mermaid flowchart."""
    lines = ["flowchart TD"]
    used = dict.fromkeys(["trigger"] if program.triggers else [])
    lines += [f'    t{n}(["{_escaped(words)}"]):::trigger' for n, words in enumerate(triggers_of(program))]
    for depth, line, style in _mermaid_lines(program):
        lines.append("    " * depth + line)
        used |= dict.fromkeys([style] if style else [])
    for arrow in arrows_of(program):
        label = f'|"{_escaped(arrow.label)}"|' if arrow.label else ""
        lines.append(f"    {_id(arrow.source)} -->{label} n{arrow.target}")
    for node in program.nodes:
        if boxes_of(program, node):
            style = _style(node, True)
            used |= {style: None}
            lines.append(f"    class n{node.index} {style}")
    lines += [f"    classDef {name} {style}" for name, style in _STYLES.items() if name in used]
    return "\n".join(lines) + "\n"


def _mermaid_lines(program: Program) -> Iterator[tuple[int, str, str]]:
    """Lines with their depth, and the style that they use."""
    left: list[tuple[int, str | int]] = [(1, index) for index in reversed(program.blocks[0].nodes)]
    while left:
        depth, entry = left.pop()
        if isinstance(entry, str):
            yield depth, entry, ""
            continue
        node = program.nodes[entry]
        boxes = boxes_of(program, node)
        if not boxes:
            yield depth, f'n{node.index}["{_escaped(label_of(node))}"]:::{_style(node, False)}', _style(node, False)
            continue
        below: list[tuple[int, str | int]] = [(depth, f'subgraph n{node.index}["{_escaped(label_of(node))}"]')]
        for number, box in enumerate(boxes):
            inner = depth + 1
            if box.label:
                below.append((inner, f'subgraph n{node.index}b{number}["{_escaped(box.label)}"]'))
            below += [(inner + bool(box.label), index) for index in box.nodes]
            below += [(inner, "end")] if box.label else []
        left += reversed([*below, (depth, "end")])


def _style(node: Node, has_actions: bool) -> str:
    if isinstance(node.operation, Loop | Foreach):
        return "loop"
    return "container" if has_actions else "action"


def _id(index: int) -> str:
    return f"n{index}" if index >= 0 else f"t{-1 - index}"


def _escaped(text: str) -> str:
    """Mermaid reads quotes, markup, entities and backticks in labels; write them as entities."""
    escaped = "".join(f"#{ord(char)};" if char in "\"'#&<>`\\|;" else char for char in text)
    return re.sub(r"\r\n|\r|\n", "<br/>", escaped)


def to_dot(program: Program) -> str:
    """The flow as a graph of Graphviz."""
    lines = [
        "digraph flow {",
        "    compound=true;",
        '    node [shape=box, style="rounded,filled", fillcolor="#dbeafe"];',
    ]
    lines += [f'    t{n} [label="{_quoted(words)}", shape=oval];' for n, words in enumerate(triggers_of(program))]
    lines += ["    " * depth + line for depth, line in _dot_lines(program)]
    for arrow in arrows_of(program):
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
        label, boxes = _quoted(label_of(node)), boxes_of(program, node)
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
    """The node that an arrow is drawn to, and the box that it ends at, for arrows go to nodes only."""
    if index < 0:
        return _id(index), ""
    inner = index
    while boxes := boxes_of(program, program.nodes[inner]):
        inner = boxes[0].nodes[0]
    return f"n{inner}", f"cluster_n{index}" if inner != index else ""


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "")

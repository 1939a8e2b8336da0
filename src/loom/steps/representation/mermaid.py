"""A workflow graph as Mermaid text, which Markdown viewers draw.

May import `types` of this package.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.steps.representation.types import WorkflowGraph, WorkflowGraphEdge, WorkflowGraphNode

_SHAPES = {
    "step": ('["', '"]'),
    "event": ('(["', '"])'),
    "external": ('{{"', '"}}'),
    "resource": ('[("', '")]'),
    "resource_config": ('[/"', '"/]'),
}
_STYLES = {
    "step": "fill:#dbeafe,stroke:#1d4ed8,color:#111827",
    "event": "fill:#fef9c3,stroke:#a16207,color:#111827",
    "external": "fill:#fce7f3,stroke:#be185d,color:#111827",
    "resource": "fill:#dcfce7,stroke:#15803d,color:#111827",
    "resource_config": "fill:#f3f4f6,stroke:#4b5563,color:#111827",
}
_RESOURCES = ("resource", "resource_config")


def to_mermaid(graph: WorkflowGraph) -> str:
    """The graph as a Mermaid flowchart, in the order of its nodes and edges; resources hang on dotted lines."""
    ids = _safe_ids(graph.nodes)
    resources = {node.id for node in graph.nodes if node.node_type in _RESOURCES}
    used = {node.node_type for node in graph.nodes}
    lines = ["flowchart TD"]
    lines += [f"    {_node(ids[node.id], node)}" for node in graph.nodes]
    lines += [
        f"    {ids[edge.source]} {_arrow(edge, dotted=edge.target in resources)} {ids[edge.target]}"
        for edge in graph.edges
        if edge.source in ids and edge.target in ids
    ]
    lines += [f"    classDef {name} {style}" for name, style in _STYLES.items() if name in used]
    return "\n".join(lines) + "\n"


def _safe_ids(nodes: list[WorkflowGraphNode]) -> dict[str, str]:
    """Ids that Mermaid can parse: the type in front keeps clear of its keywords (a step may be called `end`)."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for node in nodes:
        base = re.sub(r"[^A-Za-z0-9_]", "_", f"{node.node_type}_{node.id}")
        unique, count = base, 1
        while unique in taken:
            count += 1
            unique = f"{base}_{count}"
        taken.add(unique)
        ids[node.id] = unique
    return ids


def _node(safe_id: str, node: WorkflowGraphNode) -> str:
    before, after = _SHAPES.get(node.node_type, _SHAPES["step"])
    style = f":::{node.node_type}" if node.node_type in _STYLES else ""
    return f"{safe_id}{before}{_escape(node.label)}{after}{style}"


def _arrow(edge: WorkflowGraphEdge, *, dotted: bool) -> str:
    line = "-.->" if dotted else "-->"
    return f'{line}|"{_escape(edge.label)}"|' if edge.label else line


def _escape(text: str) -> str:
    """Mermaid reads quotes, markup, entities and backticks in labels; write them as entities."""
    escaped = "".join(f"#{ord(char)};" if char in "\"'#&<>`\\|;" else char for char in text)
    return re.sub(r"\r\n|\r|\n", "<br/>", escaped)

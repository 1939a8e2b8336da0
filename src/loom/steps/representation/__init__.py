"""A workflow as a graph of nodes and edges, to be drawn, sent or examined.

May import the other modules of `steps`; nothing in Loom's engine imports it.
"""

from __future__ import annotations

from loom.steps.representation.build import get_workflow_representation
from loom.steps.representation.mermaid import to_mermaid
from loom.steps.representation.types import (
    WorkflowEventNode,
    WorkflowExternalNode,
    WorkflowGenericNode,
    WorkflowGraph,
    WorkflowGraphEdge,
    WorkflowGraphNode,
    WorkflowNodeBase,
    WorkflowResourceConfigNode,
    WorkflowResourceNode,
    WorkflowStepNode,
)

__all__ = [
    "WorkflowEventNode",
    "WorkflowExternalNode",
    "WorkflowGenericNode",
    "WorkflowGraph",
    "WorkflowGraphEdge",
    "WorkflowGraphNode",
    "WorkflowNodeBase",
    "WorkflowResourceConfigNode",
    "WorkflowResourceNode",
    "WorkflowStepNode",
    "get_workflow_representation",
    "to_mermaid",
]

# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""The nodes of pydantic-graph's ping-pong: their annotations name each other, so they live at module level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_graph import BaseNode, End, Graph, GraphBuilder, GraphRunContext


@dataclass
class Ping(BaseNode[None, None, int]):
    """Throws to Pong."""

    n: int
    size: int

    async def run(self, ctx: GraphRunContext[None, None]) -> Pong:
        return Pong(self.n + 1, self.size)


@dataclass
class Pong(BaseNode[None, None, int]):
    """Throws to Ping until it is enough."""

    n: int
    size: int

    async def run(self, ctx: GraphRunContext[None, None]) -> Ping | End[int]:
        return Ping(self.n + 1, self.size) if self.n < self.size else End(self.n)


def build() -> Graph[Any, Any, Ping, int]:
    """Return the graph of the two."""
    builder = GraphBuilder(input_type=Ping, output_type=int)
    builder.add(builder.node(Ping), builder.node(Pong), builder.edge_from(builder.start_node).to(Ping))
    return builder.build()

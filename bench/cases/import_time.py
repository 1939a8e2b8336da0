"""The CPU time of an import in a fresh interpreter, without what the interpreter needs by itself."""

from __future__ import annotations

from collections.abc import Callable

from bench.cases._fresh import PREPARATION_S, cpu_ms
from bench.spec import Case, Figures, Metric, within

IMPORTS = {
    "loom": "from loom import Workflow, step, Event",
    "llama": "import workflows",
    "pydantic": "from pydantic import BaseModel\nclass Model(BaseModel):\n    n: int = 1",
    "langgraph": "from langgraph.graph import StateGraph",
    "pydantic-graph": "from pydantic_graph import GraphBuilder",
}


def _importer(code: str) -> Callable[[int], Figures]:
    def measured(_: int) -> Figures:
        return {"ms": cpu_ms("-c", code) - cpu_ms("-c", "pass")}

    return measured


CASE = Case(
    name="import",
    title="import, CPU time",
    order=60,
    size=1,
    metrics=(Metric("ms", "ms"),),
    peers={peer: _importer(code) for peer, code in IMPORTS.items()},
    warm_up=0,
    preparation_s=PREPARATION_S,
    targets=(within("llama", "ms", 0.7),),
)

"""The CPU time of an import in a fresh interpreter, without what the interpreter needs by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from bench.spec import Case, Figures, Metric, within

TRIES = 3

IMPORTS = {
    "loom": "from loom import Workflow, step, Event",
    "llama": "import workflows",
    "pydantic": "from pydantic import BaseModel\nclass Model(BaseModel):\n    n: int = 1",
    "langgraph": "from langgraph.graph import StateGraph",
    "pydantic-graph": "from pydantic_graph import GraphBuilder",
}


def _cpu_ms(code: str) -> float:
    """Return the least of a few tries: whatever is above it was the machine's doing."""
    _once(code)  # the first try may have to compile the modules
    return min(_once(code) for _ in range(TRIES)) * 1e3


def _once(code: str) -> float:
    program = f"{code}\nimport time\nprint(time.process_time())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return float(done.stdout)


def _importer(code: str) -> Callable[[int], Figures]:
    def measured(_: int) -> Figures:
        return {"ms": _cpu_ms(code) - _cpu_ms("")}

    return measured


CASE = Case(
    name="import",
    title="import, CPU time",
    order=60,
    size=1,
    metrics=(Metric("ms", "ms"),),
    peers={peer: _importer(code) for peer, code in IMPORTS.items()},
    warm_up=0,
    targets=(within("llama", "ms", 0.7),),
)

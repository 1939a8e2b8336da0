"""The CPU time of a process that runs one workflow of one step in memory, less that of a bare interpreter."""

from __future__ import annotations

from collections.abc import Callable

from bench.cases._fresh import PREPARATION_S, cpu_ms
from bench.spec import Case, Figures, Metric, Target, within

_STEPS = """
import asyncio
from {package} import Workflow, step
from {events} import StartEvent, StopEvent

class Brief(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1)

async def main():
    assert await Brief().run() == 1

asyncio.run(main())
"""
_GRAPH = """
import asyncio
from typing import TypedDict
from langgraph.graph import END, START, StateGraph

class State(TypedDict):
    n: int

async def end(state: State) -> State:
    return {"n": 1}

builder = StateGraph(State)
builder.add_node("end", end)
builder.add_edge(START, "end")
builder.add_edge("end", END)
assert asyncio.run(builder.compile().ainvoke({"n": 0})) == {"n": 1}
"""
_FLOOR = """
import asyncio
import msgspec
from pydantic import BaseModel

class Model(BaseModel):
    n: int = 1

async def main():
    Model()

asyncio.run(main())
"""

PROGRAMS = {
    "loom": _STEPS.format(package="loom", events="loom"),
    "llama": _STEPS.format(package="workflows", events="workflows.events"),
    "langgraph": _GRAPH,
    "asyncio and a model": _FLOOR,
}


def _runner(code: str) -> Callable[[int], Figures]:
    def measured(_: int) -> Figures:
        return {"ms": cpu_ms("-c", code) - cpu_ms("-c", "pass")}

    return measured


CASE = Case(
    name="first-run",
    title="a first run in a fresh process, CPU time",
    order=61,
    size=1,
    metrics=(Metric("ms", "ms"),),
    peers={peer: _runner(code) for peer, code in PROGRAMS.items()},
    warm_up=0,
    preparation_s=PREPARATION_S,
    targets=(
        within("llama", "ms", 0.7),
        Target(
            "at most 45 ms beyond asyncio and one model of pydantic",
            lambda medians: medians["loom"]["ms"] - medians["asyncio and a model"]["ms"],
            at_most=45,
            guide=True,
        ),
    ),
)

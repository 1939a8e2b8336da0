"""Windmill's benchmark of workflow engines: one run of 40 light tasks, one after the other.

Each task computes a small Fibonacci number. Windmill publishes, on other hardware:
Hatchet 1.22 s, Temporal 2.97 s, Prefect 4.87 s.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from bench.cases import _chains
from bench.spec import Case, Figures, Metric, absolute, faster_than

TASKS = 40
_FIBONACCI = 10


def _fibonacci(n: int) -> int:
    return n if n < 2 else _fibonacci(n - 1) + _fibonacci(n - 2)


def _task() -> None:
    assert _fibonacci(_FIBONACCI) == 55


def _measured(
    chains: Callable[..., float], database: Callable[[], AbstractContextManager[str]]
) -> Callable[[int], Figures]:
    def measure(size: int) -> Figures:
        with database() as url:
            return {"ms": chains(url, 1, size, _task) * 1e3}

    return measure


def light_tasks(name: str, title: str, order: int, database: Callable[[], AbstractContextManager[str]]) -> Case:
    """Make the case for one kind of database."""
    return Case(
        name=name,
        title=title,
        order=order,
        size=TASKS,
        metrics=(Metric("ms", "ms for 40 tasks"),),
        peers={
            "loom": _measured(_chains.loom, database),
            "dbos": _measured(_chains.dbos, database),
            "langgraph": _measured(_chains.langgraph, database),
        },
        targets=(
            faster_than("dbos", "ms", 2),
            faster_than("langgraph", "ms", 2),
            absolute("a tenth of Hatchet's published 1.22 s", "ms", at_most=122),
        ),
    )

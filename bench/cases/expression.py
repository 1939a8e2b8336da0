"""One expression of the definition language, compiled: what a test in a loop costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from bench.measure import Stopwatch
from bench.spec import Case, Figures, Metric, absolute

TEXT = "@equals(body('x')?['status'], 'complete')"
OUTPUTS = {"body": {"status": "complete"}}
ROUNDS = 10


def _timed(evaluate: Callable[[], Any], size: int) -> Figures:
    """The median of a few rounds."""
    assert evaluate() is True
    rounds: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        watch = Stopwatch()
        for _ in range(size):
            evaluate()
        rounds.append(watch.read())
    wall, cpu = (median(column) / size * 1e6 for column in zip(*rounds, strict=True))
    return {"us": wall, "cpu": cpu}


def in_a_flow(size: int) -> Figures:
    """Where flows evaluate it: in a run that has come past the action `x`."""
    import loom
    from loom.expressions import compile_template
    from loom.flows.state import NOT_STARTED
    from loom.flows.walk import Walk

    x = {"type": "compose", "inputs": OUTPUTS}
    check = {"type": "compose", "inputs": TEXT, "runAfter": {"x": ["Succeeded"]}}
    program = loom.load({"actions": {"x": x, "check": check}}).program
    walk = Walk(program, NOT_STARTED, 0.0)
    walk.open_top_level()
    walk.go(fuel=1)
    node = program.find("check")
    assert node is not None
    walk.env.stand_at(next(iter(walk.frames.values())), node)
    return _timed(partial(compile_template(TEXT).evaluate, walk.env), size)


def in_a_context(size: int) -> Figures:
    """As `loom eval` and `evaluate` do it: in plain data."""
    from loom.expressions import ContextEnvironment, compile_template

    context = ContextEnvironment({"actions": {"x": {"status": "Succeeded", "outputs": OUTPUTS}}})
    return _timed(partial(compile_template(TEXT).evaluate, context), size)


def python(size: int) -> Figures:
    """The same in Python, where names are spelled right and nothing is refused."""
    outputs = {"x": OUTPUTS}
    return _timed(lambda: outputs["x"]["body"].get("status") == "complete", size)


CASE = Case(
    name="expression",
    title=f"evaluating {TEXT}, compiled",
    order=70,
    size=20_000,
    metrics=(Metric("us", "us"), Metric("cpu", "CPU us")),
    peers={"loom": in_a_flow, "loom context": in_a_context, "python": python},
    targets=(
        absolute("in a flow at most 2 us", "us", at_most=2),
        absolute("in plain data at most 2 us", "us", at_most=2, peer="loom context"),
    ),
)

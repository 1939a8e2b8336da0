"""A long definition is loaded and checked: the first time in a process, with new expressions, and with known ones."""

import json
from collections.abc import Callable
from statistics import median

from bench.cases._mixed_flow import mixed
from bench.measure import Stopwatch
from bench.spec import Case, Figures, Metric, absolute

TIMES = 7


def loom(size: int) -> Figures:
    import loom
    from loom.expressions import compile_template

    text, load = json.dumps(mixed(size)), loom.load

    def timed(prepare: Callable[[], None]) -> tuple[float, float]:
        prepare()
        watch = Stopwatch()
        flow = load(text)
        seconds = watch.read()
        assert len(flow.program.nodes) >= size
        assert not flow.warnings, flow.warnings
        return seconds

    first = timed(lambda: None)
    cold = [timed(compile_template.cache_clear) for _ in range(TIMES)]
    warm = [timed(lambda: None) for _ in range(TIMES)]
    figures: Figures = {}
    for name, samples in (("first", [first]), ("cold", cold), ("warm", warm)):
        wall, cpu = (median(column) * 1e3 for column in zip(*samples, strict=True))
        figures |= {name: wall, f"{name}_cpu": cpu}
    return figures


CASE = Case(
    name="flow-load",
    title="a definition of 200 actions is loaded and validated",
    order=74,
    size=200,
    metrics=(
        Metric("cold", "ms, new expressions"),
        Metric("cold_cpu", "CPU ms"),
        Metric("warm", "ms, known ones"),
        Metric("warm_cpu", "CPU ms"),
        Metric("first", "ms, first in a process"),
        Metric("first_cpu", "CPU ms"),
    ),
    peers={"loom": loom},
    targets=(
        absolute("new to the process at most 50 ms", "cold", at_most=50),
        absolute("new to the process at most 50 CPU ms", "cold_cpu", at_most=50),
        absolute("known to it at most 50 ms", "warm", at_most=50),
    ),
    warm_up=0,
)

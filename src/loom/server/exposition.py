"""Metrics as text that Prometheus reads, format 0.0.4.

Names and labels are the server's own. Of what people choose, only the names of workflows and steps become values of
labels, and the runtime bounds how many: nothing else that a caller chose may become one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.runtime.durable.metrics import Histogram
    from loom.runtime.durable.worker import WorkerRuntime

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Exposition:
    """A page of metrics, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, about: str, value: float, labels: Labels = ()) -> None:
        """Add a metric that goes up and down."""
        self.gauges(name, about, {labels: value})

    def gauges(self, name: str, about: str, values: Mapping[Labels, float]) -> None:
        """The same, with one value for each set of labels."""
        self._family(name, "gauge", about, values.items())

    def counter(self, name: str, about: str, value: float) -> None:
        """Add a metric that only goes up, until the process starts again."""
        self.counters(name, about, {(): value})

    def counters(self, name: str, about: str, values: Mapping[Labels, float]) -> None:
        """The same, with one value for each set of labels."""
        self._family(name, "counter", about, values.items())

    def histogram(self, name: str, about: str, values: Histogram) -> None:
        """How values are spread."""
        self.histograms(name, about, {(): values})

    def histograms(self, name: str, about: str, values: Mapping[Labels, Histogram]) -> None:
        """The same, with one histogram for each set of labels."""
        self._head(name, "histogram", about)
        for labels, spread in values.items():
            count = 0
            for bound, count in spread.buckets():
                self._line(f"{name}_bucket", (*labels, ("le", _number(bound))), count)
            self._line(f"{name}_sum", labels, spread.total)
            self._line(f"{name}_count", labels, count)

    def _family(self, name: str, kind: str, about: str, values: Iterable[tuple[Labels, float]]) -> None:
        self._head(name, kind, about)
        for labels, value in values:
            self._line(name, labels, value)

    def _head(self, name: str, kind: str, about: str) -> None:
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]

    def _line(self, name: str, labels: Labels, value: float) -> None:
        given = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        self._lines.append(f"{name}{{{given}}} {_number(value)}" if given else f"{name} {_number(value)}")

    def text(self) -> str:
        """The whole page."""
        return "\n".join([*self._lines, ""])


def process_metrics(page: Exposition, runtime: WorkerRuntime) -> None:
    """Show whether the process is well: its event loop, its memory and its commits. Safe in any thread."""
    watch, memory = runtime.watch, runtime.memory
    page.gauge("loom_loop_watched", "Whether a watchdog looks after the event loop.", int(watch is not None))
    page.gauge("loom_loop_stalled", "Whether the event loop stands still.", int(watch is not None and watch.is_stalled))
    stalls, seconds = (watch.stalls, watch.stalled_s) if watch is not None else (0, 0.0)
    page.counter("loom_loop_stalls_total", "How often the event loop stood still.", stalls)
    page.counter("loom_loop_stalled_seconds_total", "For how long the event loop stood still.", seconds)
    page.gauge("loom_memory_bytes", "Memory of this process.", memory.used())
    page.gauge("loom_memory_limit_bytes", "What the process may use; 0: any number.", memory.limit or 0)
    page.gauge("loom_memory_exceeded", "Whether the process has too little memory for more runs.", int(memory.look()))
    page.counter("loom_starts_refused_total", "Starts that were refused for lack of memory.", memory.refused)
    failing = int("commits-failing" in runtime.hindrances())
    page.gauge("loom_commits_failing", "Whether the last commit could not be written.", failing)


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

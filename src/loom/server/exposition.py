"""Figures as text that Prometheus reads, format 0.0.4.

Names and labels are the server's own. Of what people choose, only the names of workflows and steps become values of
labels, and the runtime bounds how many: nothing else that a caller chose may become one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.runtime.durable.figures import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Exposition:
    """A page of figures, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, about: str, value: float, labels: Labels = ()) -> None:
        """A figure that goes up and down."""
        self.gauges(name, about, {labels: value})

    def gauges(self, name: str, about: str, values: Mapping[Labels, float]) -> None:
        """The same, with one value for each set of labels."""
        self._family(name, "gauge", about, values.items())

    def counter(self, name: str, about: str, value: float) -> None:
        """A figure that only goes up, until the process starts again."""
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


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

"""The reference of metrics, from the page that a server answers with.

The recorded page has each family with its labels; a test of the surface compares it with what a server answers.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from loomsite.markdown import code, table

RECORDED = Path(__file__).resolve().parents[3] / "tests" / "surface" / "golden" / "metrics.txt"


class Metric(NamedTuple):
    """One family of a metrics page."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str


def all_metrics() -> list[Metric]:
    """List the metrics in the order of the page."""
    text = RECORDED.read_text("utf-8")
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return [
        Metric(name, kinds[name], _labels(text, name), about)
        for name, about in re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE)
    ]


def _labels(text: str, name: str) -> tuple[str, ...]:
    found = re.search(rf"^{name}(?:_count)?(?:{{(.*)}})?$", text, re.MULTILINE)
    assert found is not None, f"{name} has no line"
    return tuple(label.partition("=")[0].strip() for label in (found[1] or "").split(",") if label)


def metrics() -> str:
    """Describe all metrics in a table."""
    rows = ((code(each.name), each.kind, ", ".join(map(code, each.labels)), each.about) for each in all_metrics())
    return table(("metric", "type", "labels", "meaning"), rows)

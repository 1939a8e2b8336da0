"""Takes the samples: a fresh process for each, the peers in turn, and smaller sizes where a peer needs too long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.spec import Case, Figures

ROOT = Path(__file__).resolve().parent.parent
SMALLEST = 10
GRACE_S = 10.0


@dataclass
class Series:
    """The samples of one peer in one case."""

    peer: str
    size: int
    cut: bool = False
    samples: list[Figures] = field(default_factory=list)
    error: str | None = None

    def medians(self) -> Figures:
        """Return the median of each metric."""
        keys = self.samples[0] if self.samples else ()
        return {key: median(sample[key] for sample in self.samples) for key in keys}


@dataclass(frozen=True)
class Settings:
    """How to measure."""

    repeat: int
    limit: float
    """Seconds until a sample is cut."""
    bytecode: str
    """A directory for compiled modules, shared by all samples."""
    say: Callable[[str], None]


def measure(case: Case, peers: Sequence[str], settings: Settings) -> list[Series]:
    """Take `repeat` samples of each peer, one after the other, round by round."""
    all_series = [Series(peer, case.sizes.get(peer, case.size)) for peer in peers]
    environment = _environment(settings.bytecode)
    while open_series := [s for s in all_series if s.error is None and len(s.samples) < settings.repeat]:
        for series in open_series:
            _sample(case, series, settings, environment)
    return all_series


def _sample(case: Case, series: Series, settings: Settings, environment: dict[str, str]) -> None:
    label = f"{case.name} / {series.peer}"
    command = [sys.executable, "-m", "bench.child", case.name, series.peer, str(series.size)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=settings.limit + case.preparation_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            _shrink(series, settings, label)
            return
    if process.returncode != 0:
        series.error = (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        settings.say(f"{label}: {series.error}")
        return
    figures: Figures = json.loads(output.strip().splitlines()[-1])
    series.samples.append(figures)
    shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
    settings.say(f"{label} {len(series.samples)}/{settings.repeat}: {shown}")


def _stop(process: subprocess.Popen[str]) -> None:
    """End a sample in such a way that it can stop the servers which it has started."""
    process.terminate()
    try:
        process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _shrink(series: Series, settings: Settings, label: str) -> None:
    """Halve the size; samples of another size do not count."""
    series.cut = True
    series.samples.clear()
    series.size //= 2
    if series.size < SMALLEST:
        series.error = f"needs more than {settings.limit:g} s at any size"
        settings.say(f"{label}: {series.error}")
    else:
        settings.say(f"{label}: cut at {settings.limit:g} s, going on with size {series.size:,}")


def _environment(bytecode: str) -> dict[str, str]:
    """Return the environment of the samples: Loom from this tree, compiled modules cached, no calls home."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    paths = [str(ROOT / "src"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    # Imports are compared as users meet them: with compiled modules, for Loom too, which is not installed here.
    environment["PYTHONPYCACHEPREFIX"] = bytecode
    environment["BURR_TELEMETRY_ENABLED"] = "false"
    environment["LANGSMITH_TRACING"] = "false"
    return environment

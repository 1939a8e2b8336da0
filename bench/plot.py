"""The figures as a picture: one panel per metric, one bar per peer, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import Result
from bench.spec import LOOM, Metric

COLUMNS = 3


def draw(results: Sequence[Result], path: Path) -> bool:
    """Draw the results into a file; return false where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot

    panels = [(result, metric) for result in results for metric in result.case.metrics]
    rows = -(-len(panels) // COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(6 * COLUMNS, 3 * rows), squeeze=False)
    axes = [axis for row in grid for axis in row]
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (result, metric) in zip(axes, panels, strict=False):
        _panel(axis, result, metric)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
    return True


def _panel(axis: object, result: Result, metric: Metric) -> None:
    bars = [
        (f"{series.peer}{' *' if series.cut else ''}", series.medians()[metric.key], series.peer.startswith(LOOM))
        for series in reversed(result.series)
        if metric.key in series.medians()
    ]
    names, values, ours = zip(*bars, strict=True) if bars else ((), (), ())
    drawn = axis.barh(names, values, color=["tab:orange" if own else "tab:gray" for own in ours])
    axis.bar_label(drawn, fmt="%.3g", padding=3)
    # Room for the labels; differences of noise around zero cannot be drawn on this scale.
    if any(value > 0 for value in values):
        axis.set_xscale("log")
        axis.margins(x=0.2)
    axis.set_title(f"{result.case.title}\n{metric.heading()}", size=9)

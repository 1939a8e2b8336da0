"""The command that shows what a run did over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loom.cli.options import json_option, run_id_argument
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from loom.api.views import Bar, Lane, Timeline
    from loom.cli.output import TextPage
    from loom.cli.sources import RunSource

_WIDTH = 40
"""How many characters a lane is drawn with."""
_NOTHING, _WAIT, _WORK, _FAILED = " ░█!"
_COLUMNS = ("step", "attempts", "failed", "waits", "over time")
_OF_BARS = ("begin", "took", "kind", "attempt", "status", "iteration", "tick", "error")


@click.command()
@run_id_argument
@click.option("--lane", metavar="NAME", help="Only this step or action, with its attempts and waits one by one.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="With --lane: pass over so many of them.")
@click.option(
    "--limit", type=click.IntRange(1, 2000), default=100, show_default=True, help="With --lane: at most so many."
)
@source_options
@json_option
def timeline(run_id: str, lane: str | None, offset: int, limit: int, source: RunSource, as_json: bool) -> None:
    """Show what a run did over time.

    A line for each step, or for each action of a flow: `█` where it was at work, `░` where it waited, `!` where an
    attempt failed.
    """
    from loom.cli.output import print_json

    found = perform(source, lambda runs: runs.timeline(run_id, lane, offset, limit))
    if as_json:
        print_json(found)
        return
    (_page(found) if lane is None else _page_of(found, lane)).print()
    if found.partial:
        click.echo("Some of it is missing: its history was pruned, or is too long for one look.", err=True)


def _page(found: Timeline) -> TextPage:
    from loom.api.times import span
    from loom.cli.output import TextPage

    page = TextPage()
    seconds = (found.end - found.begin).total_seconds()
    page.line(f"{found.begin.astimezone():%Y-%m-%d %H:%M:%S}, {span(seconds)} up to tick {found.tick}")
    rows = [
        (lane.name, str(lane.total - lane.waits), str(lane.failed), str(lane.waits), _drawn(lane, found))
        for lane in found.lanes
    ]
    page.table(_COLUMNS, rows)
    return page


def _page_of(found: Timeline, name: str) -> TextPage:
    from loom.cli.output import TextPage
    from loom.cli.problems import Problem

    lane = next((each for each in found.lanes if each.name == name), None)
    if lane is None:
        raise Problem(f"The run has not come to a step or an action {name!r}.")
    page = TextPage()
    page.table(_OF_BARS, [_row(bar) for bar in lane.bars or []])
    return page


def _row(bar: Bar) -> tuple[str, ...]:
    from loom.api.times import span

    took = span((bar.end - bar.begin).total_seconds()) if bar.end is not None else ""
    iteration = "" if bar.iteration is None else str(bar.iteration)
    begin = f"{bar.begin.astimezone():%H:%M:%S.%f}"[:-3]
    return begin, took, bar.kind, str(bar.attempt), bar.status, iteration, str(bar.tick), bar.error or ""


def _drawn(lane: Lane, found: Timeline) -> str:
    """Draw a lane: in each place what is the worst there."""
    places = [_NOTHING] * _WIDTH
    width = (found.end - found.begin).total_seconds() / _WIDTH
    begin = found.begin
    spans = [(bar.begin, bar.end or found.end, _sign(bar)) for bar in lane.bars or []]
    for part in lane.density or []:
        sign = _FAILED if part.failed else _WORK if part.work else _WAIT if part.wait else _NOTHING
        spans.append((part.begin, part.begin, sign))
    for since, until, sign in spans:
        first, last = ((moment - begin).total_seconds() / width if width else 0 for moment in (since, until))
        for place in range(max(0, min(_WIDTH - 1, int(first))), min(_WIDTH - 1, int(last)) + 1):
            places[place] = max(places[place], sign, key=_RANKS.__getitem__)
    return "".join(places).rstrip()


_RANKS = {_NOTHING: 0, _WAIT: 1, _WORK: 2, _FAILED: 3}


def _sign(bar: Bar) -> str:
    if bar.kind != "work":
        return _WAIT
    return _FAILED if bar.status == "failed" else _WORK

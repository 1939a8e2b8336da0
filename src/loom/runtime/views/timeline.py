"""Renders what a trace knows as the API's types: a timeline, counts per node, pages of iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loom.api.times import maybe_moment, moment
from loom.api.views import Bar, BarKind, BarStatus, Density, Lane, StepCounts, Timeline
from loom.runtime.views.lanes import FAILED, WORK, LaneRecord

if TYPE_CHECKING:
    from loom.runtime.views.reader import Trace

MOST_BARS = 2_000
"""How many bars one answer has."""
BUCKETS = 200
"""How many parts the window has where density is shown."""

_KINDS: tuple[BarKind, ...] = ("work", "wait", "delay", "queue")
_STATUSES: tuple[BarStatus, ...] = ("running", "ok", "failed", "cancelled")


class Window(NamedTuple):
    """What of a timeline is asked for. Times are seconds since 1970; None: from the first tick, or up to now."""

    begin: float | None = None
    end: float | None = None
    lane: str | None = None
    """Only this lane, with a page of its bars."""
    offset: int = 0
    limit: int = MOST_BARS


def timeline_of(trace: Trace, window: Window, now: float | None) -> Timeline:
    """Render a timeline. `now` is None for a run that has ended."""
    lanes = trace.made.lanes
    last = lanes.last_at if now is None else max(lanes.last_at, now)
    begin = window.begin if window.begin is not None else lanes.first_at if lanes.first_at is not None else last
    end = max(begin, window.end if window.end is not None else last)
    found = [(lane, lane.within(begin, end)) for lane in lanes.by_name.values() if window.lane in (None, lane.name)]
    dense = _dense([len(places) for _, places in found]) if window.lane is None else set()
    shown = []
    for number, (lane, places) in enumerate(found):
        density = _density(lane, places, begin, end) if number in dense else None
        page = places[window.offset : window.offset + window.limit] if window.lane is not None else places
        shown.append(_lane(lane, places, None if number in dense else page, density))
    return Timeline(begin=moment(begin), end=moment(end), tick=trace.tick, partial=lanes.is_partial, lanes=shown)


def _dense(sizes: list[int]) -> set[int]:
    """Tell which lanes have too many bars: the longest ones, until the others fit into one answer."""
    room, dense = MOST_BARS, set()
    for number in sorted(range(len(sizes)), key=sizes.__getitem__):
        if sizes[number] > room:
            dense.add(number)
        else:
            room -= sizes[number]
    return dense


def _lane(lane: LaneRecord, places: list[int], page: list[int] | None, density: list[Density] | None) -> Lane:
    failed = retries = waits = 0
    for _, _, kind, status, attempt in lane.spans(places):
        if kind != WORK:
            waits += 1
        else:
            failed += status == FAILED
            retries += attempt > 1
    return Lane(
        name=lane.name,
        kind=lane.kind,
        total=len(places),
        failed=failed,
        retries=retries,
        waits=waits,
        bars=_bars(lane, page) if page is not None else None,
        density=density,
    )


def _bars(lane: LaneRecord, places: list[int]) -> list[Bar]:
    return [
        Bar(
            begin=moment(row.begin),
            end=maybe_moment(row.end),
            kind=_KINDS[row.kind],
            attempt=row.attempt,
            status=_STATUSES[row.status],
            tick=row.tick,
            iteration=row.iteration,
            error=row.error,
        )
        for row in lane.rows(places)
    ]


def _density(lane: LaneRecord, places: list[int], begin: float, end: float) -> list[Density]:
    """Count the bars that touch each part of a window. A bar costs the same whatever its length."""
    width = (end - begin) / BUCKETS
    scale = 1 / width if width > 0 else 0.0
    work, wait, failed = [0] * (BUCKETS + 1), [0] * (BUCKETS + 1), [0] * BUCKETS
    for since, until, kind, status, _ in lane.spans(places):
        # Comparisons in place of `min` and `max`, for there may be hundreds of thousands of bars.
        first = int((since - begin) * scale) if since > begin else 0
        first = first if first < BUCKETS else BUCKETS - 1
        last = int((until - begin) * scale) if until < end else BUCKETS - 1  # not a number, without an end: the last
        last = last if last > first else first
        changes = work if kind == WORK else wait
        changes[first] += 1
        changes[last + 1] -= 1
        if status == FAILED and kind == WORK:
            failed[last] += 1
    shown, working, waiting = [], 0, 0
    for number in range(BUCKETS):
        working, waiting = working + work[number], waiting + wait[number]
        since = begin + number * width
        shown.append(
            Density(begin=moment(since), end=moment(since + width), work=working, wait=waiting, failed=failed[number])
        )
    return shown


# -- counts ------------------------------------------------------------------------------------------------------------


def counts_of(trace: Trace, tick: int) -> list[StepCounts]:
    """Count what became of each step or action that anything became of, as of a tick."""
    return [_counts(lane, tick) for lane in trace.made.lanes.by_name.values() if lane.last_at(tick) is not None]


def _counts(lane: LaneRecord, tick: int) -> StepCounts:
    return StepCounts(
        node=lane.name,
        executing=lane.count("executing", tick),
        waiting=lane.count("waiting", tick),
        queued=lane.count("queued", tick),
        delayed=lane.count("delayed", tick),
        completed=lane.count("completed", tick),
        failed=lane.count("failed", tick),
        retries=lane.count("retries", tick),
        last_at=maybe_moment(lane.last_at(tick)),
        attempt=lane.attempt_at(tick),
        max_attempts=lane.max_attempts,
    )

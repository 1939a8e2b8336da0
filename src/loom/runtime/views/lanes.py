"""Lanes: what each step or action of a run did, as columns of numbers.

A lane has bars, which are shown, and marks, by which counts at any past tick are found without a walk: the number of
marks up to a tick is a binary search. Both only grow, so what was read before stays true.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from math import nan
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

WORK, WAIT, DELAY, QUEUE = 0, 1, 2, 3
"""Kinds of bars: an attempt; a wait for an event, a child run or a time; a back-off or the delay of a loop; work that
waits for a worker."""
RUNNING, OK, FAILED, CANCELLED = 0, 1, 2, 3
"""Statuses of bars. Only one that is running has no end."""
NO_ITERATION = -1
MAX_BARS = 250_000
"""How many bars of a run are kept. Beyond, the oldest half of the longest lane is dropped."""
MAX_ERRORS = 1_000
"""How many texts of errors a lane keeps, the newest ones."""
MAX_ERROR = 500
"""How many characters of an error's text are kept."""
_BAR_BYTES, _MARK_BYTES = 60, 8
_NO_TICK = -1
_NEWEST = 256

Subject = Literal["step", "action", "loop"]
Mark = Literal["executing", "waiting", "queued", "delayed", "completed", "failed", "retries"]


class BarRow(NamedTuple):
    """One bar, as it is read. Times are seconds since 1970."""

    begin: float
    end: float | None
    """None: it has none yet."""
    kind: int
    status: int
    attempt: int
    """From 1."""
    tick: int
    """The tick that it begins with."""
    iteration: int | None
    error: str | None


class Marks:
    """How many there are of something after each tick: those that began, less those that are over."""

    __slots__ = ("begun", "over")

    def __init__(self) -> None:
        self.begun, self.over = array("q"), array("q")
        """Numbers of ticks, in order."""

    def at(self, tick: int) -> int:
        """Count what there is after a tick."""
        return bisect_right(self.begun, tick) - bisect_right(self.over, tick)


class LaneRecord:
    """One step or action of a run: its bars in the order in which they were first seen, and its marks."""

    __slots__ = (
        "_attempts", "_begins", "_end_ticks", "_ends", "_errors", "_iterations", "_kinds", "_statuses", "_ticks",
        "_touched_at", "_touched_by", "dropped", "kind", "marks", "max_attempts", "name", "open",
    )  # fmt: skip

    def __init__(self, name: str, kind: Subject, max_attempts: int | None = None) -> None:
        self.name = name
        self.kind: Subject = kind
        self.max_attempts = max_attempts
        """How many attempts the policy allows; None if that is not known."""
        self.marks: dict[Mark, Marks] = {}
        self.dropped = 0
        """How many of its first bars are not kept any more."""
        self.open: dict[int, None] = {}
        """The numbers of bars without an end."""
        self._begins, self._ends = array("d"), array("d")
        self._kinds, self._statuses = array("b"), array("b")
        self._attempts, self._iterations = array("i"), array("q")
        self._ticks, self._end_ticks = array("q"), array("q")
        self._errors: dict[int, str] = {}
        self._touched_by, self._touched_at = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._begins)

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes."""
        marks = sum(len(each.begun) + len(each.over) for each in self.marks.values())
        errors = sum(map(len, self._errors.values()))
        return len(self) * _BAR_BYTES + (marks + 2 * len(self._touched_by)) * _MARK_BYTES + errors

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin(
        self,
        kind: int,
        at: float,
        tick: int,
        attempt: int = 1,
        iteration: int = NO_ITERATION,
        since: float | None = None,
    ) -> int:
        """Add a bar that begins with a tick, perhaps earlier in time, and return its number."""
        number = self.dropped + len(self._begins)
        self._begins.append(at if since is None else since)
        self._ends.append(nan)
        self._kinds.append(kind)
        self._statuses.append(RUNNING)
        self._attempts.append(attempt)
        self._iterations.append(iteration)
        self._ticks.append(tick)
        self._end_ticks.append(_NO_TICK)
        self.open[number] = None
        self.touch(at, tick)
        return number

    def end(self, number: int, at: float, tick: int, status: int, error: str | None = None) -> None:
        """End a bar. One that was dropped is gone."""
        self.open.pop(number, None)
        self.touch(at, tick)
        place = number - self.dropped
        if place < 0:
            return
        self._ends[place] = max(at, self._begins[place])
        self._end_ticks[place] = tick
        self._statuses[place] = status
        if error is not None:
            self._errors[number] = error[:MAX_ERROR]
            if len(self._errors) > MAX_ERRORS:
                del self._errors[next(iter(self._errors))]

    def since(self, number: int) -> float | None:
        """Return the begin of a bar; None if it was dropped."""
        place = number - self.dropped
        return self._begins[place] if place >= 0 else None

    def touch(self, at: float, tick: int) -> None:
        """Note that something became of it."""
        if self._touched_by and self._touched_by[-1] == tick:
            self._touched_at[-1] = at
            return
        self._touched_by.append(tick)
        self._touched_at.append(at)

    def mark(self, name: Mark, tick: int) -> None:
        """Count one more from a tick on."""
        marks = self.marks.get(name)
        if marks is None:
            marks = self.marks[name] = Marks()
        marks.begun.append(tick)

    def unmark(self, name: Mark, tick: int) -> None:
        """Count one less from a tick on."""
        self.marks[name].over.append(tick)

    def drop(self, count: int) -> None:
        """Drop the oldest bars. Counts stay."""
        for column in (
            self._begins, self._ends, self._kinds, self._statuses, self._attempts, self._iterations, self._ticks,
            self._end_ticks,
        ):  # fmt: skip
            del column[:count]
        self.dropped += count
        self._errors = {number: text for number, text in self._errors.items() if number >= self.dropped}

    # -- reading ------------------------------------------------------------------------------------------------------

    def count(self, name: Mark, tick: int) -> int:
        """Count what there is of something after a tick."""
        marks = self.marks.get(name)
        return marks.at(tick) if marks is not None else 0

    def last_at(self, tick: int) -> float | None:
        """Return when something became of it last, as of a tick; None: nothing has."""
        place = bisect_right(self._touched_by, tick)
        return self._touched_at[place - 1] if place else None

    def attempt_at(self, tick: int) -> int | None:
        """Return the highest attempt that was under way or delayed after a tick; None without one.

        It looks at the newest bars only: older ones that are still open are those of a wide fan-out.
        """
        last = bisect_right(self._ticks, tick)
        places = range(max(0, last - _NEWEST), last)
        ends = self._end_ticks
        under_way = [place for place in places if self._kinds[place] in (WORK, DELAY)]
        return max((self._attempts[place] for place in under_way if not 0 <= ends[place] <= tick), default=None)

    def within(self, begin: float, end: float) -> list[int]:
        """List the places of the bars that touch a span of time, in their order."""
        ends = self._ends
        # `not <` also takes what has no end yet, which is not a number.
        return [place for place, at in enumerate(self._begins) if at <= end and not ends[place] < begin]

    def rows(self, places: list[int]) -> Iterator[BarRow]:
        """Read bars."""
        for place in places:
            end, iteration = self._ends[place], self._iterations[place]
            yield BarRow(
                self._begins[place],
                None if end != end else end,  # noqa: PLR0124 - not a number
                self._kinds[place],
                self._statuses[place],
                self._attempts[place],
                self._ticks[place],
                None if iteration == NO_ITERATION else iteration,
                self._errors.get(place + self.dropped),
            )

    def spans(self, places: list[int]) -> Iterator[tuple[float, float, int, int, int]]:
        """Read the begin, the end (not a number: none yet), the kind, the status and the attempt of bars, fast."""
        begins, ends, kinds = self._begins, self._ends, self._kinds
        statuses, attempts = self._statuses, self._attempts
        for place in places:
            yield begins[place], ends[place], kinds[place], statuses[place], attempts[place]


class Lanes:
    """The lanes of a run by name, in the order in which work for them first came up."""

    def __init__(self) -> None:
        self.by_name: dict[str, LaneRecord] = {}
        self.first_at: float | None = None
        self.last_at = 0.0
        """The times of the first and the last tick."""
        self.is_partial = False
        """Whether the first part of the run is missing: it was pruned, or dropped here."""

    @property
    def weight(self) -> int:
        """Return about how many bytes they take."""
        return sum(lane.weight for lane in self.by_name.values())

    def seen(self, at: float) -> None:
        """Note the time of a tick."""
        if self.first_at is None:
            self.first_at = at
        self.last_at = max(self.last_at, at)

    def trim(self) -> None:
        """Drop the oldest half of the longest lane while there are too many bars."""
        while sum(map(len, self.by_name.values())) > MAX_BARS:
            longest = max(self.by_name.values(), key=len)
            longest.drop(len(longest) // 2)
            self.is_partial = True

"""How commands leave a run, as a frozen table: what a history was made with, it is replayed with.

The row that a run uses is chosen by its first task and recorded in its history as an internal flag; configuration is
never read on a replay. A row that was released is never changed: a new policy is a new row. May import msgspec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

FLAG_BASE = 0x4C4F0000
"""Internal flags are shared with the SDK, which counts from 1."""


DOUBTS_SIGNALS = FLAG_BASE + 0x10000
"""The internal flag of runs that mark what comes by signals of other clients as unchecked. Older ones do not."""
CANCELS_FIRST = FLAG_BASE + 0x10001
"""The internal flag of runs in which a cancel comes before all else that an activation brings. Older ones take what
comes in its order."""

KEEPS_LETTERS = FLAG_BASE + 0x10002
"""The internal flag of runs that keep every event of a letter. Older ones dropped one that was not marked as accepted,
that nothing took, and that came when they kept as many as they may."""


class Policy(msgspec.Struct, frozen=True):
    """One row: the sizes by which a flush is split, and when a run goes on in a new execution."""

    budget: int
    """The bytes of commands that one workflow task may carry; the server refuses four MiB for good."""
    window: int
    """How many activities and child runs may be under way at a time; the server is stuck at 2,000."""
    drain_events: int
    """From a history of this length on nothing new is begun, until it can go on in a new one."""
    force_events: int
    """From this length on it goes on in a new one even if bodies are at work: they begin again there."""
    force_signals: int = 9_000
    """The same by the number of signals: the server takes 10,000 and refuses the rest."""
    carried: int = 1_500_000
    """The largest state that is carried over, in bytes before any codec."""


POLICIES: tuple[Policy, ...] = (Policy(budget=1_500_000, window=1_000, drain_events=12_000, force_events=40_000),)


def flag_of(row: int) -> int:
    """The internal flag that records a row of the table."""
    return FLAG_BASE + row


def recorded_row(flags: Iterable[int], rows: int = len(POLICIES)) -> int | None:
    """The row that a history was made with; None if it says nothing, and an error if it is newer than this table."""
    for flag in flags:
        if FLAG_BASE <= flag < FLAG_BASE + 0x10000:
            row = flag - FLAG_BASE
            if row >= rows:
                raise ValueError(f"The run was made with policy {row}; this version of Loom knows {rows}.")
            return row
    return None

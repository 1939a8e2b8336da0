"""How commands leave a run, as a frozen table: a history is replayed with the row that it was made with.

The first task of a run chooses a row and records it in the history as an internal flag. A replay never reads
configuration. A released row is never changed: a new policy is a new row. Behavior that changed later without a new row
has a flag of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom.temporal.bridge import activations, completions

FLAG_BASE = 0x4C4F0000
"""Flags of Loom begin here. They share their numbers with the SDK, which counts from 1."""


DOUBTS_SIGNALS = FLAG_BASE + 0x10000
"""The flag of runs that mark events from signals of other clients as unchecked. Older runs do not."""
CANCELS_FIRST = FLAG_BASE + 0x10001
"""The flag of runs in which a cancel comes before all else that an activation brings. Older ones keep the order."""
KEEPS_MESSAGES = FLAG_BASE + 0x10002
"""The flag of runs that keep every event of an inbox message.

Older ones dropped an event that was not marked as accepted and that nothing took, if they kept as many as they may."""


class Policy(msgspec.Struct, frozen=True):
    """One row: the sizes by which a flush is split, and when a run continues in a new execution."""

    budget: int
    """The bytes of commands that one workflow task may carry; the server refuses four MiB for good."""
    window: int
    """How many activities and child runs may be under way at a time; the server is stuck at 2,000."""
    drain_events: int
    """From a history of this length on nothing new is begun, until the run can continue in a new execution."""
    force_events: int
    """From this length on it continues even if bodies are at work: they begin again in the new execution."""
    force_signals: int = 9_000
    """From this number of signals on it does so too: the server takes 10,000 and refuses the rest."""
    carried: int = 1_500_000
    """The largest state that is carried over, in bytes before any codec."""


POLICIES: tuple[Policy, ...] = (Policy(budget=1_500_000, window=1_000, drain_events=12_000, force_events=40_000),)


class RecordedRules(NamedTuple):
    """The rules that a run follows for good: a row of the table, and one field per flag."""

    policy: Policy
    doubts_signals: bool
    cancels_first: bool
    keeps_messages: bool


def flag_of(row: int) -> int:
    """Return the internal flag that records a row of the table."""
    return FLAG_BASE + row


def recorded_row(flags: Iterable[int], rows: int = len(POLICIES)) -> int | None:
    """Return the row that a history was made with; None if it names none. A row beyond this table is an error."""
    for flag in flags:
        if FLAG_BASE <= flag < FLAG_BASE + 0x10000:
            row = flag - FLAG_BASE
            if row >= rows:
                raise ValueError(f"The run was made with policy {row}; this version of Loom knows {rows}.")
            return row
    return None


def choose_rules(
    act: activations.WorkflowActivation, success: completions.Success, policies: Sequence[Policy]
) -> RecordedRules:
    """Choose the rules of an execution at its first activation.

    A live execution takes the newest row, unless its history names one, and records its flags in `success`. A replay
    takes what its history names; one that names nothing was made with the first row and without flags.
    """
    flags, is_live = act.available_internal_flags, not act.is_replaying
    row = recorded_row(flags, len(policies))
    if row is None:
        row = len(policies) - 1 if is_live else 0
    if is_live:
        success.used_internal_flags.extend((flag_of(row), DOUBTS_SIGNALS, CANCELS_FIRST, KEEPS_MESSAGES))
    return RecordedRules(
        policies[row],
        doubts_signals=is_live or DOUBTS_SIGNALS in flags,
        cancels_first=is_live or CANCELS_FIRST in flags,
        keeps_messages=is_live or KEEPS_MESSAGES in flags,
    )

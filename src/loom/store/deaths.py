"""The rules of unclean deaths: which runs are suspected of them, and which death counts for whom. Pure.

A process that ends in order releases its runs. Runs that it still owned and was at work on when it was gone died with
it. They are marked when its fence is found dead, so that nothing has to be written before a body begins. One death says
little: all runs that were at work are recovered together. From the second on they are suspects, and each member
recovers them one at a time. A death counts for a run only while it was on probation there.
"""

from __future__ import annotations

import msgspec

FORGOTTEN_AFTER_S = 3600.0
"""A run that lived for this long since it was last suspected or acquitted begins anew: its process died of something
else."""
POISON = "poison"
"""The first word of the reason of a run that was parked for its deaths."""
TIMER_SLACK_S = 2.0
"""A timer that was due up to this long after a member's last sign of life may have fired in it."""


class Deaths(msgspec.Struct, frozen=True):
    """Unclean ends of processes in which a run was at work, since its last result."""

    marks: int
    """How many."""
    own: int = 0
    """How many of them while it was on probation: no other run explains these."""
    at: float = 0.0
    """When it was last marked, put on probation or acquitted."""
    suspect: bool = False
    """It is recovered only on probation."""
    trial: int | None = None
    """The fence of the member that has it on probation; it counts while that member owns the run."""


def after_death(before: Deaths | None, died_at: float) -> Deaths:
    """Return the deaths of a run after a process at work on it has died; `died_at` is its last sign of life."""
    if before is None or died_at - before.at > FORGOTTEN_AFTER_S:
        return Deaths(1, 0, died_at)
    return Deaths(before.marks + 1, before.own + (before.trial is not None), max(died_at, before.at), suspect=True)

"""Timers are state: armed here, fired by a tick that is believed. Pure.

Retries, sleeps and what the planner has asked for will move the run by themselves, so while one of them is armed the
run is asleep rather than idle. Timeouts, of a waiter or of the run, do not count as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.commands import CommandCancelTimer, CommandStartTimer
from loom.core.state import MOVING

if TYPE_CHECKING:
    from loom.core.draft import Draft
    from loom.core.state import Timer


def arm(d: Draft, timer: Timer) -> int:
    """Start a timer and return its number."""
    number = d.next_seq()
    d.timers = d.timers.set(number, timer)
    if timer.purpose in MOVING:
        d.asleep += 1
    d.commands.append(CommandStartTimer(number, timer.due, timer.purpose))
    return number


def disarm(d: Draft, number: int | None) -> None:
    """Forget a timer, if it is armed."""
    if number is not None and take(d, number) is not None:
        d.commands.append(CommandCancelTimer(number))


def take(d: Draft, number: int) -> Timer | None:
    """The timer of this number, armed no longer; None if it was disarmed or has fired before."""
    timer = d.timers.get(number)
    if timer is not None:
        d.timers = d.timers.delete(number)
        if timer.purpose in MOVING:
            d.asleep -= 1
    return timer


def rearm_all(d: Draft) -> None:
    """Ask for every armed timer again, in the order in which they were started."""
    for number in sorted(d.timers):
        timer = d.timers[number]
        d.commands.append(CommandStartTimer(number, timer.due, timer.purpose))

"""Timers are state: armed here, fired by a tick that is believed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.commands import CommandCancelTimer, CommandStartTimer

if TYPE_CHECKING:
    from loom.core.draft import Draft
    from loom.core.state import Timer


def arm(d: Draft, timer: Timer) -> int:
    """Start a timer and return its number."""
    number = d.next_seq()
    d.timers = d.timers.set(number, timer)
    d.commands.append(CommandStartTimer(number, timer.due, timer.purpose))
    return number


def disarm(d: Draft, number: int | None) -> None:
    """Forget a timer, if it is armed."""
    if number is not None and number in d.timers:
        d.timers = d.timers.delete(number)
        d.commands.append(CommandCancelTimer(number))


def take(d: Draft, number: int) -> Timer | None:
    """The timer that has fired; None if it was disarmed meanwhile or has fired before."""
    timer: Timer | None = d.timers.get(number)
    if timer is not None:
        d.timers = d.timers.delete(number)
    return timer


def rearm_all(d: Draft) -> None:
    """Ask for every armed timer again, in the order in which they were started."""
    for number in sorted(d.timers):
        timer = d.timers[number]
        d.commands.append(CommandStartTimer(number, timer.due, timer.purpose))

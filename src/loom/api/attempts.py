"""Attempts at the work of a run: those under way, those that failed, and where in the author's code they failed.

An attempt is one execution of a step's body or of an action of a flow. Attempts count from 1.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache

import msgspec


@cache
def _frame() -> re.Pattern[str]:
    """Compile the pattern of a frame, on first use: most runs have no traceback."""
    return re.compile(
        r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.+)(?:\n {4,}(?! *File ")(?P<source>.+))?',
        re.MULTILINE,
    )


class CodeLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of code."""

    file: str
    line: int
    function: str
    source: str = ""
    """The line itself; empty where the file cannot be read."""


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failed attempt at work that is not done yet."""

    step: str
    """The step, or the action of a flow."""
    attempt: int
    """Which attempt failed, from 1."""
    max_attempts: int | None = None
    """How many attempts the retry policy allows; None if it does not say."""
    failed_at: datetime | None = None
    type: str
    """The type of the exception, or the code of an action's error."""
    message: str
    next_at: datetime | None = None
    """When the next attempt is due; None if it is queued or under way."""
    traceback: str | None = None
    """Where it failed: the author's frames first. A run keeps the newest only; the history has all."""

    @property
    def of(self) -> str:
        """Which attempt it was, in words: `1 of 3`, or `1` where the policy has no limit."""
        return numbered(self.attempt, self.max_attempts)


class ExecutingAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt under way."""

    step: str
    attempt: int
    max_attempts: int | None = None
    """How many attempts the retry policy allows; None if no failure has told yet."""
    since: datetime | None = None
    """When it was dispatched; None for work whose retries were recorded by an older version."""

    @property
    def of(self) -> str:
        """Which attempt it is, in words."""
        return numbered(self.attempt, self.max_attempts)


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is at work on, and what of it has failed so far."""

    executing: list[ExecutingAttempt] = []
    failed: list[FailedAttempt] = msgspec.field(default_factory=list, name="failed_attempts")


def numbered(attempt: int, max_attempts: int | None) -> str:
    """Say which of how many attempts it is."""
    return f"{attempt} of {max_attempts}" if max_attempts else str(attempt)


def place_of(traceback: str) -> CodeLine | None:
    """Find the line that a stored traceback begins with: the innermost of the author's; None if it has no frame."""
    found = _frame().search(traceback)
    if found is None:
        return None
    return CodeLine(
        file=found["file"], line=int(found["line"]), function=found["function"], source=found["source"] or ""
    )

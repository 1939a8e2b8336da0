"""Attempts at the work of a run for people: which are under way, which failed, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.attempts import ExecutingAttempt, FailedAttempt
from loom.cli.shown import ago

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from loom.cli.shown import Page

MAX_SHOWN = 20
"""How many rows a table has at most."""


def add_traceback(page: Page, text: str | None) -> None:
    """Show where something failed, below what it failed with."""
    if text:
        page.line("")
        page.line("Where it failed (most recent call first):")
        page.lines(text, "  ", "  ")


def add_attempts(page: Page, found: Mapping[str, Any], now: float) -> None:
    """Show what a run is at work on: attempts under way, and those that have failed and come again."""
    executing = msgspec.convert(found.get("executing", []), list[ExecutingAttempt])
    rows = [(each.step, each.of, ago(_seconds(each.since), now)) for each in executing[:MAX_SHOWN]]
    if rows:
        page.table(("step", "attempt", "since"), rows, title_of("Executing", executing))
    failed = failed_attempts(found)
    told = [
        (each.step, each.of, ago(_seconds(each.failed_at), now), next_words(each, now), attempt_error(each))
        for each in failed[:MAX_SHOWN]
    ]
    if told:
        page.table(("step", "attempt", "failed", "next try", "error"), told, title_of("Failed attempts", failed))
    add_traceback(page, next((each.traceback for each in failed if each.traceback), None))


def failed_attempts(found: Mapping[str, Any]) -> list[FailedAttempt]:
    """The failed attempts in the state of a run; none of a server that does not tell them."""
    return msgspec.convert(found.get("failed_attempts", []), list[FailedAttempt])


def next_words(attempt: FailedAttempt, now: float) -> str:
    """When the next attempt is."""
    return ago(_seconds(attempt.next_at), now) if attempt.next_at is not None else "now"


def attempt_error(attempt: FailedAttempt) -> str:
    """What an attempt failed with."""
    kind = attempt.type.removeprefix("builtins.")
    return attempt.message if attempt.message.startswith(kind) else f"{kind}: {attempt.message}".removesuffix(": ")


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def title_of(title: str, rows: Sequence[Any]) -> str:
    """The title of a table that may have more rows than are shown."""
    return f"{title} ({len(rows)}, the first {MAX_SHOWN} are shown)" if len(rows) > MAX_SHOWN else title

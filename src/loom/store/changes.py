"""How a store tells which runs have changed: by looks, each of which goes on exactly where the last one ended.

A commit of a busy run writes nothing for this. A run is written by its owner or by a transaction that leaves it without
one, so a look finds everything in two places:

- runs that have an owner now: compared with the last look, they are few;
- runs that were written without an owner, deleted, or given other tags: the store logs their ids.

A position belongs to the store, not to a process: another process goes on from it. No clock has a part in it. See ADR
0066.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from loom.store.records import RunRow

MOST_CHANGES: Final = 2000
"""Runs that one look tells of at most. Where more have changed, a list is read faster than the changes."""


class ChangedRun(NamedTuple):
    """A run that a look has found changed."""

    run_id: str
    workflow: str
    row: RunRow | None
    """As it is now; None if it was deleted."""


class Look(NamedTuple):
    """What one look has found."""

    position: str
    """Where the next look goes on, in this process or in another one."""
    changed: list[ChangedRun]
    """Each run once, but for one that was deleted and began again as another workflow: first it is gone. A first look
    after a position may tell of runs that have an owner and have not changed."""
    is_whole: bool = True
    """False: the position was unknown or too old, or too many runs have changed. Then `changed` is empty."""


class ChangeReader(Protocol):
    """Looks for changed runs again and again, for one caller, one look at a time."""

    pause: float
    """How many seconds to wait between two looks at least: 0.0 where a look costs next to nothing."""

    async def look(self) -> Look:
        """Tell what has changed since the last look, or since the position that the reader was made with.

        The first look of a reader without a position finds nothing: it marks the place. A look that raises has not
        moved the reader.
        """
        ...


def whole_or_not(position: str, changed: list[ChangedRun]) -> Look:
    """Make a look of what was found, unless that is too much."""
    return Look(position, changed) if len(changed) <= MOST_CHANGES else Look(position, [], is_whole=False)

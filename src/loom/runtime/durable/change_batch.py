"""What a feed of changes has for one reader: coalesced by run, so that a slow reader needs bounded memory. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from loom.api.changes import Gone, RunChange
from loom.api.counts import Counts
from loom.api.runs import Run
from loom.store.changes import MOST_CHANGES
from loom.store.records import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.api.changes import ChangeEvent
    from loom.store.records import RunQuery, RunRow

_MOST_BYTES: Final = 8 * 1024 * 1024


class FeedPlace(NamedTuple):
    """Where a reader is in all that changes."""

    epoch: str
    """The feed that has counted `version`; another one, or a later one, knows only the position."""
    version: int
    position: str
    """In the store: see `loom.store.changes`."""

    def written(self) -> str:
        """Write it as an opaque cursor."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def read_place(cursor: str) -> FeedPlace | None:
    """Read a cursor; None if no feed has written it."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=FeedPlace)
    except ValueError:
        return None


@dataclass(slots=True, eq=False)
class FeedItem:
    """A run that has changed, for all readers that get it in the same form."""

    run_id: str
    run: Run | None
    """As lists show it; None: it is gone."""
    weight: int = 0
    """About how many bytes it takes, beyond a few."""
    written: bytes | None = None
    """Its JSON, once a reader has asked for it."""


@dataclass(frozen=True, slots=True, eq=False)
class FeedBatch:
    """What a reader is to be told at once. Readers of one view share it."""

    before: str
    """The cursor that holds until all of it was told."""
    cursor: str
    items: dict[str, FeedItem] = field(default_factory=dict)
    """By run, in the order of their last changes."""
    counts: Counts | None = None
    is_reset: bool = False
    """Changes were missed, or are too many: lists are loaded again."""
    blocks: dict[bool, bytes] = field(default_factory=dict)
    """How it is written on streams, by their form."""

    def told(self) -> Iterator[RunChange]:
        """Iterate over the messages that it makes. Until the last one, the cursor before all of them holds."""
        parts: list[tuple[ChangeEvent, Any]] = [("reset", None)] if self.is_reset else []
        parts += [
            ("run", item.run) if item.run is not None else ("gone", Gone(run_id=item.run_id))
            for item in self.items.values()
        ]
        if self.counts is not None:
            parts.append(("counts", self.counts))
        for number, (event, data) in enumerate(parts, 1):
            yield RunChange(event=event, id=self.cursor if number == len(parts) else self.before, data=data)

    def followed_by(self, later: FeedBatch) -> FeedBatch:
        """Return both as one: of each run only the newest is told."""
        counts = later.counts or self.counts
        items = {run_id: item for run_id, item in self.items.items() if run_id not in later.items} | later.items
        # A list that is loaded after the reset has all that came before it is told.
        if self.is_reset or later.is_reset or _is_too_much(items):
            return FeedBatch(self.before, later.cursor, {}, counts, is_reset=True)
        return FeedBatch(self.before, later.cursor, items, counts)


def _is_too_much(items: dict[str, FeedItem]) -> bool:
    return len(items) > MOST_CHANGES or sum(item.weight for item in items.values()) > _MOST_BYTES


class ViewKey(NamedTuple):
    """What tells views apart: readers with the same one get the same messages."""

    query: bytes
    allowed: tuple[str, ...] | None
    counted: tuple[str, ...] | None


class FeedView(NamedTuple):
    """Which runs a reader wants and may see, and which counts."""

    query: RunQuery
    allowed: frozenset[str] | None = None
    """The workflows that its key is good for; None: all."""
    counted: tuple[str, ...] | None = None
    """The workflows whose runs are counted; None: all but Loom's own."""

    def key(self) -> ViewKey:
        """Return what tells it apart from others."""
        query = msgspec.json.encode(msgspec.to_builtins(self.query), order="deterministic")
        return ViewKey(query, tuple(sorted(self.allowed)) if self.allowed is not None else None, self.counted)

    def fits(self, row: RunRow | None) -> bool:
        """Tell whether a run is in the list."""
        return row is not None and self.may_show(row.run_id, row.workflow) and matches(row, self.query)

    def may_show(self, run_id: str, workflow: str) -> bool:
        """Tell whether a run could ever be in the list: its reader may hear of it."""
        query = self.query
        return (
            (self.allowed is None or workflow in self.allowed)
            and (query.workflows is None or workflow in query.workflows)
            and (query.id_prefix is None or run_id.startswith(query.id_prefix))
        )

"""What a feed of changes tells: runs as they are now, runs that are gone, counts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loom.api.answers import Answer, promises
from loom.api.counts import Counts
from loom.api.runs import Run

ChangeEvent = Literal["run", "gone", "counts", "reset"]


class Gone(Answer, frozen=True, kw_only=True):
    """A run that was deleted, or that the filter of the feed does not mean any more."""

    run_id: str


class Reset(Answer, frozen=True, kw_only=True):
    """Nothing: changes were missed, so that lists are loaded again."""


@promises(id=str, data=dict[str, Any])
class RunChange(Answer, frozen=True, kw_only=True):
    """One message of a feed of changes.

    `run`: `data` is a run that has changed, as lists show it. `gone`: it is `{run_id}`. `counts`: it is the counts.
    `reset`: changes were missed, so that lists are loaded again; the feed goes on.
    """

    event: ChangeEvent
    id: str | None = None
    """The cursor to go on from, after this message."""
    data: Any = None

    @property
    def run(self) -> Run | None:
        """The run of a message `run`."""
        return self.data if isinstance(self.data, Run) else None

    @property
    def run_id(self) -> str | None:
        """The id of the run that changed or is gone."""
        return self.data.run_id if isinstance(self.data, Run | Gone) else None

    @property
    def counts(self) -> Counts | None:
        """The counts of a message `counts`."""
        return self.data if isinstance(self.data, Counts) else None


def typed_change(event: str, cursor: str | None, data: bytes | str) -> RunChange | None:
    """Read a message from its parts, `data` as JSON; None if this version knows no such message."""
    match event:
        case "run":
            return RunChange(event="run", id=cursor, data=msgspec.json.decode(data, type=Run, strict=False))
        case "gone":
            return RunChange(event="gone", id=cursor, data=msgspec.json.decode(data, type=Gone, strict=False))
        case "counts":
            return RunChange(event="counts", id=cursor, data=msgspec.json.decode(data, type=Counts, strict=False))
        case "reset":
            return RunChange(event="reset", id=cursor)
        case _:
            return None

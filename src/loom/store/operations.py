"""What a store can be asked to write. Each operation says what its result is. May import msgspec and the records."""

from __future__ import annotations

from typing import Literal

import msgspec

from loom.store.records import Chunk, RunHead, RunRow, Snapshot, StoredRun, TimerRow


class StartRun(msgspec.Struct, frozen=True):
    """Accept a run. Result: `Started`. The row gets status running, needs_worker, no ticks."""

    run_id: str
    workflow: str
    start: bytes
    """What its first tick is made from, by whoever takes it up; kept for comparison with a repeated start."""
    created_at: float
    tags: dict[str, str] = {}
    parent: str | None = None
    parent_ref: int = 0
    owner: int | None = None
    """The fence of the member that takes it up at once."""
    downtime: float = 0.0
    document: tuple[str, bytes] | None = None
    """Digest and text of the definition that it keeps for life. The first text under a digest is the one that stays."""
    mail: PostMail | None = None
    """What a new run has in its inbox from the first moment. A run that is there already is not sent it."""
    mac: bytes | None = None
    """The signature of its row: see `loom.store.chain`."""


class Started(msgspec.Struct, frozen=True):
    """Whether the run is new; if not, what the run of this id is."""

    created: bool
    workflow: str = ""
    start: bytes = b""
    mailed: bool = False
    """Whether the mail of the start has reached it although it is not new: a cluster sends and starts in one."""


class PostMail(msgspec.Struct, frozen=True):
    """Accept something for a run. Result: `Posted`."""

    run_id: str
    data: bytes
    at: float
    event_id: str | None = None
    """Unique within the run, for ever: the same id again is a success that changes nothing, also after the end."""
    limit: int | None = None
    """Refuse it if the early events that the run keeps and its mail are so many already."""
    reopens: bool = False
    """It is for a failed run only, which is running again with it (no `ended_at`, `needs_worker`); others refuse it."""
    reopened: tuple[int, bytes | None] | None = None
    """With `reopens`: how many ticks the failed run must have (another number is refused as `finished`), and the
    signature of its row when it is running again. None: any number, and no signature."""


class Posted(msgspec.Struct, frozen=True):
    """What became of a `PostMail`."""

    outcome: Literal["posted", "repeated", "no_run", "finished", "full"]
    status: str = ""
    """Of a finished run: how it ended."""
    kept: int = 0


class CommitRun(msgspec.Struct, frozen=True):
    """One flush of a run. Result: True, or False if `fence` does not own the run (then nothing was written).

    With a status other than running the run ends: it has no owner, no timers and waits for nothing any more. Its mail
    is gone too, unless it has failed: then the mail that it has not taken waits for a retry.
    """

    run_id: str
    fence: int
    head: RunHead
    waiting_changed: bool = True
    """Whether `head.waiters` and `head.waiting_for` differ from what is stored; if not, they are left alone."""
    chunk: Chunk | None = None
    timers_set: tuple[TimerRow, ...] = ()
    """Added, or replaced by their number."""
    timers_gone: tuple[int, ...] = ()
    mail_taken: tuple[int, ...] = ()
    snapshot: Snapshot | None = None
    """Replaces the run's snapshot."""
    sent: tuple[StartRun | PostMail, ...] = ()
    """What the run does to other runs, in the same transaction. Refusals of it are ignored."""
    prune: int = 0
    """With a snapshot: delete the chunks that lie wholly within so many of the first ticks that it covers."""
    document: tuple[str, bytes] | None = None
    """Digest and text of the definition that the run keeps for life, as in a start that did not have it at hand. A run
    that has one already keeps that, and this is not stored."""


class SignHead(msgspec.Struct, frozen=True):
    """Sign a row that has no signature. Result: True, or False if the row is not as it was when it was read."""

    row: RunRow
    """As it was read, with the signature in its head."""


class ReleaseRun(msgspec.Struct, frozen=True):
    """Give a run up, unless mail has come for it. Result: True if it has no owner now (or another one than `fence`)."""

    run_id: str
    fence: int


class ClaimRun(msgspec.Struct, frozen=True):
    """Take one run up, if it is running and nobody owns it. Result: True if `fence` owns it now.

    A run that is suspected of having killed its process is refused, unless `suspected` says that it is to be ended.
    """

    run_id: str
    fence: int
    suspected: bool = False


class ClaimRuns(msgspec.Struct, frozen=True):
    """Take up runs of these workflows that nobody owns and that need a worker, have mail, or have a timer due at `now`.

    Parked runs and suspected ones are left alone. Result: the ids of the runs that `fence` owns now, at most `limit`,
    those that have waited longest first.
    """

    fence: int
    workflows: tuple[str, ...]
    now: float
    limit: int = 100


class ParkRun(msgspec.Struct, frozen=True):
    """Note why a run cannot be taken up, and give it up. Result: True, or False if `fence` does not own it."""

    run_id: str
    fence: int
    reason: str
    is_poison: bool = False
    """It has killed its processes: it is no suspect any more, and neither are others that no death counts for."""


class TryRun(msgspec.Struct, frozen=True):
    """Take up, on probation, the next suspected run of these workflows that has something to do; one per member.

    Those that most deaths count for come first, then those that were written last. Result: a list with its id, or an
    empty one.
    """

    fence: int
    workflows: tuple[str, ...]
    now: float


class AcquitRun(msgspec.Struct, frozen=True):
    """End the probation of a run: it is no suspect until the next death. Result: True if `fence` had it on one."""

    run_id: str
    fence: int
    now: float


class ForgetDeaths(msgspec.Struct, frozen=True):
    """Forget the deaths of a run that has had a result, or those of a member that lives after all. Result: how many
    runs they were counted for.
    """

    run_id: str | None = None
    fence: int | None = None
    """Of a run: its owner. Alone: the member that was taken for dead."""
    unparks: bool = False
    """The run was parked for them, and is let go again: it is not parked any more."""


class PurgeRuns(msgspec.Struct, frozen=True):
    """Delete ended runs: the one of this id, or those that ended before a time. Result: how many.

    Their documents go with them, unless another run has them or they were saved for themselves.
    """

    run_id: str | None = None
    ended_before: float | None = None
    limit: int = 1000


class ImportRun(msgspec.Struct, frozen=True):
    """Store a run that was exported or forked, owned by nobody. Result: True, or False if the id is taken.

    Its document is stored under the digest in its row, unless it is there.
    """

    run: StoredRun


Operation = (
    StartRun
    | PostMail
    | CommitRun
    | SignHead
    | ReleaseRun
    | ClaimRun
    | ClaimRuns
    | ParkRun
    | TryRun
    | AcquitRun
    | ForgetDeaths
    | PurgeRuns
    | ImportRun
)
Result = Started | Posted | bool | int | list[str]

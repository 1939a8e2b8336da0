"""The operations that a store writes. Each one says what its result is."""

from __future__ import annotations

from typing import Literal

import msgspec

from loom.store.records import Chunk, RunHead, RunRow, Snapshot, StoredRun, TimerRow


class StartRun(msgspec.Struct, frozen=True):
    """Accept a run. Result: `Started`. The row gets status running, needs_worker, no ticks."""

    run_id: str
    workflow: str
    start: bytes
    """What its owner makes its first tick from; kept for comparison with a repeated start."""
    created_at: float
    tags: dict[str, str] = {}
    parent: str | None = None
    parent_ref: int = 0
    owner: int | None = None
    """The fence of the member that owns it at once; None if any member may claim it."""
    downtime: float = 0.0
    document: tuple[str, bytes] | None = None
    """Digest and text of the definition that it keeps for life. The first text under a digest is the one that stays."""
    message: PostMessage | None = None
    """What a new run has in its inbox from the first moment. A run that exists already does not get it."""
    mac: bytes | None = None
    """The signature of its row: see `loom.store.hash_chain`."""


class Started(msgspec.Struct, frozen=True):
    """Whether a start made a run; if not, workflow and start of the run that has the id."""

    created: bool
    workflow: str = ""
    start: bytes = b""
    posted: bool = False
    """Whether the message of the start has reached a run that is not new: a cluster sends and starts in one call."""


class PostMessage(msgspec.Struct, frozen=True):
    """Put a message into the inbox of a run. Result: `Posted`."""

    run_id: str
    data: bytes
    at: float
    event_id: str | None = None
    """Unique within the run for ever. The same id again is a success that changes nothing, also after the end."""
    limit: int | None = None
    """Refuse it if the run has this many early events and inbox messages already."""
    reopens: bool = False
    """Whether it retries a failed run, which is then running again, with `needs_worker`. Other runs refuse it."""
    reopened: tuple[int, bytes | None] | None = None
    """With `reopens`: how many ticks the failed run must have (another number is refused as `finished`), and the
    signature of its row when it is running again. None: any number of ticks, and no signature."""


class Posted(msgspec.Struct, frozen=True):
    """The result of a `PostMessage`."""

    outcome: Literal["posted", "repeated", "no_run", "finished", "full"]
    status: str = ""
    """Of a finished run: how it ended."""
    kept: int = 0


class CommitRun(msgspec.Struct, frozen=True):
    """One flush of a run. Result: True, or False if `fence` does not own the run (then nothing was written).

    With a status other than running the run ends: it has no owner, no timers and waits for nothing any more. Its inbox
    is emptied too, unless it has failed: then the messages that it has not taken wait for a retry.
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
    messages_taken: tuple[int, ...] = ()
    snapshot: Snapshot | None = None
    """Replaces the run's snapshot."""
    sent: tuple[StartRun | PostMessage, ...] = ()
    """Starts of and messages for other runs, in the same transaction. Refusals of them are ignored."""
    prune: int = 0
    """With a snapshot that covers them: delete the chunks that lie wholly within this many first ticks."""
    document: tuple[str, bytes] | None = None
    """Digest and text of the definition that the run keeps for life, if its start did not bring one. A run that has one
    keeps that, and this is not stored."""


class SignHead(msgspec.Struct, frozen=True):
    """Sign a row that has no signature. Result: True, or False if the row is not as it was when it was read."""

    row: RunRow
    """As it was read, with the signature in its head."""


class SetTags(msgspec.Struct, frozen=True):
    """Replace the tags of a run, whatever its status. Result: True, or False if there is no such run."""

    run_id: str
    tags: dict[str, str]
    keeps: tuple[str, ...] = ()
    """Names of tags that stay as they are, if the run has them."""


class ReleaseRun(msgspec.Struct, frozen=True):
    """Release a run, unless its inbox has messages. Result: True if `fence` does not own it now."""

    run_id: str
    fence: int


class ClaimRun(msgspec.Struct, frozen=True):
    """Claim one run, if it is running and has no owner. Result: True if `fence` owns it now.

    A run that is suspected of having killed its process is refused, unless `suspected` says that it is to be ended.
    """

    run_id: str
    fence: int
    suspected: bool = False


class ClaimRuns(msgspec.Struct, frozen=True):
    """Claim runs of these workflows without an owner that need a worker, have messages, or have a timer due at `now`.

    Parked runs and suspected ones are left alone. Result: the ids of the runs that `fence` owns now, at most `limit`,
    longest waiting first.
    """

    fence: int
    workflows: tuple[str, ...]
    now: float
    limit: int = 100


class ParkRun(msgspec.Struct, frozen=True):
    """Note why a run cannot be recovered, and release it. Result: True, or False if `fence` does not own it."""

    run_id: str
    fence: int
    reason: str
    is_poison: bool = False
    """Whether it has killed its processes. Then it is no suspect any more, nor are runs without own deaths."""


class TryRun(msgspec.Struct, frozen=True):
    """Claim, on probation, the next suspected run of these workflows that has something to do; one per member.

    Runs with the most deaths of their own come first, then the ones written last. Result: a list with its id, or an
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
    """Forget the deaths of a run that has had a result, or of a member that lives after all.

    Result: how many runs they were counted for.
    """

    run_id: str | None = None
    fence: int | None = None
    """The owner of the run; without a run, the member that was taken for dead."""
    unparks: bool = False
    """Whether the run was parked for its deaths and is parked no more."""


class PurgeRuns(msgspec.Struct, frozen=True):
    """Delete ended runs: the one of this id, or all that ended before a time. Result: how many.

    Their documents go with them, unless another run has them or they were saved for themselves.
    """

    run_id: str | None = None
    ended_before: float | None = None
    limit: int = 1000


class ImportRun(msgspec.Struct, frozen=True):
    """Store a run that was exported or forked, without an owner. Result: True, or False if the id is taken.

    Its document is stored under the digest in its row, unless it is there.
    """

    run: StoredRun


Operation = (
    StartRun
    | PostMessage
    | CommitRun
    | SignHead
    | SetTags
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

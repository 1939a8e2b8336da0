"""What goes over the wire between a run on Temporal, its activities and its clients, as plain structs in JSON.

Every payload is one struct in the encoding `json/plain`, so that Temporal's own tools show it. Bytes of the store's
codec, which are JSON too, go along as texts. The same value always has the same bytes: sizes decide where a flush is
split. Histories hold these structs, so a field keeps its name on the wire, and a new field needs a default.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from temporalio.api.common.v1 import Payload

from loom.core.commands import CommandRunWorker, CommandStartChild
from loom.core.state import Answer, BrokerConfig, Execution
from loom.core.ticks import TickRetryRun, WorkflowTick
from loom.store.codec import decoder_of, encode
from loom.store.records import Chunk, Entry, RunHead, RunRow, StoredRun

T = TypeVar("T")

MAX_PAYLOAD = 1_900_000
"""The largest payload, in bytes before any codec: the server takes two MiB."""

_EMPTY = Payload(metadata={"encoding": b"json/plain"})
"""Copied for every payload: making its map each time would cost more than all the rest."""


# -- beginnings -------------------------------------------------------------------------------------------------------


class RunMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is fixed about a run from its start: its memo, readable without a worker."""

    run_id: str
    workflow: str
    created_at: float
    tags: dict[str, str] = {}
    parent: str | None = None
    parent_ref: int = 0
    forked_from: str | None = None
    document: str | None = None
    """The digest of its definition; None for a workflow in Python."""
    attributes: bool = False
    """Whether the run keeps search attributes up to date: the cluster has them."""
    start: str = ""
    """The digest of its start, to tell a repeated start from another one."""


class CarriedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run takes along into a new execution."""

    state: str
    """As `codec.encode_state` writes it."""
    backlog: tuple[WorkflowTick, ...] = ()
    """Ticks that a parked run could not take."""
    executions: int = 1
    """How many executions there were before."""
    code_since: float = 0.0
    """How new the code is that the run was told of last, in seconds since the epoch."""
    event_ids: tuple[str, ...] = ()
    """Ids of events that came before the run was on this cluster."""
    children: tuple[CommandStartChild, ...] = ()
    """Child runs that had no room yet: the state has them without their starts."""


class StartArgument(msgspec.Struct, frozen=True, omit_defaults=True, rename={"metadata": "card"}):
    """The one argument of every Loom workflow on Temporal. It has exactly one of `start`, `stored` and `carried`."""

    metadata: RunMetadata
    version: int = 1
    start: str | None = None
    """A new run: as `codec.encode_start` writes it."""
    config: BrokerConfig | None = None
    """The code of a new or continued run. None: the client did not have it, and the first activity asks for it."""
    document: str | None = None
    """The text of the flow."""
    stored: StoredRun | None = None
    """A run that was exported, forked, or is retried: it goes on from here."""
    retry: bool = False
    """The stored run had failed, and goes on from what had failed."""
    healing: TickRetryRun | None = None
    """The tick that brings another event in place of the failed one; None if it goes on with the same."""
    carried: CarriedState | None = None
    previous: str = ""
    """Of a retried run: the Temporal run id of the execution that has the ticks before the stored snapshot."""
    keeps_timeout: bool = False
    """The code asks for no timeout: a run that goes on keeps its own."""

    def as_stored(self) -> StoredRun:
        """Return the run as a record: the stored one, or one of which nothing is stored but its start."""
        if self.stored is not None:
            return self.stored
        run, text = self.metadata, self.document
        # A carried state has had ticks, which tells a flow from a workflow in Python.
        head = RunHead("running", 1 if self.carried is not None else 0, 0, 0.0)
        row = RunRow(run.run_id, run.workflow, run.created_at, head, document=run.document)
        return StoredRun(row, (self.start or "").encode(), None, (), document=text.encode() if text else None)


# -- activities -------------------------------------------------------------------------------------------------------


class StepTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The argument of an activity: one execution of a body."""

    command: CommandRunWorker
    run_id: str
    workflow: str
    answers: dict[str, Answer] = {}
    """The answers to waits of the work item so far, by key."""
    document: str | None = None
    """The digest of the flow's definition; its text is with the run (`QUERY_ORIGIN`)."""
    parent: str | None = None
    created_at: float = 0.0


class ActivityReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an activity: effects of the body that did not leave as signals, in order, and at last its result.

    The last tick is a `TickStepResult`, a `TickParkRun`, a `TickLeaveStep` if the body waits, or a `TickRefuseEvent` if
    its event does not fit its class.
    """

    ticks: tuple[WorkflowTick, ...]


class CodeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The argument of `ACTIVITY_CODE`: which workflow's code is asked for, and for which start."""

    workflow: str
    start: str = ""
    """As `codec.encode_start` writes it: perhaps inputs alone, of which only the code can make an event."""


class CodeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The code of a workflow as the reducer sees it, with the document of a flow."""

    config: BrokerConfig
    digest: str | None = None
    text: str | None = None
    start: str | None = None
    """The start with its event."""


# -- signals and updates ----------------------------------------------------------------------------------------------


class RunMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tick from outside, with the id that makes it idempotent; for a parked run with the sender's code."""

    tick: WorkflowTick
    config: BrokerConfig | None = None
    began: tuple[str, str] | None = None
    """For a message that comes with a start: the workflow, and the digest of the start.

    A run that began otherwise leaves it out; its sender hears that the id is taken."""
    keeps_timeout: bool = False
    """The code asks for no timeout: the run keeps its own."""


class Effects(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a running body did, in order; `unlocks` gives back the store that this execution held, 0 if it held none."""

    ticks: tuple[WorkflowTick, ...]
    unlocks: int = 0
    attempt: int = 1
    """The attempt of the activity that gives it back."""


class LockRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """An execution's request to be the only writer of the run's store. The run serves requests in their order."""

    seq: int
    attempt: int = 1
    """The attempt that asks. One that was taken for dead is ignored once the next attempt has asked."""


class NewCode(msgspec.Struct, frozen=True):
    """The code as a worker has it, and since when.

    A run drops code that is older than what it was told last. So old workers of a rolling deployment do not bring their
    code back.
    """

    config: BrokerConfig
    since: float = 0.0
    keeps_timeout: bool = False
    """The code asks for no timeout: the run keeps its own."""


# -- queries ----------------------------------------------------------------------------------------------------------


class ChunkQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks for chunks from the one with this tick, or with this cursor if it is not None, up to `max_bytes`."""

    first_tick: int = 0
    cursor: int | None = None
    limit: int = 64
    max_bytes: int = 1_000_000


class Chunks(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a run's journal, and where the part begins that this execution has.

    The execution `previous` has what lies before `first_tick` and `first_cursor`, if the server still keeps it.
    """

    chunks: tuple[Chunk, ...]
    first_tick: int
    first_cursor: int
    ticks: int
    """The numbers of ticks and events that the run has in all."""
    events: int
    previous: str = ""
    """The Temporal run id of the execution before."""


class ExecutionQuery(msgspec.Struct, frozen=True):
    """Asks for one execution, by the command that started it."""

    step: str
    item: int
    seq: int


class ExecutionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An execution as the run has it now; `execution` is None if it is not under way any more."""

    execution: Execution | None = None
    answers: dict[str, Answer] = {}
    wants_store: bool = False
    """Whether it has asked for the run's store, and has neither written nor withdrawn."""


class StoreQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks for the run's store; if `seq` is not 0, only if the execution of this number is the writer now."""

    seq: int = 0


class StoreView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run's store, as its conversion writes it. `granted` is False while another execution is the writer."""

    granted: bool = True
    values: dict[str, Any] = {}
    store_type: str = ""
    version: int = 0
    too_large: int = 0
    """The size in bytes of values that no answer can hold; 0 if they are here."""


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a closed run, and the details of a failed or cancelled one: readable without a worker."""

    row: RunRow
    last: Chunk
    """The last event of its stream, as a chunk without ticks."""


def payload_of(value: Any) -> Payload:
    """Return a struct as the payload of an argument, a result or an answer."""
    payload = Payload()
    payload.CopyFrom(_EMPTY)
    payload.data = encode(value)
    return payload


def value_of(payload: Payload, expected: type[T]) -> T:
    """Return the struct in a payload; `ValueError` if it is not of this type."""
    return decoder_of(expected).decode(payload.data)


UPDATE_PUT = "put"
"""A `PutEntry`; answered with `Written`."""
UPDATE_DROP = "drop"
"""A `DropEntry`; answered with `Written`: its version is 1 if there was an entry."""
QUERY_GET = "get"
"""An `EntryQuery` by key; answered with `FoundEntries`."""
QUERY_LIST = "list"
"""An `EntryQuery` by what is before; answered with `FoundEntries`."""


class EntriesArgument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one argument of a workflow that keeps entries: the entries that it begins with."""

    kind: str
    entries: tuple[Entry, ...] = ()
    last_version: int = 0


class PutEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keep an entry, if the present one has the expected version; None expects nothing."""

    key: str
    data: bytes
    expires_at: float | None = None
    expect: int | None = None


class DropEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Delete an entry, if it has the expected version; None expects nothing."""

    key: str
    expect: int | None = None


class EntryQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Asks for one entry by its key, or for entries after a key; expired ones (by `now`) are left out."""

    now: float
    key: str = ""
    after: str = ""
    limit: int = 100


class FoundEntries(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requested entries, in the order of their keys."""

    entries: tuple[Entry, ...] = ()


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new version; 0 if nothing was written because the present entry is not the expected one."""

    version: int = 0

"""What goes over the wire between a run on Temporal, its activities and its clients, as plain structs in JSON.

Every payload is one struct in the encoding `json/plain`, so that Temporal's own tools show it; bytes of the store's
codec, which are JSON too, go along as texts. The same value always has the same bytes: sizes decide where a flush is
split. May import loom.core, loom.store and temporalio's payload.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from temporalio.api.common.v1 import Payload

from loom.core.commands import CommandRunWorker, CommandStartChild
from loom.core.config import BrokerConfig
from loom.core.state import Answer, Execution
from loom.core.ticks import TickRetryRun, WorkflowTick
from loom.store.codec.structs import decoder_of, encode
from loom.store.records import Chunk, RunRow, StoredRun

T = TypeVar("T")

MAX_PAYLOAD = 1_900_000
"""The largest payload, in bytes before any codec: the server takes two MiB."""

_EMPTY = Payload(metadata={"encoding": b"json/plain"})
"""Copied for every payload: making its map each time would cost more than all the rest."""


# -- beginnings -------------------------------------------------------------------------------------------------------


class Card(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """Whether it keeps search attributes up to date: the cluster has them."""
    start: str = ""
    """The digest of what it was started with, to tell a repeated start from another one."""


class Carried(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run takes along into a new execution."""

    state: str
    """As `codec.encode_state` writes it."""
    backlog: tuple[WorkflowTick, ...] = ()
    """What a parked run was told and could not take."""
    executions: int = 1
    """How many executions there were before."""
    code_since: float = 0.0
    """How new the code is that the run was told of last."""
    event_ids: tuple[str, ...] = ()
    """Ids of events that came before the run was on this cluster."""
    children: tuple[CommandStartChild, ...] = ()
    """Child runs that had no room yet: the state has them, and not what they begin with."""


class Opening(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one argument of every Loom workflow on Temporal. Exactly one of `start`, `stored`, `carried` is there."""

    card: Card
    version: int = 1
    start: str | None = None
    """A new run: as `codec.encode_start` writes it."""
    config: BrokerConfig | None = None
    """The code of a new or continued run, if whoever wrote this had it at hand; else the first activity asks for it."""
    document: str | None = None
    """The text of the flow."""
    stored: StoredRun | None = None
    """A run that was exported, forked, or is retried: it is taken up from here."""
    retry: bool = False
    """The stored run had failed, and goes on from what had failed."""
    healing: TickRetryRun | None = None
    """If it goes on with another event: the tick that brings it."""
    carried: Carried | None = None
    previous: str = ""
    """Of a retried run: the Temporal run id of the execution that has the ticks before the stored snapshot."""
    keeps_timeout: bool = False
    """The code asks for no timeout: a run that is taken up keeps its own."""


# -- activities -------------------------------------------------------------------------------------------------------


class StepTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """The argument of an activity: one execution of a body."""

    command: CommandRunWorker
    run_id: str
    workflow: str
    answers: dict[str, Answer] = {}
    """What the waits of the work item were answered with so far, by key."""
    document: str | None = None
    """The digest of the flow's definition; its text is with the run (`QUERY_ORIGIN`)."""
    parent: str | None = None
    created_at: float = 0.0


class StepReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an activity: what the body did that was not told by signals, in order, and at last its result.

    The last tick is a `TickStepResult`, a `TickParkRun`, a `TickLeaveStep` if the body waits, or a `TickRefuseEvent` if
    it was for an event that does not fit its class.
    """

    ticks: tuple[WorkflowTick, ...]


class CodeRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The argument of `ACTIVITY_CODE`: whose code is asked for, and by which start."""

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


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tick from outside, with the id that makes it idempotent; and the code of who sent it, for a parked run."""

    tick: WorkflowTick
    config: BrokerConfig | None = None
    began: tuple[str, str] | None = None
    """If it was sent along with a start: the workflow, and the digest of what that starts with. A run that began
    otherwise leaves it out; its sender hears that the id is taken."""
    keeps_timeout: bool = False
    """The code asks for no timeout: the run keeps its own."""


class Effects(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a running body did, in order; `unlocks` gives the store back that the execution of this number held."""

    ticks: tuple[WorkflowTick, ...]
    unlocks: int = 0
    attempt: int = 1
    """Which attempt of the activity gives it back."""


class LockRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """An execution wants to be the only writer of the run's store. Requests are served in their order."""

    seq: int
    attempt: int = 1
    """Which attempt of its activity asks: one that was taken for dead has no say any more when the next one has."""


class NewCode(msgspec.Struct, frozen=True):
    """The code as a worker has it, and since when: what is older than the code that a run was told of last is nothing
    new. So the old workers of a rolling deployment do not bring their code back.
    """

    config: BrokerConfig
    since: float = 0.0
    keeps_timeout: bool = False
    """The code asks for no timeout: the run keeps its own."""


# -- queries ----------------------------------------------------------------------------------------------------------


class ChunkQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Chunks from the one with this tick on, or with this cursor if one is given: at most so many bytes of them."""

    first_tick: int = 0
    cursor: int | None = None
    limit: int = 64
    max_bytes: int = 1_000_000


class Chunks(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a run's journal, and where the part begins that this execution has.

    What lies before `first_tick` and `first_cursor` is with the execution `previous`, if the server still keeps it.
    """

    chunks: tuple[Chunk, ...]
    first_tick: int
    first_cursor: int
    ticks: int
    """How many ticks and events the run has in all."""
    events: int
    previous: str = ""
    """The Temporal run id of the execution before."""


class ExecutionQuery(msgspec.Struct, frozen=True):
    """One execution, by what started it."""

    step: str
    item: int
    seq: int


class ExecutionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An execution as the run has it now: None if it is not under way any more."""

    execution: Execution | None = None
    answers: dict[str, Answer] = {}
    wants_store: bool = False
    """Whether it has asked for the run's store, and has neither written nor given up."""


class StoreQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run's store; for the execution of this number only if it is the writer now."""

    seq: int = 0


class StoreView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run's store, as its conversion writes it. `granted` is False while another execution is the writer."""

    granted: bool = True
    values: dict[str, Any] = {}
    store_type: str = ""
    version: int = 0
    too_large: int = 0
    """The bytes of values that no answer can hold, which are not there then."""


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a closed run, and the details of a failed or cancelled one: readable without a worker."""

    row: RunRow
    last: Chunk
    """The last event of its stream, as a chunk without ticks."""


def payload_of(value: Any) -> Payload:
    """A struct as the payload of an argument, a result or an answer."""
    payload = Payload()
    payload.CopyFrom(_EMPTY)
    payload.data = encode(value)
    return payload


def value_of(payload: Payload, expected: type[T]) -> T:
    """The struct in a payload; `ValueError` if it is none of this kind."""
    return decoder_of(expected).decode(payload.data)

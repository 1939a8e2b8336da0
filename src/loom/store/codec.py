"""The codec: ticks, chunks of a journal, states and starts as versioned JSON, and back.

A payload is a JSON array whose first value is the version of its format; older formats are brought up to date when they
are read. What cannot be read is a `CorruptRecord` that says where.

The codec builds nothing but declared types. A struct in an opaque place carries its tag, which is looked up in a table
here and never leads to an import. Bodies and values of authors are texts there, so any other object is damage.

A payload is stored once: a published event that came with a tick of the same chunk is written as the number of that
record among the records of the chunk's ticks.
"""

from __future__ import annotations

import math
import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import replace

from loom.core.body_effects import CollectBuffer
from loom.core.persistent import EMPTY_MAP, Fifo, Map
from loom.core.records import Cancellation, EventRecord, Opaque, Published, Release, Report, StepFailure
from loom.core.state import BrokerState, InternalStepWorkerState, StepLimits
from loom.core.ticks import (
    TickAddEvent,
    TickAwaitEvent,
    TickChildEnded,
    TickPublishEvent,
    TickRetryRun,
    TickStartRun,
    TickStepResult,
    WorkflowTick,
)
from loom.flows.calls import ActionCall, ActionOutcome, ActionReport, FlowEnd, FlowResponse, FlowStart, LoopIteration
from loom.flows.state import FlowPlan, FlowRef
from loom.steps.errors import well_formed
from loom.steps.planner import JoinBuffer, StepInput, StepsPlan
from loom.store.errors import CorruptRecord
from loom.store.payloads import ELSEWHERE, MAGIC
from loom.store.records import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_TAG = "type"

_opaque_types: dict[str, type[msgspec.Struct]] = {}
_plain_dicts: dict[Any, Any] = {}
"""The type of dict that each type of map is written as."""
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()


def register_types(*structs: type[msgspec.Struct]) -> None:
    """Allow structs in opaque places: a plan, a program, a planner's mark, the body of an engine's event."""
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field != _TAG or not isinstance(config.tag, str) or config.array_like:
            raise TypeError(f"{struct.__name__} must be an object with a tag (tag=True) to be told from others.")
        taken = _opaque_types.setdefault(config.tag, struct)
        if taken is not struct:
            raise ValueError(f"The tag {config.tag!r} already belongs to {taken!r}.")


register_types(StepFailure, Release, Cancellation, StepsPlan, StepInput, StepLimits)
register_types(
    FlowPlan, FlowRef, FlowStart, FlowEnd, FlowResponse, ActionCall, ActionOutcome, ActionReport, LoopIteration
)


def _packed_worker(worker: InternalStepWorkerState) -> InternalStepWorkerState:
    return replace(worker, queue=worker.queue.packed(), ready=worker.ready.packed())


def _packed_buffer(buffer: CollectBuffer) -> CollectBuffer:
    return replace(buffer, events=buffer.events.packed())


def _packed_join(join: JoinBuffer) -> JoinBuffer:
    return replace(join, members=join.members.packed())


# Every queue of a state is in a map, by itself or in one of these. Packed, it is written without what has left it, and
# two states that are equal are written alike.
_PACKING: dict[type[Any], Callable[[Any], Any]] = {
    Fifo: Fifo.packed,
    InternalStepWorkerState: _packed_worker,
    CollectBuffer: _packed_buffer,
    JoinBuffer: _packed_join,
}


def _encode_unknown(value: Any) -> Any:
    if isinstance(value, Map):
        if not value:
            return {}
        # A map's own order depends on hashes, which differ between processes.
        items = sorted(value.items())
        pack = _PACKING.get(type(items[0][1])) if items else None
        return {key: pack(item) for key, item in items} if pack is not None else dict(items)
    raise TypeError(f"{type(value).__qualname__} cannot be stored: bodies and values must be encoded before.")


def decode_unknown(expected: Any, value: Any) -> Any:
    """Decode opaque places and maps: the hook of all decoders."""
    if expected is Opaque:
        return _decode_opaque(value) if type(value) is dict else value
    if get_origin(expected) is Map:
        if value == {}:
            return EMPTY_MAP
        plain = _plain_dicts.get(expected)
        if plain is None:
            key, item = get_args(expected)
            plain = dict[key, item]  # type: ignore[valid-type]
            decoder_of(plain)
            _plain_dicts[expected] = plain
        return Map(_convert(value, plain))
    raise NotImplementedError(f"{expected!r} has no stored form")


def decoder_of(expected: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a type, made when it is first needed: that takes milliseconds, and most commands read none.

    With the first decoder of a struct msgspec works out what its fields are, and lets other threads use that half-made,
    of which the process dies. So one is made at a time, also before something is converted without it.
    """
    found = _decoders.get(expected)
    if found is None:
        with _making:
            found = _decoders[expected] = msgspec.json.Decoder(expected, dec_hook=decode_unknown)
    return found


def _decode_opaque(value: dict[str, Any]) -> Any:
    struct = _opaque_types.get(value.get(_TAG, ""))
    if struct is None:
        raise ValueError(f"Unknown tag {value.get(_TAG)!r}")
    decoder_of(struct)
    return _convert(value, struct)


def _convert(value: Any, expected: Any) -> Any:
    try:
        return msgspec.convert(value, expected, str_keys=True, dec_hook=decode_unknown)
    except msgspec.ValidationError as error:
        # As another error it gets the rest of the path, from the whole payload down to here.
        raise ValueError(str(error)) from error


_encoder = msgspec.json.Encoder(enc_hook=_encode_unknown)


def encode(value: msgspec.Struct) -> bytes:
    """Write a struct as JSON. Lone surrogates, which UTF-8 has no form for, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_well_formed(msgspec.to_builtins(value, enc_hook=_encode_unknown)))


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_well_formed(key): _well_formed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_well_formed(item) for item in value]
    return value


FORMAT_VERSION = 1

StructT = TypeVar("StructT", bound=msgspec.Struct)

UPCASTERS: dict[int, Callable[[str, list[Any]], list[Any]]] = {}
"""By version: a function from what kind of payload it is (`tick`, `chunk`, `state`, `start`) and the payload of that
version, as plain JSON values, to the payload of the next version."""

_any_decoder = msgspec.json.Decoder(list[Any])


class Format(Generic[StructT]):
    """One kind of payload. The struct is an array that begins with the version."""

    def __init__(self, kind: str, struct: type[StructT]) -> None:
        self.kind = kind
        self._struct = struct
        self._current = b"[%d," % FORMAT_VERSION

    def read(self, run_id: str, data: bytes, place: Callable[[str], str]) -> StructT:
        """Read a payload. `place` makes of an error's text which part of the run could not be read."""
        try:
            if data.startswith(self._current):
                return decoder_of(self._struct).decode(data)
            return self._read_other(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CorruptRecord(run_id, place(str(error)), str(error)) from error

    def _read_other(self, data: bytes) -> StructT:
        """Read a payload of another version, or refuse what is none."""
        if data.startswith(MAGIC):
            raise ValueError(ELSEWHERE)
        payload = _any_decoder.decode(data)
        version = payload[0] if payload else None
        if type(version) is not int or version < 1:
            raise ValueError("it does not say which format it has")
        if version > FORMAT_VERSION:
            raise ValueError(
                f"it has format {version}, and this version of Loom reads up to {FORMAT_VERSION}: "
                "a newer version of Loom has written it"
            )
        for older in range(version, FORMAT_VERSION):
            payload = UPCASTERS[older](self.kind, payload)
        decoder_of(self._struct)
        return msgspec.convert(payload, self._struct, str_keys=True, dec_hook=decode_unknown)


_float_fields: dict[type[Any], tuple[str, ...]] = {}


def check_tick(tick: WorkflowTick) -> tuple[EventRecord, ...]:
    """Return the event records of a tick in their order; `ValueError` if it could not be read again."""
    names = _float_fields.get(type(tick))
    if names is None:
        fields = msgspec.structs.fields(type(tick))
        names = tuple(field.encode_name for field in fields if field.type in (float, float | None))
        _float_fields[type(tick)] = names
    for name in names:
        value = getattr(tick, name)
        # JSON has no form for these; msgspec would write null without a word.
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{type(tick).__name__}.{name} is {value}, and only finite numbers can be stored.")
    records = records_of(tick)
    for record in records:
        if type(record.body) is dict:
            # It might be taken for one of the engine's own records.
            raise ValueError(
                f"The body of {record.kind.name} is a dict: bodies must be encoded before they are stored."
            )
    return records


def records_of(tick: WorkflowTick) -> tuple[EventRecord, ...]:
    """Return the event records of a tick, in the order that references count them by."""
    match tick:
        case TickStepResult():
            if not tick.collects:
                return tick.returned
            return (*tick.returned, *(call.event for call in tick.collects))
        case TickAddEvent() | TickPublishEvent():
            return (tick.event,)
        case TickAwaitEvent():
            return (tick.waiter_event,) if tick.waiter_event is not None else ()
        case TickStartRun() | TickChildEnded() | TickRetryRun():
            return (tick.event,) if tick.event is not None else ()
        case _:
            return ()


class StartSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the owner of a new run makes its first tick from."""

    event: EventRecord | None = None
    inputs: str | None = None
    """The encoded keywords of the start, where its event could not be made yet; None if there is an event."""
    store: dict[str, str] = {}
    """The staged store: encoded values by key."""
    store_type: str = ""
    seed: int = 0
    traceparent: str | None = None
    """The span of the caller that asked for the run; None without one."""


class _Tick(msgspec.Struct, frozen=True, array_like=True):
    version: int
    tick: WorkflowTick


class _State(msgspec.Struct, frozen=True, array_like=True):
    version: int
    state: BrokerState


class _Start(msgspec.Struct, frozen=True, array_like=True):
    version: int
    start: StartSpec


_TICKS = Format("tick", _Tick)
_STATES = Format("state", _State)
_STARTS = Format("start", _Start)


def encode_tick(tick: WorkflowTick) -> bytes:
    """Write a single tick, as an inbox message has it."""
    check_tick(tick)
    return encode(_Tick(FORMAT_VERSION, tick))


def decode_tick(data: bytes, run_id: str) -> WorkflowTick:
    """Read a single tick."""
    return _TICKS.read(run_id, data, lambda _error: "a tick of its mail").tick


def encode_state(state: BrokerState) -> bytes:
    """Write a state. Equal states give equal bytes, in any process."""
    return encode(_State(FORMAT_VERSION, state))


def decode_state(run_id: str, data: bytes) -> BrokerState:
    """Read a state."""
    return _STATES.read(run_id, data, lambda _error: "its snapshot").state


def encode_start(start: StartSpec) -> bytes:
    """Write a start. Equal starts give equal bytes, by which a repeated one is known.

    Its event has no marks: it was checked in any case, and a start is repeated across versions.
    """
    event = start.event.without_marks() if start.event is not None else None
    ordered = replace(start, event=event, store=dict(sorted(start.store.items())))
    return encode(_Start(FORMAT_VERSION, ordered))


def decode_start(run_id: str, data: bytes) -> StartSpec:
    """Read a start."""
    return _STARTS.read(run_id, data, lambda _error: "its start").start


class _Own(msgspec.Struct, frozen=True, tag="Event", array_like=True):
    """A published event that no tick of the chunk brought."""

    record: EventRecord


_Published = int | _Own | Report


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    version: int
    ticks: list[WorkflowTick]
    published: list[_Published]


_CHUNKS = Format("chunk", _Chunk)
_IN_TICKS, _IN_PUBLISHED = re.compile(r"\$\[1\]\[(\d+)\]"), re.compile(r"\$\[2\]\[(\d+)\]")


def encode_chunk(
    ticks: Sequence[WorkflowTick],
    published: Sequence[Published],
    first_tick: int,
    first_cursor: int,
    previous: bytes | None = None,
) -> Chunk:
    """Write what one commit adds to a run: its ticks, and the events that these put on the stream.

    `previous` is the link of the chunk before it.
    """
    records: list[EventRecord] = []
    for tick in ticks:
        records += check_tick(tick)
    entries: list[_Published] = list(published)  # type: ignore[arg-type]  # records are replaced below
    if EventRecord in map(type, published):  # most chunks publish reports only
        numbers = {id(record.body): number for number, record in enumerate(records)}
        for place, entry in enumerate(published):
            if isinstance(entry, EventRecord):
                number = numbers.get(id(entry.body))
                entries[place] = number if number is not None and records[number] == entry else _Own(entry)
    data = encode(_Chunk(FORMAT_VERSION, list(ticks), entries))
    return Chunk(first_tick, len(ticks), first_cursor, len(published), data, previous)


def decode_ticks(run_id: str, chunk: Chunk) -> list[WorkflowTick]:
    """Read the ticks of a chunk; `CorruptRecord` names the one that cannot be read."""
    return _read_chunk(run_id, chunk).ticks


def decode_published(run_id: str, chunk: Chunk) -> list[Published]:
    """Read what a chunk put on the stream; `CorruptRecord` names the cursor that cannot be read."""
    return _published(run_id, chunk, _read_chunk(run_id, chunk))


def decode_chunk(run_id: str, chunk: Chunk) -> tuple[list[WorkflowTick], list[Published]]:
    """Read the ticks of a chunk and what they put on the stream, in one decoding."""
    payload = _read_chunk(run_id, chunk)
    return payload.ticks, _published(run_id, chunk, payload)


def decode_stream(run_id: str, chunk: Chunk) -> tuple[float | None, list[Published]]:
    """Read the time of a chunk's last tick, None if it has none, and what it put on the stream, in one decoding."""
    payload = _read_chunk(run_id, chunk)
    return payload.ticks[-1].at if payload.ticks else None, _published(run_id, chunk, payload)


def _published(run_id: str, chunk: Chunk, payload: _Chunk) -> list[Published]:
    records: list[EventRecord] | None = None
    published: list[Published] = []
    for position, entry in enumerate(payload.published):
        if isinstance(entry, int):
            if records is None:
                records = [record for tick in payload.ticks for record in records_of(tick)]
            if not 0 <= entry < len(records):
                place = f"event {chunk.first_cursor + position}"
                raise CorruptRecord(run_id, place, f"it refers to record {entry}, but there are {len(records)}")
            published.append(records[entry])
        else:
            published.append(entry.record if isinstance(entry, _Own) else entry)
    return published


def _read_chunk(run_id: str, chunk: Chunk) -> _Chunk:
    payload = _CHUNKS.read(run_id, chunk.data, partial(_place_in_chunk, chunk))
    if len(payload.ticks) != chunk.ticks or len(payload.published) != chunk.events:
        found = f"{len(payload.ticks)} ticks and {len(payload.published)} events"
        where = _place_in_chunk(chunk, "")
        raise CorruptRecord(run_id, where, f"it holds {found}, not {chunk.ticks} and {chunk.events}")
    return payload


def _place_in_chunk(chunk: Chunk, error: str) -> str:
    """Name the part of a chunk that an error is about. The outermost path comes last in its text."""
    if found := _IN_TICKS.findall(error):
        return f"tick {chunk.first_tick + int(found[-1])}"
    if found := _IN_PUBLISHED.findall(error):
        return f"event {chunk.first_cursor + int(found[-1])}"
    return f"the chunk of {chunk.ticks} ticks from tick {chunk.first_tick}"

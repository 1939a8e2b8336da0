"""The engine's structs as JSON and back: what msgspec has to be told about maps, queues and opaque places.

A struct in an opaque place carries its tag, which is looked up in a table here and never leads to an import. Bodies and
values of authors are texts there, so whatever else looks like a struct is damage. May import loom.core,
loom.flows and loom.steps.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import msgspec
from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import CollectBuffer
from loom.core.persistent import EMPTY_MAP, Fifo
from loom.core.records import Opaque, Release, StepFailure
from loom.core.state import InternalStepWorkerState
from loom.flows.calls import (
    ActionCall,
    ActionOutcome,
    ActionReport,
    FlowEnd,
    FlowResponse,
    FlowStart,
    LoopIteration,
)
from loom.flows.state import FlowPlan, FlowRef
from loom.steps.planner import StepInput
from loom.steps.streams import JoinBuffer, StepsPlan
from loom.steps.texts import well_formed

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_TAG = "type"

_opaque_types: dict[str, type[msgspec.Struct]] = {}
_plain_dicts: dict[Any, Any] = {}
"""The type of dict that each type of map is written as."""
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()


def register_types(*structs: type[msgspec.Struct]) -> None:
    """Let these structs stand in opaque places: a plan, a program, a planner's mark, the body of an engine's event."""
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field != _TAG or not isinstance(config.tag, str) or config.array_like:
            raise TypeError(f"{struct.__name__} must be an object with a tag (tag=True) to be told from others.")
        taken = _opaque_types.setdefault(config.tag, struct)
        if taken is not struct:
            raise ValueError(f"The tag {config.tag!r} already belongs to {taken!r}.")


register_types(StepFailure, Release, StepsPlan, StepInput)
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
    """The hook of all decoders: opaque places and maps."""
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
    """The decoder of a type, made when it is first asked for: that takes milliseconds, and many a command reads none.

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
    """A struct as JSON. Lone surrogates, which UTF-8 has no form for, become U+FFFD."""
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

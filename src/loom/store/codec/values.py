"""Single ticks (a run's mail), states (its snapshots) and starts as bytes and back. May import loom.core."""

from __future__ import annotations

import msgspec

from loom.core.records import EventRecord
from loom.core.state import BrokerState
from loom.core.ticks import WorkflowTick
from loom.store.codec.checks import check_tick
from loom.store.codec.formats import FORMAT_VERSION, Format
from loom.store.codec.structs import encode


class StartSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the first tick of a run is made from, by whoever takes the run up."""

    event: EventRecord | None = None
    inputs: str | None = None
    """The encoded keywords of the start, where nobody could make its event yet."""
    store: dict[str, str] = {}
    """The staged store: encoded values by key."""
    store_type: str = ""
    seed: int = 0


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
    """A tick by itself, as a run's mail has it."""
    check_tick(tick)
    return encode(_Tick(FORMAT_VERSION, tick))


def decode_tick(data: bytes, run_id: str) -> WorkflowTick:
    """The tick that the bytes stand for."""
    return _TICKS.read(run_id, data, lambda _error: "a tick of its mail").tick


def encode_state(state: BrokerState) -> bytes:
    """A state; equal states give equal bytes, in any process."""
    return encode(_State(FORMAT_VERSION, state))


def decode_state(run_id: str, data: bytes) -> BrokerState:
    """The state that the bytes stand for."""
    return _STATES.read(run_id, data, lambda _error: "its snapshot").state


def encode_start(start: StartSpec) -> bytes:
    """A start; equal starts give equal bytes, by which a repeated one is known.

    Its event has no marks: it was checked in any case, and a start is repeated across versions.
    """
    event = start.event.without_marks() if start.event is not None else None
    ordered = StartSpec(event, start.inputs, dict(sorted(start.store.items())), start.store_type, start.seed)
    return encode(_Start(FORMAT_VERSION, ordered))


def decode_start(run_id: str, data: bytes) -> StartSpec:
    """The start that the bytes stand for."""
    return _STARTS.read(run_id, data, lambda _error: "its start").start

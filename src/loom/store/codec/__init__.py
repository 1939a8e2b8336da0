"""Runs as bytes: ticks, chunks of a journal, states and starts as versioned JSON. Re-exports only."""

from __future__ import annotations

from loom.store.codec.chunks import decode_published, decode_stream, decode_ticks, encode_chunk
from loom.store.codec.formats import FORMAT_VERSION
from loom.store.codec.structs import register_types
from loom.store.codec.values import (
    StartSpec,
    decode_start,
    decode_state,
    decode_tick,
    encode_start,
    encode_state,
    encode_tick,
)

__all__ = [
    "FORMAT_VERSION",
    "StartSpec",
    "decode_published",
    "decode_start",
    "decode_state",
    "decode_stream",
    "decode_tick",
    "decode_ticks",
    "encode_chunk",
    "encode_start",
    "encode_state",
    "encode_tick",
    "register_types",
]

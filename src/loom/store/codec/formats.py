"""Envelopes with a version: what is stored says which format it has, and older formats are brought up to date.

A payload is a JSON array whose first value is the version. What cannot be read is a `CorruptRecord` that says where.
May import msgspec and loom.store.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from loom.store.codec.structs import decode_unknown, decoder_of
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT_VERSION = 1

T = TypeVar("T", bound=msgspec.Struct)

UPCASTERS: dict[int, Callable[[str, list[Any]], list[Any]]] = {}
"""By version: a function from what kind of payload it is (`tick`, `chunk`, `state`, `start`) and the payload of that
version, as plain JSON values, to the payload of the next version."""

_any_decoder = msgspec.json.Decoder(list[Any])


class Format(Generic[T]):
    """One kind of payload. The struct is an array that begins with the version."""

    def __init__(self, kind: str, struct: type[T]) -> None:
        self.kind = kind
        self._struct = struct
        self._current = b"[%d," % FORMAT_VERSION

    def read(self, run_id: str, data: bytes, place: Callable[[str], str]) -> T:
        """The payload; `place` tells from the words of an error what of the run could not be read."""
        try:
            if data.startswith(self._current):
                return decoder_of(self._struct).decode(data)
            return self._read_other(data)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise CorruptRecord(run_id, place(str(error)), str(error)) from error

    def _read_other(self, data: bytes) -> T:
        """A payload of another version, or none at all."""
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

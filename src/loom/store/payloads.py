"""Large payloads beside the journal: what is cut out of stored data, by what name it is kept, and how it comes back.

What a store writes of a run is JSON, and the body of an event is one text in it. A text above a size is cut out and
kept in a place of its own, a folder or the store's entries; what is stored has a short reference. The same text in a
journal, a snapshot and the inbox of a run is kept once. Whole data comes back byte for byte, so links and signatures
that were made of it hold, and a payload that was changed is found.

A payload is durable before the commit that refers to it. A crash between leaves an orphan, which the next write of the
same text uses, or which goes with its run.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAGIC = b"\x00loom-payloads\x01"
"""What data with references begins with; no JSON does."""
ELSEWHERE = (
    "it has payloads beside the store, and this process was not told where: see `payloads` of loom.connect, or "
    "LOOM_PAYLOADS"
)
ABOVE = 256 * 1024
"""Bytes above which a text is kept apart, if the caller says nothing."""
LEAST = 64
"""A smaller text would not be worth its reference."""

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_PLAIN, _KEYED = "p", "k"


class PayloadReference(msgspec.Struct, frozen=True, array_like=True):
    """Where a payload belongs in the data that it was cut out of, and what it is."""

    offset: int
    """In the data without payloads."""
    size: int
    name: str


class Cut(NamedTuple):
    """Data without its payloads, and the payloads by their names."""

    data: bytes
    payloads: Mapping[str, bytes]


class PayloadPlace(Protocol):
    """Where the payloads of runs are kept."""

    async def put(self, run_id: str, payloads: Mapping[str, bytes]) -> None:
        """Keep payloads of a run. They are durable when this returns; `StoreUnavailable` if one could not be kept."""
        ...

    async def get(self, run_id: str, name: str) -> bytes | None:
        """Return a payload; None if it is not there."""
        ...

    async def drop(self, run_id: str, before: float) -> None:
        """Delete the payloads of a run that is gone, unless they were kept, or kept again, since `before`."""
        ...

    async def runs(self, after: str = "", limit: int = 100) -> list[tuple[str, str]]:
        """Return positions and ids of runs that have payloads, from a position on."""
        ...


class Names:
    """Names payloads by what they are.

    Without a key the name is a digest, so that a reader can check it. With one it is a digest with that key: a name
    tells nobody what a text might be, nor that two stores have the same one.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or b""
        self._kind = _PLAIN if key is None else _KEYED

    def of(self, payload: bytes) -> str:
        """Return the name of a payload."""
        return self._kind + blake2b(payload, digest_size=32, key=self._key[:64], person=b"loom payload").hexdigest()

    def fits(self, name: str, payload: bytes) -> bool:
        """Say whether a payload is what its name says. What was named with a key was sealed, and is checked by that."""
        return not name.startswith(_PLAIN) or name == Names().of(payload)


def cut(data: bytes, above: int, names: Names) -> Cut:
    """Cut all texts out that are larger than `above` bytes."""
    if len(data) <= above:
        return Cut(data, {})
    references: list[PayloadReference] = []
    payloads: dict[str, bytes] = {}
    rest: list[bytes] = []
    done = offset = 0
    for found in _TEXT.finditer(data):
        begins, ends = found.span()
        if ends - begins <= above:
            continue
        text = data[begins:ends]
        name = names.of(text)
        rest.append(data[done:begins])
        offset += begins - done
        references.append(PayloadReference(offset, len(text), name))
        payloads[name] = text
        done = ends
    if not references:
        return Cut(data, {})
    rest.append(data[done:])
    return Cut(b"".join((MAGIC, msgspec.json.encode(references), b"\n", *rest)), payloads)


def references_in(data: bytes) -> Sequence[PayloadReference]:
    """Return the references of stored data, in their order; nothing if it is whole."""
    if not data.startswith(MAGIC):
        return ()
    return msgspec.json.decode(data[len(MAGIC) : data.index(b"\n")], type=list[PayloadReference])


def whole(data: bytes, payloads: Mapping[str, bytes]) -> bytes:
    """Put the payloads back into data that they were cut out of."""
    references = references_in(data)
    if not references:
        return data
    rest, done = memoryview(data)[data.index(b"\n") + 1 :], 0
    parts: list[bytes | memoryview] = []
    for reference in references:
        parts += [rest[done : reference.offset], payloads[reference.name]]
        done = reference.offset
    return b"".join((*parts, rest[done:]))


def check_whole(run_id: str, what: str, data: bytes) -> None:
    """Raise if data has references: the reader does not know where payloads are kept."""
    if data.startswith(MAGIC):
        raise CorruptRecord(run_id, what, ELSEWHERE)

"""Which keys a store was written with: a mark for each, so that no process begins to work with others.

May import hashlib, and the port, errors and keys beside it.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

from loom.store.entries import ABSENT
from loom.store.errors import CorruptEntry, WrongKeys

if TYPE_CHECKING:
    from loom.store.keyring import Keyring
    from loom.store.ports import Store

KIND = "keyring"
_MOST = 1000
_HEADS = "heads.signed"


async def marks(store: Store, use: str) -> dict[str, bytes]:
    """The marks of the keys that a store was written with, by their ids. A use is `encryption` or `journal`."""
    prefix = f"{use}."
    found = await store.entries(KIND, limit=_MOST)
    return {entry.key.removeprefix(prefix): entry.data for entry in found if entry.key.startswith(prefix)}


async def check_marks(store: Store, use: str, ring: Keyring | None, variable: str) -> None:
    """`WrongKeys` if a key is missing that was used before, or is another one under the same id.

    The key that writes is marked; marks of keys that were given up are removed.
    """
    if not store.keyed:
        return
    found = await marks(store, use)
    for name, mark in found.items():
        if ring is not None and name in ring.gone:
            await store.drop_entry(KIND, f"{use}.{name}")
        elif ring is None or name not in ring.keys:
            have = "no key" if ring is None else ring.names
            raise WrongKeys(
                f"This store uses the {use} key {name!r}, and at hand is {have}. Add it to {variable}, or give it up "
                f"with `{name}:gone` if nothing is left of it."
            )
        elif not compare_digest(mark, _mark(use, ring.keys[name])):
            raise WrongKeys(f"The {use} key {name!r} in {variable} is not the one that this store was written with.")
    if ring is not None and ring.first not in found:
        await store.put_entry(KIND, f"{use}.{ring.first}", _mark(use, ring.keys[ring.first]), expect=ABSENT)


async def heads_signed_since(store: Store) -> float | None:
    """When it was noted that every head in a store is signed; None if it never was."""
    entry = await store.entry(KIND, _HEADS) if store.keyed else None
    if entry is None:
        return None
    try:
        return float(entry.data)
    except ValueError as error:
        raise CorruptEntry(KIND, _HEADS, "it is no time") from error


async def note_signed_heads(store: Store, now: float) -> None:
    """Note that every head in a store is signed. From now on one without a signature is broken."""
    await store.put_entry(KIND, _HEADS, repr(now).encode(), expect=ABSENT)


def _mark(use: str, key: bytes) -> bytes:
    """Tells keys from each other, and nothing about them."""
    return blake2b(use.encode(), key=key, digest_size=16, person=b"loom key mark").digest()

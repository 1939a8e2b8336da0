"""Keys by name, for encryption and signatures, and markers of the keys that a store was written with.

The first key of a keyring writes, all of them read, so that one can follow another. A marker in the store for each key
keeps a process from beginning to work with other keys.
"""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING

from typing_extensions import override

from loom.store.errors import BadKeys, CorruptEntry, WrongKeys
from loom.store.records import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.store.ports import Store

KEY_BYTES = 32

_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
_GONE = "gone"


class Keyring:
    """Keys by their ids. It never shows them."""

    __slots__ = ("first", "gone", "keys", "lenient")

    def __init__(self, keys: Mapping[str, bytes], *, lenient: bool = False, gone: frozenset[str] = frozenset()) -> None:
        if not keys:
            raise BadKeys("A keyring needs at least one key.")
        for name, key in keys.items():
            if not _ID.fullmatch(name):
                raise BadKeys(f"The id of a key has up to 32 of A-Z a-z 0-9 . _ -, which {name!r} has not.")
            if len(key) != KEY_BYTES:
                raise BadKeys(f"The key {name!r} has {len(key)} bytes instead of {KEY_BYTES}.")
        self.keys = dict(keys)
        self.first = next(iter(self.keys))
        """The id of the key that writes."""
        self.lenient = lenient
        """Whether values without any key are read too, such as values that are older than the first key."""
        self.gone = gone
        """Ids of keys that were given up, with all values that need them."""

    @override
    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.keys)})"

    @property
    def names(self) -> str:
        """Return the ids, for error texts."""
        return ", ".join(map(repr, self.keys))


def parse_keys(text: str, *, what: str, lenient: str) -> Keyring:
    """Read a keyring from `id1:base64,id0:base64`, with the word `lenient` if values without a key are read too.

    `id:gone` gives a key up. `what` is where the text comes from, for messages, which never repeat a key.
    """
    keys: dict[str, bytes] = {}
    gone: set[str] = set()
    is_lenient = False
    for number, item in enumerate(filter(None, (item.strip() for item in text.split(","))), 1):
        if item == lenient:
            is_lenient = True
            continue
        name, found, value = item.partition(":")
        if not found or not _ID.fullmatch(name):
            raise BadKeys(f"{what}: item {number} is neither id:base64key nor the word {lenient!r}.")
        if name in keys or name in gone:
            raise BadKeys(f"{what}: the key {name!r} is there twice.")
        if value == _GONE:
            gone.add(name)
        else:
            keys[name] = _decoded(what, name, value)
    if not keys:
        raise BadKeys(f"{what} has no key: it must be id:base64key, or several of them with commas.")
    return Keyring(keys, lenient=is_lenient, gone=frozenset(gone))


def _decoded(what: str, name: str, value: str) -> bytes:
    try:
        key = base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise BadKeys(f"{what}: the key {name!r} must be 32 bytes in base64, as `openssl rand -base64 32` gives them.")
    return key


KEY_MARKERS = "keyring"
_MAX_MARKERS = 1000
_SIGNED_HEADS = "heads.signed"


async def key_markers(store: Store, use: str) -> dict[str, bytes]:
    """Return the markers of the keys that a store was written with, by key id. `use` is `encryption` or `journal`."""
    prefix = f"{use}."
    found = await store.entries(KEY_MARKERS, limit=_MAX_MARKERS)
    return {entry.key.removeprefix(prefix): entry.data for entry in found if entry.key.startswith(prefix)}


async def check_key_markers(store: Store, use: str, ring: Keyring | None, variable: str) -> None:
    """Raise `WrongKeys` if a key is missing that was used before, or is another one under the same id.

    Adds the marker of the key that writes, and removes markers of keys that were given up.
    """
    if not store.keyed:
        return
    found = await key_markers(store, use)
    for name, marker in found.items():
        if ring is not None and name in ring.gone:
            await store.drop_entry(KEY_MARKERS, f"{use}.{name}")
        elif ring is None or name not in ring.keys:
            have = "no key" if ring is None else ring.names
            raise WrongKeys(
                f"This store uses the {use} key {name!r}, and at hand is {have}. Add it to {variable}, or give it up "
                f"with `{name}:gone` if nothing is left of it."
            )
        elif not compare_digest(marker, _marker(use, ring.keys[name])):
            raise WrongKeys(f"The {use} key {name!r} in {variable} is not the one that this store was written with.")
    if ring is not None and ring.first not in found:
        await store.put_entry(KEY_MARKERS, f"{use}.{ring.first}", _marker(use, ring.keys[ring.first]), expect=ABSENT)


async def heads_signed_since(store: Store) -> float | None:
    """Return when it was noted that every head in a store is signed; None if it never was."""
    entry = await store.entry(KEY_MARKERS, _SIGNED_HEADS) if store.keyed else None
    if entry is None:
        return None
    try:
        return float(entry.data)
    except ValueError as error:
        raise CorruptEntry(KEY_MARKERS, _SIGNED_HEADS, "it is no time") from error


async def note_signed_heads(store: Store, now: float) -> None:
    """Note that every head in a store is signed. From now on a head without a signature is broken."""
    await store.put_entry(KEY_MARKERS, _SIGNED_HEADS, repr(now).encode(), expect=ABSENT)


def _marker(use: str, key: bytes) -> bytes:
    """Make a digest that tells keys from each other, and nothing about them."""
    return blake2b(use.encode(), key=key, digest_size=16, person=b"loom key mark").digest()

"""Keys by name: the first writes, all of them read, so that one can follow another. For encryption and signatures.

May import the standard library and the errors beside it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from typing_extensions import override

from loom.store.errors import BadKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        """Whether values without any key are read too, such as those from before there was one."""
        self.gone = gone
        """Ids of keys that were given up, with all that needs them."""

    @override
    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.keys)})"

    @property
    def names(self) -> str:
        """The ids, for messages."""
        return ", ".join(map(repr, self.keys))


def parse_keys(text: str, *, what: str, lenient: str) -> Keyring:
    """A keyring from `id1:base64,id0:base64`, with the word `lenient` if values without a key are read too.

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

"""One value, encrypted and back: AES-256-GCM, with the id of the key in front.

A sealed value is the magic number, the length of the key's id, the id, 12 bytes of nonce, and the ciphertext with its
tag. What it is and whose it is goes into the tag, so that a value opens only in its own place. `cryptography` is
imported when the first sealer is made. May import the errors and keys beside it.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING

from loom.store.errors import CorruptRecord, KeyUnavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from loom.store.keyring import Keyring

MAGIC = b"\x00loom\x01"
"""No text begins with it."""
_TEXT = "loom-sealed:"
_LIST, _LIST_END = b'["loom-sealed:', b'"]'
_NONCE = 12

Place = tuple[str | int, ...]
"""What a value is, whose it is, and where in that it stands."""


class Sealer:
    """Seals values with the first of its keys, and opens those of all."""

    __slots__ = ("_ciphers", "_head", "_writing", "ring")

    def __init__(self, ring: Keyring) -> None:
        self.ring = ring
        self._ciphers = {name.encode(): _cipher(key) for name, key in ring.keys.items()}
        name = ring.first.encode()
        self._writing = self._ciphers[name]
        self._head = MAGIC + bytes([len(name)]) + name

    def seal(self, data: bytes, *place: str | int) -> bytes:
        """A value, for one place only."""
        # Chance is enough for a nonce: one key may seal billions of values before two meet.
        nonce = os.urandom(_NONCE)
        return self._head + nonce + self._writing.encrypt(nonce, data, _bound(place))

    def unseal(self, data: bytes, owner: str, what: str, *place: str | int) -> bytes:
        """A value that was sealed for this place. `owner` and `what` say in errors which one it is."""
        if not data.startswith(MAGIC):
            if self.ring.lenient:
                return data
            raise CorruptRecord(
                owner, what, "it is not encrypted. If it is from before there was a key, the word `plain` lets it pass"
            )
        start = len(MAGIC) + 1 + data[len(MAGIC)] if len(data) > len(MAGIC) else len(data)
        name = data[len(MAGIC) + 1 : start]
        cipher = self._ciphers.get(name)
        if cipher is None:
            shown = name.decode("utf-8", "replace")
            raise KeyUnavailable(
                f"{what} of {owner!r} is encrypted with the key {shown!r}, and at hand is {self.ring.names}."
            )
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(data[start : start + _NONCE], data[start + _NONCE :], _bound(place))
        except (InvalidTag, ValueError) as error:
            raise CorruptRecord(owner, what, "it is damaged, or was written for another place") from error

    def seal_text(self, text: str, *place: str | int) -> str:
        """Words for people, as other words."""
        sealed = self.seal(text.encode("utf-8", "surrogatepass"), *place)
        return _TEXT + base64.b64encode(sealed).decode()

    def unseal_text(self, text: str, owner: str, what: str, *place: str | int) -> str:
        """The words again. Those that were not sealed are shown as they are: nothing follows from them."""
        if not text.startswith(_TEXT):
            return text
        data = _decoded(text[len(_TEXT) :].encode("utf-8", "replace"))
        return self.unseal(data, owner, what, *place).decode("utf-8", "surrogatepass")

    def seal_list(self, data: bytes, *place: str | int) -> bytes:
        """A JSON list as a JSON list with one text. An empty one stays as it is."""
        if data == b"[]":
            return data
        return _LIST + base64.b64encode(self.seal(data, *place)) + _LIST_END

    def unseal_list(self, data: bytes, owner: str, what: str, *place: str | int) -> bytes:
        """The list again. One that was not sealed is shown as it is."""
        if not data.startswith(_LIST):
            return data
        return self.unseal(_decoded(data[len(_LIST) : -len(_LIST_END)]), owner, what, *place)


def _decoded(text: bytes) -> bytes:
    """What is damaged will not open."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return MAGIC


def _bound(place: Place) -> bytes:
    return "\0".join(map(str, place)).encode("utf-8", "surrogatepass")


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ImportError("Encryption needs an extra: pip install 'loom-workflows[encryption]'") from error
    return AESGCM(key)

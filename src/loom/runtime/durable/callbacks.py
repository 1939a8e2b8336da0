"""Addresses for callbacks: each names one action of one run, and is signed with a secret that the store keeps.

The holder of an address can call that action back once, until it expires, and do nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from loom.store.entries import ABSENT
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from loom.store.ports import Store

SECRETS = "secret"
"""The kind of the store's entries that hold secrets."""
PATH = "/v1/callbacks"
ENVIRONMENT = "LOOM_CALLBACK_URL"

_NAME = "callbacks"
_BYTES = 32


class Callback(NamedTuple):
    """What an address stands for."""

    run_id: str
    key: str
    """Of the action, as it waits for the call."""
    until: float | None = None
    """When it stops being good, in seconds since the epoch. None: it was given out before addresses had an end."""
    get: bool = False
    """Whether a GET is a call too. What follows links, such as a scanner of mail, calls by GET."""

    @property
    def event_id(self) -> str:
        """The id of the call as an event: one action of one run is called back once, by whichever address."""
        token = _token(Callback(self.run_id, self.key))
        return f"callback:{hashlib.sha256(token.encode()).hexdigest()}"


class StoredCallbacks:
    """Gives out addresses, and knows them again: in this process and in all others on the same store."""

    def __init__(self, store: Store, url: str | None = None) -> None:
        self._store = store
        self._secret: bytes | None = None
        found = url if url is not None else os.environ.get(ENVIRONMENT) or None
        self.url = base_url(found) if found is not None else None
        """The server's address for others, such as `https://loom.example.com`. Who serves may say it later."""

    async def address(self, run_id: str, key: str, until: float | None = None, *, get: bool = False) -> str | None:
        """The address for one action of one run; None if nobody has said where the server is."""
        if self.url is None:
            return None
        token = _token(Callback(run_id, key, until, get))
        return f"{self.url.rstrip('/')}{PATH}/{token}?sig={await self._signature(token)}"

    async def find(self, token: str, signature: str) -> Callback | None:
        """What an address stands for; None if it is none of ours."""
        wanted = await self._signature(token)
        if not hmac.compare_digest(wanted.encode(), signature.encode()):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=Callback)

    async def _signature(self, token: str) -> str:
        if self._secret is None:
            self._secret = await self._shared_secret()
        return _text(hmac.digest(self._secret, b"callback\0" + token.encode(), hashlib.sha256))

    async def _shared_secret(self) -> bytes:
        """The secret of this store, made by whoever needs it first."""
        await self._store.put_entry(SECRETS, _NAME, secrets.token_bytes(_BYTES), expect=ABSENT)
        entry = await self._store.entry(SECRETS, _NAME)
        if entry is None:
            raise StoreError("The secret that signs addresses for callbacks was deleted just now.")
        return entry.data


def base_url(url: str) -> str:
    """An address that can be given to others, or a `ValueError` that says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise ValueError(f"{url!r} is no address for callbacks: use a form such as https://loom.example.com.")
    return url.rstrip("/")


def _token(callback: Callback) -> str:
    """Letters and digits only: services treat everything else in an address as they please."""
    fields = callback if callback.until is not None or callback.get else callback[:2]
    return _text(msgspec.json.encode(fields))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")

"""Signed addresses: of actions that services call back, of triggers that anybody may fire who has the address.

All are signed with one secret of the store, so that every process on it knows them. A signature is made for a purpose:
that of a callback never opens a trigger.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from loom.store.errors import StoreError
from loom.store.records import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.store.ports import EntryStore

SECRETS = "secret"
"""The kind of the store's entries that hold secrets."""
PATH = "/v1/callbacks"
ENVIRONMENT = "LOOM_CALLBACK_URL"

_NAME = "callbacks"
_BYTES = 32
_CALLBACK, _TRIGGER, _ANSWER = "callback", "trigger", "answer"
"""What signatures are for."""

# -- signatures -------------------------------------------------------------------------------------------------------


class Signer:
    """Signs texts with the secret of a store."""

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._secret: bytes | None = None

    async def sign(self, purpose: str, text: str) -> str:
        """Return the signature of a text, for one purpose."""
        if self._secret is None:
            self._secret = await self._shared_secret()
        return _text(hmac.digest(self._secret, f"{purpose}\0{text}".encode("utf-8", "surrogatepass"), hashlib.sha256))

    async def is_signed(self, purpose: str, text: str, signature: str) -> bool:
        """Tell whether a signature is that of a text. It takes as long for a wrong one."""
        return hmac.compare_digest((await self.sign(purpose, text)).encode(), signature.encode("utf-8", "replace"))

    async def _shared_secret(self) -> bytes:
        """Return the secret of this store, made by the process that needs it first."""
        await self._store.put_entry(SECRETS, _NAME, secrets.token_bytes(_BYTES), expect=ABSENT)
        entry = await self._store.entry(SECRETS, _NAME)
        if entry is None:
            raise StoreError("The secret that signs addresses was deleted just now.")
        return entry.data


# -- callbacks --------------------------------------------------------------------------------------------------------


class Callback(NamedTuple):
    """The action that an address belongs to."""

    run_id: str
    key: str
    """Of the action, as it waits for the call."""
    until: float | None = None
    """When it stops being good, in seconds since the epoch. None: it was given out before addresses had an end."""
    get: bool = False
    """Whether a GET is a call too. What follows links, such as a scanner of mail, calls by GET."""
    repeats: bool = False
    """Whether every call counts: the address is that of a trigger, not of an action."""

    @property
    def event_id(self) -> str:
        """The id of the call as an event: one action of one run is called back once, by whichever address."""
        token = _token(Callback(self.run_id, self.key))
        return f"callback:{hashlib.sha256(token.encode()).hexdigest()}"


class StoredCallbacks:
    """Gives out addresses, and knows them again: in this process and in all others on the same store."""

    def __init__(self, signer: Signer, url: str | None = None) -> None:
        self._signer = signer
        found = url if url is not None else os.environ.get(ENVIRONMENT) or None
        self.url = base_url(found) if found is not None else None
        """The server's address for others, such as `https://loom.example.com`. Who serves may say it later."""

    async def address(
        self, run_id: str, key: str, until: float | None = None, *, get: bool = False, repeats: bool = False
    ) -> str | None:
        """The address for one action of one run; None if nobody has said where the server is.

        One that `repeats` is a trigger's: each call of it counts, and the run is its listener.
        """
        if self.url is None:
            return None
        token = _token(Callback(run_id, key, until, get, repeats))
        return f"{self.url.rstrip('/')}{PATH}/{token}?sig={await self._signer.sign(_CALLBACK, token)}"

    async def find(self, token: str, signature: str) -> Callback | None:
        """Return the action that an address belongs to; None if this store has not signed it."""
        if not await self._signer.is_signed(_CALLBACK, token, signature):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=Callback)


def base_url(url: str) -> str:
    """An address that can be given to others, or a `ValueError` that says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise ValueError(f"{url!r} is no address for callbacks: use a form such as https://loom.example.com.")
    return url.rstrip("/")


def _token(callback: Callback) -> str:
    """Letters and digits only: services treat everything else in an address as they please."""
    fields: tuple[object, ...] = callback
    if not callback.repeats:
        # As long as they were before there was more to say: addresses that were given out stay what they are.
        fields = callback[:4] if callback.until is not None or callback.get else callback[:2]
    return _text(msgspec.json.encode(fields))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# -- triggers and their answers ---------------------------------------------------------------------------------------


OWN_QUERIES = ("sp", "sv", "se", "sig")
"""The parameters of a signed address: the trigger, the number of its key, when it expires, and the signature."""


class TriggerAddress(NamedTuple):
    """What the signed address of a trigger says."""

    workflow: str
    trigger: str
    key: int
    """The number of the key, as the definition has it: rotation gives it another one."""
    until: int | None = None
    """When it expires, in seconds since 1970; None: when its key is rotated."""

    async def query(self, signer: Signer) -> str:
        """Write the query that makes an address a signed one."""
        said = {"sp": self.trigger, "sv": self.key, "se": self.until}
        told = urlencode({name: value for name, value in said.items() if value is not None}, quote_via=quote)
        return f"{told}&sig={await signer.sign(_TRIGGER, _said(self))}"

    async def is_signed(self, signer: Signer, signature: str) -> bool:
        """Tell whether this store has signed it."""
        return await signer.is_signed(_TRIGGER, _said(self), signature)


def read_trigger_address(workflow: str, queries: Mapping[str, str]) -> TriggerAddress | None:
    """Read the address of a trigger from a query; None if it says none. The signature is not looked at."""
    key, until = queries.get("sv", ""), queries.get("se")
    if not _is_number(key) or (until is not None and not _is_number(until)):
        return None
    return TriggerAddress(workflow, queries.get("sp", ""), int(key), int(until) if until is not None else None)


class AnswerAddress(NamedTuple):
    """What the signed address says at which one run's answer can be got."""

    run_id: str
    key: int
    """The number of the key of the trigger's address: they end together."""

    async def query(self, signer: Signer) -> str:
        """Write the query that makes an address a signed one."""
        return f"sv={self.key}&sig={await signer.sign(_ANSWER, _said(self))}"

    async def is_signed(self, signer: Signer, signature: str) -> bool:
        """Tell whether this store has signed it."""
        return await signer.is_signed(_ANSWER, _said(self), signature)


def read_answer_key(queries: Mapping[str, str]) -> int:
    """Read the number of the key from the query of an answer's address; 0, which no key has, if it says none."""
    key = queries.get("sv", "")
    return int(key) if _is_number(key) else 0


def _said(address: TriggerAddress | AnswerAddress) -> str:
    return msgspec.json.encode(tuple(address)).decode()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


_DIGITS = 15

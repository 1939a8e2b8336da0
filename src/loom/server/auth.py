"""Who may do what: API keys, their scopes and the workflows they are limited to.

A key is `loom_<id>_<secret>`. The store has the SHA-256 of the whole under its id, never the key. A key that was
revoked or has expired stays as a mark, so that a server whose last key is gone does not open itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from loom.server.problems import ApiProblem
from loom.server.sessions import check_csrf, shown_token
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.datastructures import Headers
    from starlette.types import Scope as AsgiScope

    from loom.server.sessions import Sessions
    from loom.store.ports import EntryStore
    from loom.store.records import Entry

Scope = Literal["read", "start", "event", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "start", "event", "admin")

KEYS = "api-key"
"""The kind of the store's entries that hold keys."""

_KEY = re.compile(r"loom_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[0-9a-f]{12}")
_PAGE = 100
_LOOK_S = 1.0
_NO_HASH = hashlib.sha256(b"").hexdigest()


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a key."""

    id: str
    hash: str
    """SHA-256 of the whole key, in hex."""
    scopes: tuple[Scope, ...]
    name: str = ""
    workflows: tuple[str, ...] | None = None
    """The only workflows it is good for; None: all."""
    created_at: float = 0.0
    revoked_at: float | None = None
    expires_at: float | None = None
    lifetime: float | None = None
    """For how many seconds it was made; None: for good. Rotation ends it earlier; the next key lasts as long again."""
    lineage: str | None = None
    """The id of the key whose place it has taken, or of the first in that line; None: it is the first itself."""

    def is_good(self, now: float) -> bool:
        """Whether it opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class UnknownKey(StoreError):
    """No key has this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"No key has the id {key_id!r}. `loom keys list` shows those that are there.")


class KeyNotGood(StoreError):
    """The key was revoked or has expired, so that nothing can take its place."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"The key {key_id} was revoked or has expired: make a new one with `loom keys create`.")


class Principal(msgspec.Struct, frozen=True):
    """The caller of a request, as far as it was proved."""

    id: str
    """The id of the key; `local` without one."""
    scopes: frozenset[Scope]
    workflows: frozenset[str] | None = None
    name: str = ""
    """What the key is called."""
    lineage: str = ""
    """What stays when a key is rotated: the id of the first key in the line."""
    session: str = ""
    """The id of the session that the caller has logged in with; empty for a key of its own."""
    address_key: int | None = None
    """The number of the key that has signed the caller's address; None: the caller has come with no address."""

    @property
    def holder(self) -> str:
        """What streams and waits are held by, see `holder_parts`: they end with the key, and with the session."""
        part = self.session if self.address_key is None else str(self.address_key)
        return f"{self.id} {part}" if part else self.id

    def has(self, scope: Scope) -> bool:
        """Whether it may do this; `admin` may do everything."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, workflow: str) -> bool:
        """Whether it may have to do with runs of a workflow."""
        return self.workflows is None or workflow in self.workflows


def holder_parts(holder: str) -> tuple[str, str]:
    """Take a holder apart into the id of its key and the id of its session, which is empty without one.

    Of a caller who holds an address, the second part is the number of the key that has signed it.
    """
    key_id, _, session = holder.partition(" ")
    return key_id, session


LOCAL = Principal("local", frozenset(SCOPES), lineage="local")
"""A caller on this machine, while no key was made."""

NOBODY = Principal("nobody", frozenset(), frozenset())
"""The caller of an open route."""


def new_key(
    scopes: tuple[Scope, ...],
    *,
    name: str = "",
    workflows: tuple[str, ...] | None = None,
    now: float = 0.0,
    expires_at: float | None = None,
    lineage: str | None = None,
) -> tuple[str, StoredKey]:
    """Make a key that cannot be guessed, and what is stored of it."""
    if not scopes or not set(scopes) <= set(SCOPES):
        raise ValueError(f"A key has some of the scopes {', '.join(SCOPES)}, not {', '.join(scopes) or 'none'}.")
    key_id = secrets.token_hex(6)
    key = f"loom_{key_id}_{secrets.token_urlsafe(32)}"
    return key, StoredKey(
        id=key_id,
        hash=hash_of(key),
        scopes=scopes,
        name=name,
        workflows=workflows,
        created_at=now,
        expires_at=expires_at,
        lifetime=None if expires_at is None else expires_at - now,
        lineage=lineage,
    )


def hash_of(key: str) -> str:
    """Hash a key, as it is stored."""
    return hashlib.sha256(key.encode()).hexdigest()


class Keys:
    """The keys in a store."""

    def __init__(self, store: EntryStore, *, required: bool = False, now: Callable[[], float] = time.time) -> None:
        self._store = store
        self._required = required
        self._now = now
        self._look_at = 0.0

    async def add(self, key: StoredKey) -> None:
        """Store a new key."""
        await self._store.put_entry(KEYS, key.id, msgspec.json.encode(key))
        self._required = True

    async def required(self) -> bool:
        """Whether a key must be shown. Once one was made, for ever; of one made elsewhere it hears within a second."""
        now = time.monotonic()
        if not self._required and now >= self._look_at:
            self._required = bool(await self._store.entries(KEYS, limit=1))
            self._look_at = now + _LOOK_S
        return self._required

    async def find(self, key: str) -> Principal | None:
        """Return the principal of a key; None if the key is not good."""
        matched = _KEY.fullmatch(key)
        entry = await self._store.entry(KEYS, matched[1]) if matched is not None else None
        stored = _stored(entry) if entry is not None else None
        # Compared in any case, so that an unknown id takes as long as a wrong secret.
        same = hmac.compare_digest(hash_of(key), stored.hash if stored is not None else _NO_HASH)
        if stored is None or not same or not stored.is_good(self._now()):
            return None
        return _principal(stored)

    async def principal(self, key_id: str) -> Principal | None:
        """Return the principal of a key by its id, for a caller who has proved to have had it; None if it has ended."""
        entry = await self._store.entry(KEYS, key_id)
        stored = _stored(entry) if entry is not None else None
        return _principal(stored) if stored is not None and stored.is_good(self._now()) else None

    async def is_good(self, principal_id: str) -> bool:
        """Tell whether a caller who was let in once would be let in again."""
        if principal_id == LOCAL.id:
            return not await self.required()
        return await self.principal(principal_id) is not None

    async def all(self) -> AsyncIterator[StoredKey]:
        """Iterate over every key that was ever made, by its id."""
        last = ""
        while page := await self._store.entries(KEYS, last, _PAGE):
            for entry in page:
                yield _stored(entry)
            last = page[-1].key

    async def revoke(self, key_id: str) -> StoredKey:
        """Let a key open nothing any more."""
        now = self._now()
        return await self._change(key_id, lambda key: {"revoked_at": now if key.revoked_at is None else key.revoked_at})

    async def rotate(self, key_id: str, grace: float) -> tuple[str, StoredKey]:
        """A key in the place of another one, which is good for so long yet. It lasts as long as the other was to."""
        now = self._now()
        old = _stored(await self._entry(key_id))
        if not old.is_good(now):
            raise KeyNotGood(key_id)
        lasts = now + old.lifetime if old.lifetime is not None else None
        first = old.lineage or old.id
        key, stored = new_key(
            old.scopes, name=old.name, workflows=old.workflows, now=now, expires_at=lasts, lineage=first
        )
        await self.add(stored)
        until = now + grace
        await self._change(key_id, lambda key: {"expires_at": min(until, key.expires_at or until)})
        return key, stored

    async def _change(self, key_id: str, changes: Callable[[StoredKey], dict[str, float]]) -> StoredKey:
        while True:
            entry = await self._entry(key_id)
            stored = _stored(entry)
            changed = msgspec.structs.replace(stored, **changes(stored))
            # Whoever changed it meanwhile is not undone.
            if await self._store.put_entry(KEYS, key_id, msgspec.json.encode(changed), expect=entry.version):
                return changed

    async def _entry(self, key_id: str) -> Entry:
        entry = await self._store.entry(KEYS, key_id) if _ID.fullmatch(key_id) else None
        if entry is None:
            raise UnknownKey(key_id)
        return entry


def _principal(stored: StoredKey) -> Principal:
    workflows = frozenset(stored.workflows) if stored.workflows is not None else None
    return Principal(stored.id, frozenset(stored.scopes), workflows, stored.name, stored.lineage or stored.id)


def _stored(entry: Entry) -> StoredKey:
    return msgspec.json.decode(entry.data, type=StoredKey)


def shown_key(headers: Headers) -> str | None:
    """The key that a request brings; one in its URL does not count."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key")


def shown_key_id(headers: Headers) -> str:
    """What the log may say of the key that a request brings: its id, if it has the form of one."""
    key = shown_key(headers)
    if key is None:
        return "with a session" if shown_token(headers) is not None else "without a key"
    matched = _KEY.fullmatch(key)
    return f"key {matched[1]}" if matched is not None else "with what is no key"


async def authenticate(keys: Keys, sessions: Sessions, headers: Headers, scope: AsgiScope) -> Principal:
    """Return the caller, or refuse the request: 401, or 403 for a stranger at a server without keys.

    A request that brings a key is judged by it alone. Else a cookie may name a session.
    """
    key = shown_key(headers)
    if key is not None:
        principal = await keys.find(key)
        if principal is not None:
            return principal
    elif (token := shown_token(headers)) is not None and (found := await sessions.find(token)) is not None:
        check_csrf(token, headers, scope)
        return found
    elif not await keys.required():
        client = scope.get("client")
        if client is not None and is_loopback(client[0]):
            return LOCAL
        raise ApiProblem("forbidden", "This server has no keys yet, so it serves its own machine only.")
    raise not_proved(key)


def not_proved(key: str | None) -> ApiProblem:
    """Make the problem of a caller whose key is not good, or who has none."""
    detail = (
        "The key is not known, was revoked or has expired."
        if key is not None
        else "This server asks for a key: send one as Authorization: Bearer KEY."
    )
    return ApiProblem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="loom"'})


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine, whatever resolves it."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)

"""Sessions of browsers: a cookie in place of a key, since an `EventSource` sends no header.

A session is made from a key and refers to it: it can do what the key can, and ends with it. The cookie has a token that
only the server makes. The store has the token's SHA-256, so a stolen store opens nothing.

A browser sends the cookie by itself, also with requests that another page made. So what changes something must also
bring the session's CSRF token in a header, which only a page of this server can read. It is derived from the token and
stored nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Protocol

import msgspec
from starlette.requests import cookie_parser

from loom.runtime.lru_cache import LruCache
from loom.server.problems import ApiProblem
from loom.store.records import ABSENT, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import Headers
    from starlette.types import Scope

    from loom.server.auth import Keys, Principal

COOKIE = "loom_session"
CSRF_HEADER = "X-Loom-CSRF"
SESSIONS = "session"
"""The kind of the store's entries that hold sessions."""

LIFETIME_S = 12 * 3600.0
"""How long a session lasts after its last use, unless its key ends before."""
_RENEW_S = 600.0
"""A session that is used is prolonged so often at most: a read shall seldom write."""
_MOST = 10_000
"""Sessions that are kept in memory; with more, the one that was used longest ago ends."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_SAFE = ("GET", "HEAD", "OPTIONS")
_OWN_SITES = ("same-origin", "none")


class StoredSession(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a session."""

    key_id: str
    ends_at: float


class SessionEntries(Protocol):
    """What sessions are kept in: the entries of a store, or `MemoryEntries`."""

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """See `EntryStore`."""
        ...

    async def entry(self, kind: str, key: str) -> Entry | None:
        """See `EntryStore`."""
        ...

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """See `EntryStore`."""
        ...


class MemoryEntries:
    """Sessions of a server that writes nothing to its store. They end with the process."""

    def __init__(self) -> None:
        self._entries: LruCache[str, Entry] = LruCache(_MOST)

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """See `EntryStore`."""
        found = self._entries.peek(key)
        version = found.version if found is not None else ABSENT
        if expect is not None and expect != version:
            return None
        self._entries.put(key, Entry(kind, key, version + 1, data, expires_at))
        return version + 1

    async def entry(self, kind: str, key: str) -> Entry | None:
        """See `EntryStore`."""
        del kind
        return self._entries.get(key)

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """See `EntryStore`."""
        del kind, expect
        found = self._entries.peek(key)
        self._entries.drop(key)
        return found is not None


class Sessions:
    """The sessions of one server."""

    def __init__(self, store: SessionEntries, keys: Keys, now: Callable[[], float]) -> None:
        self._store = store
        self._keys = keys
        self._now = now

    async def open(self, principal: Principal) -> str:
        """Make a session for the owner of a key, and return its token."""
        token = secrets.token_urlsafe(32)
        ends_at = self._now() + LIFETIME_S
        stored = StoredSession(key_id=principal.id, ends_at=ends_at)
        data = msgspec.json.encode(stored)
        await self._store.put_entry(SESSIONS, session_id(token), data, expires_at=ends_at, expect=ABSENT)
        return token

    async def close(self, token: str) -> None:
        """End a session, if there is one."""
        if _TOKEN.fullmatch(token):
            await self._store.drop_entry(SESSIONS, session_id(token))

    async def find(self, token: str) -> Principal | None:
        """Return the principal of a session; None if it has ended, or its key has. It lasts longer for being used."""
        if _TOKEN.fullmatch(token) is None:
            return None
        session, now = session_id(token), self._now()
        entry = await self._store.entry(SESSIONS, session)
        stored = msgspec.json.decode(entry.data, type=StoredSession) if entry is not None else None
        if entry is None or stored is None or stored.ends_at <= now:
            return None
        principal = await self._keys.principal(stored.key_id)
        if principal is None:
            return None
        if stored.ends_at < now + LIFETIME_S - _RENEW_S:
            longer = msgspec.structs.replace(stored, ends_at=now + LIFETIME_S)
            # A session that was closed, or prolonged by another request, stays as it is.
            await self._store.put_entry(
                SESSIONS, session, msgspec.json.encode(longer), expires_at=longer.ends_at, expect=entry.version
            )
        return msgspec.structs.replace(principal, session=session)

    async def is_open(self, session: str) -> bool:
        """Tell whether a session, by its id, has not ended yet."""
        entry = await self._store.entry(SESSIONS, session)
        return entry is not None and msgspec.json.decode(entry.data, type=StoredSession).ends_at > self._now()


def session_id(token: str) -> str:
    """Return the id of a session by its token: what is stored of it."""
    return hashlib.sha256(token.encode()).hexdigest()


def csrf_of(token: str) -> str:
    """Return the CSRF token of a session. Nobody finds it, or the session's token, from the other."""
    return hmac.new(token.encode(), b"loom csrf", hashlib.sha256).hexdigest()


def shown_token(headers: Headers) -> str | None:
    """Return the token of the session that a request brings; None if it brings none.

    Of two cookies none counts: another page of the host may have added one.
    """
    found = [
        cookie_parser(part)[COOKIE]
        for each in headers.getlist("cookie")
        for part in each.split(";")
        if part.partition("=")[0].strip() == COOKIE
    ]
    return found[0] if len(found) == 1 else None


def check_csrf(token: str, headers: Headers, scope: Scope) -> None:
    """Refuse a request that would change something, unless a page of this server has made it."""
    if scope["method"] in _SAFE:
        return
    check_site(headers)
    check_token(token, headers)


def check_token(token: str, headers: Headers) -> None:
    """Refuse a request that does not bring the CSRF token of its session."""
    if not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_of(token).encode()):
        raise ApiProblem("csrf", f"A session needs its token in the header {CSRF_HEADER}: GET /v1/session has it.")


def check_page(principal: Principal, headers: Headers, scope: Scope) -> None:
    """Refuse a GET that would start something, if a page has made it that may not.

    A browser follows links and loads images with the session's cookie, and without a key from this very machine. It
    says from where; one that does not may still show the session's token.
    """
    if scope["method"] not in _SAFE:
        return
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITES:
        raise ApiProblem("forbidden", "Pages of other sites may not start runs here: use a signed address.")
    if principal.session and site is None:
        check_token(shown_token(headers) or "", headers)


def check_site(headers: Headers) -> None:
    """Refuse a request of which the browser says that the page of another site has made it."""
    if headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        raise ApiProblem("csrf", "Pages of other sites may not use a session of this server.")

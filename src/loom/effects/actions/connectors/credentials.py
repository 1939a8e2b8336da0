"""Who asks: credentials on requests, and the tokens that they are exchanged for.

Secrets are read when a request goes out. A token is kept until shortly before it expires; one task fetches it while
others wait. A token that the service refuses is fetched anew once. What an answer repeats of a credential is masked,
because an answer is stored.
"""

from __future__ import annotations

import asyncio
import base64
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from loom.effects.actions.connections import (
    ApiKey,
    Authentication,
    BasicAuth,
    BearerToken,
    ClientCredentials,
    SecretUnavailable,
)
from loom.effects.actions.content import FORM, TooManyValues, decode_content_off_loop
from loom.effects.actions.exchange import HttpRequest, exchange
from loom.effects.actions.http import AuthenticationError
from loom.effects.actions.http_client import secret_request, shared_client
from loom.effects.actions.outcomes import is_failure
from loom.flows.calls import MASK

if TYPE_CHECKING:
    from loom.effects.actions.ssrf import HttpPolicy


_TOKEN_VALUES = 1_000
"""What an authority may say beside a token."""
_DEFAULT_LIFE_S = 300.0
"""Seconds that a token is kept if the authority does not say how long it lives."""
_LONGEST_LIFE_S = 86_400.0
_MARGIN_S = 60.0
"""Seconds before its end at which a token is not used any more; at most a tenth of its life."""
_LEAST_MASKED = 6
"""Characters that a secret has at least to be looked for in answers: shorter ones are in every text."""


class AccessToken(Struct, frozen=True):
    """A token and the time until which it is used, in seconds since 1970."""

    value: str
    until: float


class ShownCredentials(Struct, frozen=True):
    """Credentials of one request."""

    headers: dict[str, str] = {}
    query: str = ""
    secrets: tuple[str, ...] = ()
    """Texts that an answer must not repeat into the store."""
    token: AccessToken | None = None
    """Token among them, if it can be fetched anew."""


class Credentials:
    """The credentials of one connector."""

    def __init__(self, auth: Authentication | None) -> None:
        self.auth = auth
        self._tokens: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _TokenCache] = weakref.WeakKeyDictionary()

    @property
    def supplied(self) -> frozenset[str]:
        """Names, in lower case, of parameters that they give to each request."""
        auth = self.auth
        if isinstance(auth, ApiKey):
            return frozenset({auth.name.lower()})
        return frozenset({"authorization"}) if auth is not None else frozenset()

    async def show(self, policy: HttpPolicy, now: float) -> ShownCredentials:
        """Make the credentials for a request. Raises `AuthenticationError`."""
        auth = self.auth
        try:
            if auth is None:
                return ShownCredentials()
            if isinstance(auth, ApiKey):
                key = auth.secret("key")
                if auth.place == "query":
                    return ShownCredentials(query=f"{quote(auth.name, safe='')}={quote(key, safe='')}", secrets=(key,))
                return ShownCredentials({auth.name: key}, secrets=(key,))
            if isinstance(auth, BasicAuth):
                password = auth.secret("password")
                pair = _basic(auth.username, password)
                return ShownCredentials({"Authorization": f"Basic {pair}"}, secrets=(password, pair))
            if isinstance(auth, BearerToken):
                token = auth.secret("token")
                return ShownCredentials({"Authorization": f"Bearer {token}"}, secrets=(token,))
            fetched = await self._cache().token(auth, policy, now)
            secret = auth.secret("client_secret")
            return ShownCredentials({"Authorization": f"Bearer {fetched.value}"}, "", (fetched.value, secret), fetched)
        except SecretUnavailable as error:
            raise AuthenticationError(str(error)) from None

    def forget(self, token: AccessToken) -> None:
        """Drop a token that was refused, unless another one has taken its place."""
        self._cache().forget(token)

    def _cache(self) -> _TokenCache:
        return self._tokens.setdefault(asyncio.get_running_loop(), _TokenCache())


class _TokenCache:
    """The token of one connector on one event loop."""

    def __init__(self) -> None:
        self._token: AccessToken | None = None
        self._lock = asyncio.Lock()

    async def token(self, auth: ClientCredentials, policy: HttpPolicy, now: float) -> AccessToken:
        """Give the token, and fetch it if there is none that can be used; one task fetches at a time."""
        async with self._lock:
            if self._token is None or now >= self._token.until:
                self._token = await _fetched(auth, policy, now)
            return self._token

    def forget(self, token: AccessToken) -> None:
        """Drop this token."""
        if self._token is token:
            self._token = None


async def _fetched(auth: ClientCredentials, policy: HttpPolicy, now: float) -> AccessToken:
    secret = auth.secret("client_secret")
    form = {"grant_type": "client_credentials"}
    headers = {"Content-Type": FORM, "Accept": "application/json"}
    if auth.style == "basic":
        headers["Authorization"] = f"Basic {_basic(quote(auth.client_id, safe=''), quote(secret, safe=''))}"
    else:
        form |= {"client_id": auth.client_id, "client_secret": secret}
    form |= {name: value for name, value in (("scope", auth.scope), ("audience", auth.audience)) if value}
    client = await shared_client(policy)
    outgoing = HttpRequest("POST", auth.token_url, headers, urlencode(form).encode())
    with secret_request():
        # The secret is in the body, and a redirect would take it along.
        answer = await exchange(client, outgoing, replace(policy, max_redirects=0))
    found: Any = None
    if not is_failure(answer.status):
        try:
            found = await decode_content_off_loop(answer.data, "application/json", _TOKEN_VALUES)
        except TooManyValues:
            found = None
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str) or not found["access_token"]:
        raise AuthenticationError(f"The authority gave no token: it answered {answer.status} {answer.code}.")
    life = _seconds(found.get("expires_in"))
    return AccessToken(found["access_token"], now + life - min(_MARGIN_S, life / 10))


def _seconds(given: Any) -> float:
    """Read how long a token lives. Some authorities write the number as a text."""
    if isinstance(given, str) and given.isascii() and given.isdigit():
        given = float(given[:9])
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        return _DEFAULT_LIFE_S
    return min(float(given), _LONGEST_LIFE_S)


def _basic(name: str, password: str) -> str:
    return base64.b64encode(f"{name}:{password}".encode()).decode()


# --- masks ------------------------------------------------------------------------------------------------------------


def without_secrets(value: Any, secrets: tuple[str, ...]) -> Any:
    """Mask credentials in what a service says, in keys of objects too."""
    forms = {form for secret in secrets if len(secret) >= _LEAST_MASKED for form in (secret, quote(secret, safe=""))}
    return _masked(value, sorted(forms, key=len, reverse=True)) if forms else value


def _masked(value: Any, forms: list[str]) -> Any:
    if isinstance(value, str):
        for form in forms:
            value = value.replace(form, MASK)
        return value
    if isinstance(value, dict):
        return {_masked(key, forms): _masked(item, forms) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, forms) for item in value]
    return value

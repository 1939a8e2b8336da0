"""Authentication of http actions: the kinds that need no cloud's own library.

Basic, Raw and ActiveDirectoryOAuth become a header, ClientCertificate a TLS context. May import `exchange`, `bodies`.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import httpx2

from loom.effects.actions.bodies import FORM, TooManyValues, decode_off_loop
from loom.effects.actions.exchange import BadRequestError, Outgoing, exchange
from loom.effects.actions.statuses import is_failure

if TYPE_CHECKING:
    from loom.effects.actions.ssrf import HttpPolicy

_TOKEN_VALUES = 1_000
"""What an authority that gives out a token may say beside it."""
_DEFAULT_AUTHORITY = "https://login.microsoftonline.com"


class AuthenticationError(Exception):
    """No credentials could be had."""


async def authorization(given: Any, client: httpx2.AsyncClient, policy: HttpPolicy) -> str:
    """The value of the Authorization header; empty if the authentication needs none."""
    if not given:
        return ""
    if not isinstance(given, dict):
        raise BadRequestError("authentication must be an object with a 'type'.")
    kind = str(given.get("type", "")).lower()
    if kind == "basic":
        pair = f"{given.get('username', '')}:{given.get('password', '')}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    if kind == "raw":
        return _field(given, "value")
    if kind == "activedirectoryoauth":
        return await _client_credentials(given, client, policy)
    if kind == "clientcertificate":
        return ""
    if kind == "managedserviceidentity":
        raise AuthenticationError(
            "ManagedServiceIdentity works inside Azure only. Use ActiveDirectoryOAuth with a client id and secret, or "
            "Raw with a token."
        )
    raise BadRequestError(
        f"authentication.type {given.get('type')!r} is not known. Known are Basic, Raw, ClientCertificate and "
        "ActiveDirectoryOAuth."
    )


def client_certificate(given: Any) -> ssl.SSLContext | None:
    """The TLS context with the author's certificate, if the authentication is one."""
    if not isinstance(given, dict) or str(given.get("type", "")).lower() != "clientcertificate":
        return None
    text = given.get("pem") or _pem_in(_field(given, "pfx"))
    context = httpx2.create_ssl_context()
    # The library reads certificates from files only; this one is readable by its owner alone.
    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(str(text))
        context.load_cert_chain(path, password=str(given.get("password") or "") or None)
    except (ssl.SSLError, OSError) as error:
        raise AuthenticationError(f"The client certificate cannot be used: {type(error).__name__}.") from error
    finally:
        os.unlink(path)
    return context


def _pem_in(encoded: str) -> str:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError("authentication.pfx must be base64.") from error
    if b"-----BEGIN" not in data:
        raise AuthenticationError(
            "A PKCS #12 container cannot be read. Give certificate and key as PEM in authentication.pem "
            "(openssl pkcs12 -in file.pfx -nodes)."
        )
    return data.decode("ascii", "replace")


async def _client_credentials(given: dict[str, Any], client: httpx2.AsyncClient, policy: HttpPolicy) -> str:
    """A token for the client itself, from the authority that the author names."""
    authority = str(given.get("authority") or _DEFAULT_AUTHORITY).rstrip("/")
    url = f"{authority}/{quote(_field(given, 'tenant'), safe='')}/oauth2/token"
    form = {
        "grant_type": "client_credentials",
        "client_id": _field(given, "clientId"),
        "client_secret": _field(given, "secret"),
        "resource": str(given.get("audience") or ""),
    }
    outgoing = Outgoing("POST", url, {"Content-Type": FORM}, urlencode(form).encode())
    # The secret is in the body, and a redirect would take it along.
    answer = await exchange(client, outgoing, replace(policy, max_redirects=0))
    token: Any = None
    if not is_failure(answer.status):
        try:
            token = await decode_off_loop(answer.data, "application/json", _TOKEN_VALUES)
        except TooManyValues as error:
            raise AuthenticationError("The authority gave no token, but too much of something else.") from error
    if not isinstance(token, dict) or not isinstance(token.get("access_token"), str):
        raise AuthenticationError(f"The authority gave no token: it answered {answer.status} {answer.code}.")
    return f"{token.get('token_type') or 'Bearer'} {token['access_token']}"


def _field(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequestError(f"authentication of type {given.get('type')} needs {name!r}.")
    return value

"""The http action: a request through the guard, its answer as outputs, and the polling of what takes longer.

A server that answers 202 with a location has taken the request. That answer is recorded at once, so that an execution
that runs the action again asks how things are and does not send the request again. Authentication covers the kinds that
need no cloud's own library: Basic, Raw and ActiveDirectoryOAuth become a header, ClientCertificate a TLS context.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode, urljoin

import httpcore2
import httpx2
from msgspec.structs import replace

from loom.effects.actions.content import FORM, TooManyValues, decode_content_off_loop, encode_content, text_of
from loom.effects.actions.exchange import AnswerRefused, BadRequestError, HttpRequest, exchange, same_origin
from loom.effects.actions.http_client import make_client, shared_client
from loom.effects.actions.outcomes import context_of, is_failure, object_inputs, time_left, timed_out, within_limit
from loom.effects.actions.ssrf import HostRefused
from loom.flows.calls import ActionCall, ActionOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loom.effects.actions.exchange import HttpAnswer
    from loom.effects.actions.outcomes import Services
    from loom.effects.actions.ssrf import HttpPolicy
    from loom.effects.execution import StepExecution


_ACCEPTED = 202
_POLL_S, _SHORTEST_POLL_S = 20.0, 1.0
"""Seconds between polls of a server that does not say when, and the fewest between any."""
_POLL_ATTEMPTS = 4
"""Failed polls in a row after which the action fails."""


class Asked(NamedTuple):
    """What a server made of a request."""

    outcome: ActionOutcome
    place: str = ""
    """Where to ask again, for a server that has taken the request and is not done; empty: it has answered."""


Ask: TypeAlias = "Callable[[str], Awaitable[Asked]]"
"""Sends the request of an action. With the place that a server gave it asks there how things are."""


async def http_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Send the request and give back what the server answers."""
    inputs = object_inputs(call)

    async def ask(place: str) -> Asked:
        if place:
            return await asked_of(await request(poll_of(inputs, place), services), services, execution, place)
        key = context_of(execution, call).idempotency_key
        return await asked_of(await request(inputs, services, key=key), services, execution)

    return await ask_until_done(execution, call, ask)


async def asked_of(answer: HttpAnswer, services: Services, execution: StepExecution, place: str = "") -> Asked:
    """Read an answer: its outcome, and where to ask again if it is none yet. `place`: where this one came from."""
    following = place_of(answer, place)
    # A server that has taken the request is asked again, also where this answer itself cannot be read.
    outcome = await tamed(partial(outcome_of, answer, services.policy, execution.host.now()))
    return Asked(outcome, following)


async def ask_until_done(execution: StepExecution, call: ActionCall, ask: Ask) -> ActionOutcome:
    """Send a request once, and ask a server that has taken it until it is done."""
    if "accepted" in execution.command.records:
        return await _poll(execution, call, ask, await execution.once("accepted", dict))
    outcome, place = await _ask_within(execution, call, ask, "")
    if not place or "disableasyncpattern" in call.options:
        return outcome
    accepted = {"location": place, "delay": _delay(outcome)}
    return await _poll(execution, call, ask, await execution.once("accepted", lambda: accepted))


async def _ask_within(execution: StepExecution, call: ActionCall, ask: Ask, place: str) -> Asked:
    """Ask once, within the time limit of the action; failures of the network are outcomes."""
    following = ""

    async def work() -> ActionOutcome:
        nonlocal following
        outcome, following = await ask(place)
        return outcome

    return Asked(await within_limit(execution, call, lambda: tamed(work)), following)


# --- requests ---------------------------------------------------------------------------------------------------------

_DROPPED = frozenset({
    "connection", "content-length", "cookie", "expect", "host", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "proxy-connection", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_KEYED = frozenset({"POST", "PATCH"})
"""Methods whose repetition does harm: they carry the idempotency key."""


async def request(inputs: Mapping[str, Any], services: Services, key: str = "") -> HttpAnswer:
    """Send the request that inputs describe, with the author's authentication."""
    policy = services.policy
    tls = _client_certificate(inputs.get("authentication"))
    client = await shared_client(policy) if tls is None else make_client(policy, tls)
    try:
        outgoing = outgoing_of(inputs, key)
        credentials = await _authorization(inputs.get("authentication"), client, policy)
        if credentials:
            outgoing.headers["Authorization"] = credentials
        return await exchange(client, outgoing, policy, may_leave=tls is None)
    finally:
        if tls is not None:
            await client.aclose()


def outgoing_of(inputs: Mapping[str, Any], key: str = "") -> HttpRequest:
    """The request that inputs describe, without credentials."""
    uri = inputs.get("uri") if inputs.get("uri") is not None else inputs.get("url")
    if not isinstance(uri, str) or not uri:
        raise BadRequestError("The request needs a text as inputs.uri.")
    method = str(inputs.get("method") or "GET").upper()
    if not method.isascii() or not method.isalpha():
        raise BadRequestError("inputs.method must be a word such as GET or POST.")
    headers = _headers(inputs.get("headers"))
    spelt = {name.lower(): name for name in headers}
    content, content_type = encode_content(inputs.get("body"), headers.get(spelt.get("content-type", ""), ""))
    if content_type and "content-type" not in spelt:
        headers["Content-Type"] = content_type
    elif content_type:
        headers[spelt["content-type"]] = content_type
    if inputs.get("cookie"):
        headers["Cookie"] = text_of(inputs["cookie"])
    if key and method in _KEYED and "idempotency-key" not in spelt:
        headers["Idempotency-Key"] = quote(key, safe=":/-._~")
    return HttpRequest(method, _with_queries(uri.strip(), inputs.get("queries")), headers, content)


def _uri(inputs: Mapping[str, Any]) -> str:
    return str(inputs.get("uri") if inputs.get("uri") is not None else inputs.get("url")).strip()


def _headers(given: Any) -> dict[str, str]:
    """The author's headers, without the headers that are the connection's own."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadRequestError("inputs.headers must be an object.")
    found: dict[str, str] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered in _DROPPED or (lowered.startswith("accept-") and lowered != "accept-version") or value is None:
            continue
        found[name] = text_of(value)
    return found


def _with_queries(uri: str, queries: Any) -> str:
    if not queries:
        return uri
    if not isinstance(queries, dict):
        raise BadRequestError("inputs.queries must be an object.")
    added = urlencode({name: text_of(value) for name, value in queries.items()}, quote_via=quote)
    base, mark, fragment = uri.partition("#")
    return f"{base}{'&' if '?' in base else '?'}{added}{mark}{fragment}"


# --- answers ----------------------------------------------------------------------------------------------------------


async def tamed(ask: Callable[[], Awaitable[ActionOutcome]]) -> ActionOutcome:
    """Await an exchange, and turn everything that the network can do to it into an outcome."""
    try:
        return await ask()
    except HostRefused as error:
        return ActionOutcome("Failed", code="HostRefused", message=str(error), error_type="hostrefused")
    except BadRequestError as error:
        return ActionOutcome("Failed", code=error.code, message=str(error), error_type=error.code.lower())
    except AuthenticationError as error:
        return ActionOutcome("Failed", code="AuthenticationFailed", message=str(error), error_type="authentication")
    except AnswerRefused as error:
        return ActionOutcome("Failed", code="AnswerRefused", message=str(error), error_type="answerrefused")
    except (TimeoutError, httpx2.TimeoutException, httpcore2.TimeoutException):
        message = "The server did not answer in time."
        return ActionOutcome("Failed", code="RequestTimeout", message=message, error_type="timeout")
    except (httpx2.HTTPError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        message = f"The request failed: {str(error) or type(error).__name__}"
        return ActionOutcome("Failed", code="ConnectionFailed", message=message, error_type="connection")


async def outcome_of(answer: HttpAnswer, policy: HttpPolicy, now: float) -> ActionOutcome:
    """Turn an answer into the outcome of its action."""
    outputs, patience = await answer.outputs(policy), answer.retry_after(now)
    if not is_failure(answer.status):
        return ActionOutcome("Succeeded", outputs, answer.code, retry_after_s=patience)
    message = f"The server answered {answer.status} {answer.code}."
    return ActionOutcome("Failed", outputs, answer.code, message, retry_after_s=patience)


# --- polling ----------------------------------------------------------------------------------------------------------


async def _poll(execution: StepExecution, call: ActionCall, ask: Ask, accepted: dict[str, Any]) -> ActionOutcome:
    """Ask where the server said, as often as it said, until it answers anything but 202."""
    location, delay = accepted["location"], float(accepted["delay"])
    polls = failures = 0
    while True:
        left = time_left(execution, call)
        await execution.sleep(delay if left is None else max(0.0, min(delay, left)))
        left = time_left(execution, call)
        if execution.repeats:
            # The server was asked before and had not been done: that more has happened since is the proof.
            location, delay = await _moved(execution, polls, location, delay)
        elif left is not None and left <= 0:
            return timed_out(call)
        else:
            outcome, following = await _ask_within(execution, call, ask, location)
            failures = failures + 1 if _is_transient(outcome) else 0
            if not following and not 0 < failures < _POLL_ATTEMPTS:
                return outcome
            delay = _delay(outcome)
            if following and following != location:
                moved = {"location": following, "delay": delay}
                location = (await execution.once(f"moved {polls}", partial(dict, moved)))["location"]
        polls += 1


async def _moved(execution: StepExecution, polls: int, location: str, delay: float) -> tuple[str, float]:
    """The location and delay that the answer to an earlier poll had set for the next one."""
    name = f"moved {polls}"
    if name not in execution.command.records:
        return location, delay
    moved = await execution.once(name, dict)
    return moved["location"], float(moved["delay"])


def poll_of(inputs: dict[str, Any], location: str) -> dict[str, Any]:
    """The inputs of a poll. Credentials go only to where the author had sent them."""
    polled: dict[str, Any] = {"method": "GET", "uri": location}
    if same_origin(_uri(inputs), location):
        headers = _headers(inputs.get("headers"))
        kept = {name: value for name, value in headers.items() if name.lower() != "content-type"}
        polled |= {"headers": kept, "authentication": inputs.get("authentication"), "cookie": inputs.get("cookie")}
    return polled


def place_of(answer: HttpAnswer, current: str = "") -> str:
    """The location at which a server that has accepted the request wants to be asked; empty if it has answered."""
    if answer.status != _ACCEPTED:
        return ""
    location = answer.header("location")
    if not location:
        return current
    try:
        place = urljoin(answer.url, location)
        httpx2.URL(place)
    except (ValueError, httpx2.InvalidURL) as error:
        raise AnswerRefused(f"The place where the server wants to be asked is no address: {error}") from error
    return place


def _is_transient(outcome: ActionOutcome) -> bool:
    """Say whether a poll has failed for a reason that may pass: the request was accepted and is not sent again."""
    if outcome.error_type in ("connection", "timeout") and outcome.status == "Failed":
        return True
    status = outcome.outputs["statusCode"] if outcome.outputs else 0
    return status in (408, 429) or status >= 500  # noqa: PLR2004 - the server's own errors


def _delay(outcome: ActionOutcome) -> float:
    """Until the next poll. Each is written down, so a server that wants none to be waited is not taken at its word."""
    return max(_SHORTEST_POLL_S, outcome.retry_after_s) if outcome.retry_after_s is not None else _POLL_S


# --- authentication ---------------------------------------------------------------------------------------------------

_TOKEN_VALUES = 1_000
"""What an authority that gives out a token may say beside it."""
_DEFAULT_AUTHORITY = "https://login.microsoftonline.com"


class AuthenticationError(Exception):
    """No credentials could be had."""


async def _authorization(given: Any, client: httpx2.AsyncClient, policy: HttpPolicy) -> str:
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


def _client_certificate(given: Any) -> ssl.SSLContext | None:
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
    outgoing = HttpRequest("POST", url, {"Content-Type": FORM}, urlencode(form).encode())
    # The secret is in the body, and a redirect would take it along.
    answer = await exchange(client, outgoing, replace(policy, max_redirects=0))
    token: Any = None
    if not is_failure(answer.status):
        try:
            token = await decode_content_off_loop(answer.data, "application/json", _TOKEN_VALUES)
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

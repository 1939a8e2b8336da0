"""One request and its answer: redirects hop by hop, no credentials for strangers, and no more than the limits allow."""

from __future__ import annotations

import asyncio
import zlib
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
from msgspec import Struct

from loom.effects.actions.content import TooManyValues, decode_content_off_loop
from loom.effects.actions.outcomes import code_of
from loom.effects.actions.ssrf import STORED_SHARE
from loom.effects.off_loop import OFF_LOOP_BYTES, aside

if TYPE_CHECKING:
    from loom.effects.actions.ssrf import HttpPolicy

_TRAVELS = frozenset({"accept", "accept-encoding", "content-type", "user-agent", "idempotency-key"})
"""The headers that may follow a redirect to another host: keys and tokens come in headers of any name."""

LONGEST_PATIENCE_S = 86_400.0
"""What a server may ask for at most."""


_CHUNKS_AT_ONCE = 64
"""Chunks after which other tasks have a turn: thousands of tiny ones come with one packet, and none of them waits."""
_MEMBER = b"\x1f"
"""What a member of gzip begins with."""


class BadRequestError(ValueError):
    """A request of the author's that cannot be sent."""

    def __init__(self, message: str, code: str = "InvalidInputs") -> None:
        super().__init__(message)
        self.code = code


class AnswerRefused(Exception):
    """An answer that is not taken: too large, or in a form that was not asked for."""


class HttpRequest(Struct, frozen=True):
    """A request, ready to be sent."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes = b""


class HttpAnswer(Struct, frozen=True):
    """A server's answer."""

    status: int
    headers: dict[str, str]
    data: bytes
    url: str
    """Where the answer came from, after all redirects."""

    def header(self, name: str) -> str:
        """A header by its name, without case; empty if there is none."""
        return next((value for key, value in self.headers.items() if key.lower() == name), "")

    @property
    def code(self) -> str:
        """The reason as one word, such as `NotFound`."""
        return code_of(self.status)

    async def outputs(self, policy: HttpPolicy) -> dict[str, Any]:
        """The answer as outputs of an action; `AnswerRefused` if they would be more than the policy allows."""
        try:
            body = await decode_content_off_loop(self.data, self.header("content-type"), policy.max_response_values)
        except TooManyValues as error:
            raise AnswerRefused(f"{error} It has {len(self.data)} bytes.") from error
        if len(self.data) > OFF_LOOP_BYTES:
            limit = (STORED_SHARE - 1) * policy.max_response_bytes
            size = await aside("convert", _stored_size, body)
            if size > limit:
                raise AnswerRefused(f"The answer would take {size} bytes to store; at most {limit} are taken.")
        return {"statusCode": self.status, "status": self.status, "headers": dict(self.headers), "body": body}

    def retry_after(self, now: float) -> float | None:
        """The seconds of patience that the server asks for, if it does."""
        text = self.header("retry-after").strip()
        if not text:
            return None
        if text.isascii() and text.isdigit():
            return min(float(text[:9]), LONGEST_PATIENCE_S)
        try:
            return min(max(0.0, parsedate_to_datetime(text).timestamp() - now), LONGEST_PATIENCE_S)
        except (ValueError, TypeError, OverflowError):
            return None


async def exchange(
    client: httpx2.AsyncClient, outgoing: HttpRequest, policy: HttpPolicy, *, may_leave: bool = True
) -> HttpAnswer:
    """Send a request and follow where it leads; an error of the library if it takes longer than the policy allows.

    A connection that shows a certificate must not leave its host: `may_leave` is False then.
    """
    # What one action is given as a cookie is no business of the next one that uses the client.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    request = _request(client, outgoing)
    async with asyncio.timeout(policy.request_timeout_s):
        for _ in range(policy.max_redirects + 1):
            response = await client.send(request, stream=True)
            try:
                following = response.next_request
                if following is None:
                    data = await _content(response, policy.max_response_bytes)
                    return HttpAnswer(response.status_code, _headers(response), data, str(request.url))
            finally:
                await response.aclose()
            if not _same_origin(request.url, following.url):
                if not may_leave:
                    raise AnswerRefused(f"The redirect to {following.url.host} would show it the client certificate.")
                following = _for_strangers(following)
            request = following
    raise AnswerRefused(f"The request was redirected more than {policy.max_redirects} times.")


def _request(client: httpx2.AsyncClient, outgoing: HttpRequest) -> httpx2.Request:
    try:
        url = httpx2.URL(outgoing.url)
        if url.scheme not in ("http", "https") or not url.host:
            raise BadRequestError("The uri must begin with http:// or https:// and name a host.")
        for name, value in outgoing.headers.items():
            if any(mark in name + value for mark in "\r\n\0"):
                raise BadRequestError("A header has more than one line.")
        return client.build_request(outgoing.method, url, headers=outgoing.headers, content=outgoing.content or None)
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise BadRequestError(f"The uri or a header cannot be sent: {error}") from error


def same_origin(one: str, other: str) -> bool:
    """Say whether two addresses are of the same scheme, host and port."""
    return _same_origin(httpx2.URL(one), httpx2.URL(other))


def _same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _for_strangers(request: httpx2.Request) -> httpx2.Request:
    for name in list(request.headers):
        if name.lower() not in _TRAVELS and name.lower() not in ("host", "content-length", "transfer-encoding"):
            del request.headers[name]
    return request


def _headers(response: httpx2.Response) -> dict[str, str]:
    """The headers as the server wrote them; headers that come several times are joined."""
    found: dict[str, str] = {}
    names: dict[str, str] = {}
    for raw_name, raw_value in response.headers.raw:
        name, value = raw_name.decode("latin-1"), raw_value.decode("utf-8", "replace")
        spelt = names.setdefault(name.lower(), name)
        found[spelt] = f"{found[spelt]}, {value}" if spelt in found else value
    return found


async def _content(response: httpx2.Response, limit: int) -> bytes:
    """The bytes of an answer, unpacked, never more than the limit at any point."""
    declared = response.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise AnswerRefused(f"The answer has {declared} bytes; at most {limit} are taken.")
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise AnswerRefused(f"The answer is packed as {encoding!r}; only gzip and deflate were asked for.")
    unpack = _Unpacking() if encoding not in ("", "identity") else None
    content = bytearray()  # a list of parts would take fifty times as much if each has a byte or two
    taken = chunks = 0
    async for chunk in response.aiter_raw():
        # Counted as they come, too: there are packed bytes without end that are unpacked to nothing.
        taken += len(chunk)
        content += unpack(chunk, limit - len(content) + 1) if unpack is not None else chunk
        if max(len(content), taken) > limit:
            raise AnswerRefused(f"The answer has more than {limit} bytes.")
        chunks += 1
        if chunks % _CHUNKS_AT_ONCE == 0:
            await asyncio.sleep(0)
    if unpack is not None:
        unpack.check_end()
    return bytes(content)


def _stored_size(body: Any) -> int:
    """The bytes of a body in a journal, where a control character takes six."""
    return len(msgspec.json.encode(body))


class _Unpacking:
    """Unpacks gzip and deflate, and never makes more than there is room for.

    gzip may have several members, each packed by itself. What follows on the end and is none is not looked at.
    """

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=47)  # gzip or zlib, as the first bytes say
        self._begun = False
        self._is_over = False

    def __call__(self, chunk: bytes, room: int) -> bytes:
        parts: list[bytes] = []
        while chunk and room > 0 and not self._is_over:
            if self._decoder.eof:
                # A decoder at its end would keep all that it is given.
                self._is_over = chunk[:1] != _MEMBER
                self._decoder = zlib.decompressobj(wbits=31) if not self._is_over else self._decoder
                continue
            parts.append(self._unpacked(chunk, room))
            room -= len(parts[-1])
            chunk = self._decoder.unused_data
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _unpacked(self, chunk: bytes, room: int) -> bytes:
        try:
            unpacked = self._decoder.decompress(chunk, room)
        except zlib.error as error:
            if self._begun:
                raise AnswerRefused(f"The packed answer cannot be read: {error}") from error
            # Some servers mean the bare form by "deflate".
            self._decoder = zlib.decompressobj(wbits=-15)
            self._begun = True
            return self._unpacked(chunk, room)
        self._begun = self._begun or bool(chunk)
        return unpacked

    def check_end(self) -> None:
        """Refuse an answer that was cut off."""
        if self._begun and not self._decoder.eof:
            raise AnswerRefused("The packed answer is incomplete.")

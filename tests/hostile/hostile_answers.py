"""A server of hostile answers, in a process of its own: bombs, lies about lengths, drips, loops of redirects.

    python tests/hostile/hostile_answers.py

Prints its port. The path of a request names the answer, `/gzip-lists` for one. Ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import cache

_JSON = "application/json"
_ENDLESS_BYTES = 64 << 20
"""An endless body ends here, if its reader should take it all."""


def _plain(body: bytes, kind: str = _JSON, status: str = "200 OK", **headers: str) -> bytes:
    lines = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


def _zipped(body: bytes) -> bytes:
    return _plain(gzip.compress(body, 9), Content_Encoding="gzip")


def _deflated_often() -> bytes:
    body = b"[" + b"0," * 5_000_000 + b"0]"
    for _ in range(2):
        body = zlib.compress(body, 9)
    return _plain(body, Content_Encoding="deflate, deflate")


ANSWERS: dict[str, Callable[[], bytes]] = {
    "gzip-lists": lambda: _zipped(b"[" + b"[]," * 12_999_999 + b"[]]"),
    "gzip-zeros": lambda: _zipped(bytes(200 << 20)),
    "gzip-text": lambda: _plain(gzip.compress(b"a" * (100 << 20), 9), "text/plain", Content_Encoding="gzip"),
    "gzip-torn": lambda: _plain(gzip.compress(b"[1,2,3]" * 1000)[:-9], Content_Encoding="gzip"),
    "gzip-none": lambda: _plain(b"[1]", Content_Encoding="gzip"),
    "encoding-odd": lambda: _plain(b"[1]", Content_Encoding="zstd, br, x-unknown"),
    "deflate-twice": _deflated_often,
    "deep-lists": lambda: _plain(b"[" * 100_000 + b"]" * 100_000),
    "deep-objects": lambda: _plain(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "less-deep": lambda: _plain(b"[" * 900 + b"]" * 900),
    "lists": lambda: _plain(b"[" + b"[]," * 3_000_000 + b"[]]"),
    "objects": lambda: _plain(b"[" + b'{"a":1},' * 120_000 + b"0]"),
    "keys": lambda: _plain(b"{" + b",".join(b'"k%d":0' % number for number in range(120_000)) + b"}"),
    "same-keys": lambda: _plain(b"{" + b'"k":[],' * 100_000 + b'"k":1}'),
    "commas": lambda: _plain(b'"' + b"," * 9_000_000 + b'"'),
    "text": lambda: _plain("é😀".encode() * 2_000_000, "text/plain; charset=utf-8"),
    "control": lambda: _plain(b"\x01" * 15_000_000, "text/plain"),
    "surrogates": lambda: _plain(b'["\\ud800", "\\udfff\\ud800"]'),
    "surrogate-keys": lambda: _plain(b'{"\\ud800": 1, "\\ud801": {"\\udc00": []}}'),
    "infinite": lambda: _plain(b"[1e999, -1e999, 1e-999]"),
    "nan": lambda: _plain(b"[NaN, Infinity, -Infinity]"),
    "big-integers": lambda: _plain(b"[" + b"9" * 6000 + b", -" + b"1" * 100_000 + b"]"),
    "long-fraction": lambda: _plain(b"[0." + b"1" * 200_000 + b"e-5, 1e-200000]"),
    "bad-utf8": lambda: _plain(b'{"a": "\xff\xfe\xc0\x80"}'),
    "utf16": lambda: _plain('{"a": [1, 2]}'.encode("utf-16"), "application/json; charset=utf-16"),
    "odd-charset": lambda: _plain(b'{"a": 1}', "application/json; charset=rot13"),
    "charset-idna": lambda: _plain(b"a" * 100_000, "text/plain; charset=idna"),
    "nul-charset": lambda: _plain(b"{}", 'application/json; charset="\\"\\"' + "x" * 5000),
    "cut-json": lambda: _plain(b'{"a": [1, 2'),
    "no-json": lambda: _plain(b"<html>" * 10_000),
    "empty-json": lambda: _plain(b""),
    "bom": lambda: _plain(b"\xef\xbb\xbf[1]"),
    "parts": lambda: _plain(b"--b\r\n\r\n\r\n" * 200_000 + b"--b--", "multipart/mixed; boundary=b"),
    "parts-headers": lambda: _plain(
        b"--b\r\n" + b"A: b\r\n" * 100_000 + b"\r\nx\r\n--b--", "multipart/form-data; boundary=b"
    ),
    "parts-nested": lambda: _plain(
        b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" * 5000 + b"--b--", "multipart/mixed; boundary=b"
    ),
    "parts-boundary": lambda: _plain(b"-" * 1_000_000, f"multipart/mixed; boundary={'-' * 60}"),
    "form": lambda: _plain(b"a=1&" * 1_000_000, "application/x-www-form-urlencoded"),
    "form-percent": lambda: _plain(b"%" * 1_000_000 + b"=%zz", "application/x-www-form-urlencoded"),
    "xml": lambda: _plain(b"<r>" + b"<a b='1'>x</a>" * 100_000 + b"</r>", "application/xml"),
    "xml-entities": lambda: _plain(
        b"<!DOCTYPE r [<!ENTITY a 'aaaaaaaaaa'>"
        + b"".join(b"<!ENTITY %c '%s'>" % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
        + b"]><r>&j;</r>",
        "application/xml",
    ),
    "headers-many": lambda: _plain(b"{}", **{f"X-{number}": "y" for number in range(5000)}),
    "header-huge": lambda: _plain(b"{}", X_Huge="y" * 1_000_000),
    "header-odd": lambda: _plain(b"{}", X_Odd="\x80\xff;=\x7f", Set_Cookie="a=" + "b" * 5000),
    "short": lambda: b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n[1,",
    "long": lambda: (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n[1]" + b"x" * 10_000
    ),
    "length-odd": lambda: b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\nContent-Length: 3\r\n\r\n[1]",
    "length-huge": lambda: b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n[1]",
    "chunk-odd": lambda: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n[1]\r\n0\r\n\r\n",
    "chunk-huge": lambda: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n[1]",
    "chunks-small": lambda: (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\na\r\n" * 300_000
        + b"0\r\n\r\n"
    ),
    "status-odd": lambda: b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    "status-none": lambda: b"\x00\x01\x02 nothing of HTTP\r\n\r\n" * 100,
    "status-204": lambda: b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n[1,2]",
    "status-500": lambda: _plain(b"[" + b"[]," * 100_000 + b"[]]", status="500 Oh"),
    "early-hints": lambda: b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 5000 + _plain(b"{}"),
    "loop": lambda: _plain(b"", status="302 Found", Location="/loop"),
    "loop-grows": lambda: _plain(b"", status="307 Found", Location="/loop-grows?" + "a" * 8000),
    "redirect-odd": lambda: _plain(b"", status="301 Found", Location="http://[::1%25lo]:99999/\x01"),
    "redirect-file": lambda: _plain(b"", status="302 Found", Location="file:///etc/passwd"),
    "redirect-inside": lambda: _plain(b"", status="302 Found", Location="http://169.254.169.254/latest"),
    "accepted": lambda: _plain(b"", status="202 Accepted", Location="/accepted", Retry_After="0"),
    "accepted-late": lambda: _plain(b"", status="202 Accepted", Location="/accepted-late", Retry_After="9" * 400),
    "retry-odd": lambda: _plain(b"", status="503 Busy", Retry_After="-1e999"),
}
"""What is written at once, by name."""


@cache
def answer(name: str) -> bytes:
    """The bytes of an answer; they are made once."""
    return ANSWERS[name]()


async def _drip() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n["
    while True:
        await asyncio.sleep(0.05)
        yield b" "


async def _drip_headers() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        await asyncio.sleep(0.05)
        yield b"X: y\r\n"


async def _endless() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
    for _ in range(_ENDLESS_BYTES >> 16):
        yield b"a" * (1 << 16)


async def _endless_chunks() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(_ENDLESS_BYTES >> 16):
        yield b"10000\r\n" + b"[" * (1 << 16) + b"\r\n"


async def _silent() -> AsyncIterator[bytes]:
    await asyncio.sleep(60)
    yield b""


async def _torn() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 20"


STREAMS: dict[str, Callable[[], AsyncIterator[bytes]]] = {
    "drip": _drip,
    "drip-headers": _drip_headers,
    "endless": _endless,
    "endless-chunks": _endless_chunks,
    "silent": _silent,
    "torn": _torn,
}
"""What is written bit by bit, by name."""

NAMES = [*ANSWERS, *STREAMS]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, and close."""
    with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError, KeyError):
        head = await reader.readuntil(b"\r\n\r\n")
        name = head.split()[1].decode("latin-1").strip("/").partition("?")[0]
        if name in STREAMS:
            async for part in STREAMS[name]():
                writer.write(part)
                await writer.drain()
        else:
            writer.write(answer(name))
            await writer.drain()
    writer.close()


async def main() -> None:
    """Serve until nobody holds the standard input open."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())

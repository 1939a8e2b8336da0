"""What a server may not make an action do: leave its host with a certificate, or wait for years."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import httpx2
import pytest

from loom.effects.actions.exchange import AnswerRefused, HttpAnswer, HttpRequest, _content, exchange
from loom.effects.actions.ssrf import HttpPolicy


async def content(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def answering(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/away":
        return httpx2.Response(302, headers={"location": "http://other.example/there"})
    if request.url.path == "/near":
        return httpx2.Response(302, headers={"location": "/there"})
    return httpx2.Response(200, content=content(request.url.host))


async def answer(path: str, *, may_leave: bool) -> HttpAnswer:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answering)) as client:
        outgoing = HttpRequest("GET", f"http://home.example{path}", {}, b"")
        return await exchange(client, outgoing, HttpPolicy(), may_leave=may_leave)


async def test_a_certificate_is_not_shown_to_another_host() -> None:
    with pytest.raises(AnswerRefused, match=r"redirect to other\.example would show it the client certificate"):
        await answer("/away", may_leave=False)
    assert (await answer("/near", may_leave=False)).data == b"home.example"
    assert (await answer("/away", may_leave=True)).data == b"other.example"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("999999999", 86_400.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("x", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
    ],
)
def test_patience_has_an_end(text: str, seconds: float | None) -> None:
    assert HttpAnswer(429, {"retry-after": text}, b"", "http://x").retry_after(now=0.0) == seconds


async def packed(*chunks: bytes, limit: int = 1000) -> bytes:
    """What is taken of an answer that comes in these chunks."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    def give(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-encoding": "gzip"}, content=stream())

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(give)) as client:
        outgoing = HttpRequest("GET", "http://home.example", {}, b"")
        return (await exchange(client, outgoing, HttpPolicy(max_response_bytes=limit))).data


async def test_all_members_of_a_packed_answer_are_taken() -> None:
    one, two = gzip.compress(b"[1,"), gzip.compress(b"2]")
    assert await packed(one + two) == b"[1,2]"
    assert await packed(one, two[:1], two[1:]) == b"[1,2]"
    assert await packed(one + two, b"\0\0", b"behind") == b"[1,2]"
    with pytest.raises(AnswerRefused, match="incomplete"):
        await packed(one, two[:-1])
    with pytest.raises(AnswerRefused, match="cannot be read"):
        await packed(one, b"\x1f\x8bnone")


async def test_what_follows_on_a_packed_answer_is_neither_kept_nor_endless() -> None:
    """A decoder keeps what it is given after its end, and copies it with every chunk."""
    small, chunk = gzip.compress(b"{}"), b"x" * 100_000
    tracemalloc.start()
    try:
        assert await packed(small, *[chunk] * 100, limit=11_000_000) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    with pytest.raises(AnswerRefused, match="more than 1000 bytes"):
        await packed(small, chunk)


async def test_packed_bytes_that_are_unpacked_to_nothing_have_an_end() -> None:
    nothing = zlib.compressobj(wbits=31)
    begin = nothing.compress(b"") + nothing.flush(zlib.Z_FULL_FLUSH)
    with pytest.raises(AnswerRefused, match="more than 1000 bytes"):
        await packed(begin, *[b"\0\0\0\xff\xff" * 50] * 10)


async def test_many_members_are_bounded_as_one_is() -> None:
    with pytest.raises(AnswerRefused, match="more than 5000 bytes"):
        await packed(*[gzip.compress(b"x" * 1000)] * 6, limit=5000)


async def test_an_answer_of_tiny_chunks_lets_others_have_their_turn_and_takes_no_more_than_its_bytes() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(20_000):
            yield b"%02d" % (number % 100)

    response = httpx2.Response(200, content=chunks())
    beside = asyncio.ensure_future(others())
    tracemalloc.start()
    try:
        assert len(await _content(response, 100_000)) == 40_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        beside.cancel()
    assert turns >= 100
    assert peak < 500_000

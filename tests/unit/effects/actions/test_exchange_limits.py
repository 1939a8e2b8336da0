"""What a server may not make an action do: leave its host with a certificate, or wait for years."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from loom.effects.actions.exchange import Answer, AnswerRefused, Outgoing, exchange
from loom.effects.actions.ssrf import HttpPolicy


async def content(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def answering(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/away":
        return httpx2.Response(302, headers={"location": "http://other.example/there"})
    if request.url.path == "/near":
        return httpx2.Response(302, headers={"location": "/there"})
    return httpx2.Response(200, content=content(request.url.host))


async def answer(path: str, *, may_leave: bool) -> Answer:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answering)) as client:
        outgoing = Outgoing("GET", f"http://home.example{path}", {}, b"")
        return await exchange(client, outgoing, HttpPolicy(), may_leave=may_leave)


async def test_a_certificate_is_not_shown_to_another_host() -> None:
    with pytest.raises(AnswerRefused, match=r"redirect to other\.example would show it the client certificate"):
        await answer("/away", may_leave=False)
    assert (await answer("/near", may_leave=False)).data == b"home.example"
    assert (await answer("/away", may_leave=True)).data == b"other.example"


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5.0), ("999999999", 86_400.0), ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0), ("x", None)]
)
def test_patience_has_an_end(text: str, seconds: float | None) -> None:
    assert Answer(429, {"retry-after": text}, b"", "http://x").retry_after(now=0.0) == seconds

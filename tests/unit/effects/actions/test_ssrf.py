"""The guard: which addresses are refused, in whatever form they come, and that connections go where it has looked."""

from __future__ import annotations

import asyncio
import re
from ipaddress import ip_address
from pathlib import Path

import httpcore2
import httpx2
import pytest
from action_server import Reply, serving
from hypothesis import given
from hypothesis import strategies as st

from loom.effects.actions import http_client
from loom.effects.actions.exchange import HttpRequest, exchange
from loom.effects.actions.http_client import (
    GuardedBackend,
    GuardedTransport,
    _as_client_errors,
    make_client,
    shared_client,
)
from loom.effects.actions.ssrf import HostRefused, HttpPolicy, why_refused

REFUSED = {
    "127.0.0.1": "loopback",
    "127.255.0.3": "loopback",
    "0.0.0.0": "unspecified",
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "reserved",
    "169.254.1.1": "link-local",
    "169.254.169.254": "metadata",
    "168.63.129.16": "metadata",
    "100.100.100.200": "metadata",
    "224.0.0.1": "multicast",
    "255.255.255.255": "",
    "240.0.0.1": "",
    "192.0.2.1": "",
    "198.18.0.1": "",
    "::1": "loopback",
    "::": "unspecified",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fc00::1": "private",
    "fd00:ec2::254": "metadata",
    "fec0::1": "private",
    "ff02::1": "multicast",
    "2001:db8::1": "",
    "::ffff:127.0.0.1": "127.0.0.1 in disguise",
    "::ffff:169.254.169.254": "metadata",
    "::ffff:a00:1": "10.0.0.1 in disguise",
    "::127.0.0.1": "127.0.0.1 in disguise",
    "64:ff9b::7f00:1": "127.0.0.1 in disguise",
    "64:ff9b::a9fe:a9fe": "metadata",
    "64:ff9b:1::1": "",
    "192.0.0.192": "",
    "192.88.99.1": "",
    "203.0.113.9": "",
    "3fff::1": "",
    "2001:20::1": "",
    "5f00::1": "reserved",
    "100::1": "",
    "2002:7f00:1::": "127.0.0.1 in disguise",
    "2002:a00:1::1": "10.0.0.1 in disguise",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe": "10.0.0.1 in disguise",
    "2001:0:a00:1:8000:63bf:3fff:fdd2": "10.0.0.1 in disguise",
}
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize(("text", "kind"), REFUSED.items())
def test_addresses_that_are_not_public_are_refused(text: str, kind: str) -> None:
    reason = why_refused(ip_address(text))
    assert reason
    assert kind in reason
    with pytest.raises(HostRefused, match="LOOM_HTTP_ALLOW"):
        HttpPolicy().permitted("name.example", 80, [text])


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_not(text: str) -> None:
    assert why_refused(ip_address(text)) == ""
    assert HttpPolicy().permitted("name.example", 80, [text]) == [text]


@given(st.ip_addresses(v=4))
def test_an_address_in_disguise_is_judged_like_itself(address: object) -> None:
    bare = ip_address(str(address))
    high, low = divmod(int(bare), 65536)
    refused = bool(why_refused(bare))
    for disguised in (f"::ffff:{bare}", f"64:ff9b::{high:x}:{low:x}", f"2002:{high:x}:{low:x}::1"):
        assert bool(why_refused(ip_address(disguised))) is refused, disguised


def test_only_the_good_addresses_of_a_host_are_used() -> None:
    assert HttpPolicy().permitted("mixed.example", 80, ["10.0.0.1", "8.8.8.8", "::1"]) == ["8.8.8.8"]


@pytest.mark.parametrize(
    ("entry", "host", "port", "address", "allowed"),
    [
        ("api.local", "API.local.", 80, "10.0.0.1", True),
        ("api.local", "other.local", 80, "10.0.0.1", False),
        ("api.local:8080", "api.local", 8080, "10.0.0.1", True),
        ("api.local:8080", "api.local", 80, "10.0.0.1", False),
        ("*.corp.example", "a.b.corp.example", 443, "10.0.0.1", True),
        ("*.corp.example", "evilcorp.example", 443, "10.0.0.1", False),
        ("*.corp.example", "corp.example", 443, "10.0.0.1", False),
        ("10.0.0.0/8", "x", 80, "10.9.9.9", True),
        ("10.0.0.0/8", "x", 80, "::ffff:10.9.9.9", True),
        ("10.0.0.0/8", "x", 80, "192.168.0.1", False),
        ("127.0.0.1", "localhost", 80, "127.0.0.1", True),
        ("[::1]", "localhost", 80, "::1", True),
        ("fd00::/8", "x", 80, "fd12::1", True),
        ("*", "x", 80, "169.254.169.254", True),
        ("http://localhost:8080/api", "localhost", 8080, "127.0.0.1", True),
        ("http://localhost:8080/api", "localhost", 8081, "127.0.0.1", False),
        ("https://10.0.0.5", "x", 443, "10.0.0.5", True),
        ("", "x", 80, "127.0.0.1", False),
    ],
)
def test_entries_of_the_operator(entry: str, host: str, port: int, address: str, allowed: bool) -> None:
    policy = HttpPolicy.allowing(*entry.split(","))
    if allowed:
        assert policy.permitted(host, port, [address]) == [address]
    else:
        with pytest.raises(HostRefused):
            policy.permitted(host, port, [address])


def test_the_error_says_how_to_allow_it() -> None:
    with pytest.raises(HostRefused) as caught:
        HttpPolicy().permitted("db.internal", 5432, ["10.0.0.5"])
    assert "db.internal (10.0.0.5)" in str(caught.value)
    allowed = HttpPolicy.allowing("db.internal:5432")
    assert "'db.internal:5432'" in str(caught.value)
    assert allowed.permitted("db.internal", 5432, ["10.0.0.5"]) == ["10.0.0.5"]


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
async def test_spellings_of_the_loopback_do_not_get_through(host: str) -> None:
    client = make_client(HttpPolicy())
    with pytest.raises((HostRefused, httpx2.ConnectError)) as caught:
        await exchange(client, HttpRequest("GET", f"http://{host}:9/", {}), HttpPolicy())
    if not isinstance(caught.value, HostRefused):
        assert "no address" in str(caught.value)  # the system does not know the spelling
    await client.aclose()


async def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    asked: list[str] = []

    async def resolver(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    with serving() as server:
        server.replies["/"] = Reply(200, b"1")
        policy = HttpPolicy(allow_hosts=frozenset({"service.example"}))
        client = make_client(policy, resolver=resolver)
        url = f"http://service.example:{server.port}/"
        for _ in range(2):
            assert (await exchange(client, HttpRequest("GET", url, {}), policy)).status == 200
        await client.aclose()
        assert server.asked[0].headers["Host"] == f"service.example:{server.port}"
    assert asked == ["service.example"]


async def test_a_name_that_changes_its_mind_is_judged_again() -> None:
    answers = [["8.8.8.8"], ["127.0.0.1"]]

    async def resolver(host: str, port: int) -> list[str]:
        return answers.pop(0)

    connected: list[str] = []

    class Sockets:
        async def connect_tcp(self, host: str, *_: object) -> None:
            connected.append(host)

    backend = GuardedBackend(HttpPolicy(), resolver)
    backend._sockets = Sockets()  # type: ignore[assignment]
    await backend.connect_tcp("rebind.example", 80)
    with pytest.raises(HostRefused):
        await backend.connect_tcp("rebind.example", 80)
    assert connected == ["8.8.8.8"]


async def test_tls_is_asked_for_by_name_and_verified() -> None:
    hello = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.set_result(await reader.read(4096))
        writer.close()

    async def resolver(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    policy = HttpPolicy(allow_hosts=frozenset({"service.example"}))
    client = make_client(policy, resolver=resolver)
    with pytest.raises(httpx2.ConnectError):
        await exchange(client, HttpRequest("GET", f"https://service.example:{port}/", {}), policy)
    assert b"service.example" in await hello
    assert client._transport.tls.check_hostname  # type: ignore[attr-defined]
    await client.aclose()
    server.close()
    await server.wait_closed()


async def test_local_sockets_are_out_of_reach() -> None:
    with pytest.raises(Exception, match="not reachable"):
        await GuardedBackend(HttpPolicy(allow_all=True)).connect_unix_socket("/run/x.sock")


def test_the_client_of_an_event_loop_is_shared_and_closed_with_it() -> None:
    clients: list[httpx2.AsyncClient] = []

    async def main() -> None:
        policy = HttpPolicy.allowing("127.0.0.1")
        clients.extend([await shared_client(policy), await shared_client(HttpPolicy.allowing("127.0.0.1"))])

    asyncio.run(main())
    assert clients[0] is clients[1]
    assert clients[0].is_closed
    asyncio.run(main())
    assert clients[2] is not clients[0]


def test_the_guard_stands_on_public_names_of_the_libraries() -> None:
    """A private attribute that a release renames would leave a pool without the guard."""
    written = Path(http_client.__file__).read_text()
    assert not re.findall(r"(?:httpx2|httpcore2)(?:\.\w+)*\._\w+", written)
    assert GuardedTransport.__bases__ == (httpx2.AsyncBaseTransport,)
    theirs = {name for name in vars(httpx2.AsyncHTTPTransport) if name.startswith("_") and not name.startswith("__")}
    assert not theirs & set(vars(GuardedTransport(HttpPolicy(), httpx2.create_ssl_context())))


def test_every_error_of_the_pool_has_its_name_in_the_client() -> None:
    kinds = [
        kind
        for kind in vars(httpcore2).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and hasattr(httpx2, kind.__name__)
    ]
    assert len(kinds) >= 14
    for kind in kinds:
        with pytest.raises(httpx2.HTTPError) as raised, _as_client_errors():
            raise kind("it broke")
        assert (type(raised.value).__name__, str(raised.value)) == (kind.__name__, "it broke")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", httpx2.RemoteProtocolError),
        (b"nonsense\r\n\r\n", httpx2.RemoteProtocolError),
    ],
)
async def test_a_broken_answer_is_an_error_of_the_client(sent: bytes, error: type[Exception]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    policy = HttpPolicy(allow_hosts=frozenset({"127.0.0.1"}))
    async with make_client(policy) as client:
        with pytest.raises(error):
            await exchange(client, HttpRequest("GET", f"http://127.0.0.1:{port}/", {}), policy)
    server.close()
    await server.wait_closed()

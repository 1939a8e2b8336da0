"""The http action against a real server: requests, answers, polling, limits, redirects and credentials."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from action_host import ActionHost, Crash, call_of
from action_server import ActionServer, Reply, serving

from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy
from loom.flows.calls import ActionOutcome


@pytest.fixture
def server() -> Iterator[ActionServer]:
    with serving() as running:
        running.replies["/ok"] = Reply(200, b'{"a": 1}')
        yield running


async def send(server: ActionServer, path: str = "/ok", **inputs: Any) -> ActionOutcome:
    return await ActionHost().run(call_of("http", {"uri": server.url + path, **inputs}))


async def test_answer_becomes_outputs(server: ActionServer) -> None:
    outcome = await send(server)
    assert (outcome.status, outcome.code) == ("Succeeded", "OK")
    assert outcome.outputs["statusCode"] == outcome.outputs["status"] == 200
    assert outcome.outputs["body"] == {"a": 1}
    assert outcome.outputs["headers"]["Content-Type"] == "application/json"


async def test_url_is_read_like_uri_and_queries_are_added(server: ActionServer) -> None:
    await ActionHost().run(call_of("http", {"url": f"{server.url}/ok?x=1", "queries": {"q": "a b", "n": 2}}))
    assert server.asked[0].path == "/ok?x=1&q=a%20b&n=2"


@pytest.mark.parametrize(
    ("status", "code"), [(404, "NotFound"), (500, "InternalServerError"), (304, "NotModified"), (599, "599")]
)
async def test_other_statuses_fail_with_readable_outputs(server: ActionServer, status: int, code: str) -> None:
    server.replies["/no"] = Reply(status, b'{"why": "x"}' if status != 304 else b"")
    outcome = await send(server, "/no")
    assert (outcome.status, outcome.code) == ("Failed", code)
    assert outcome.outputs["statusCode"] == status
    assert str(status) in outcome.message


async def test_server_asks_for_patience(server: ActionServer) -> None:
    server.replies["/busy"] = Reply(429, headers={"Retry-After": "17"})
    assert (await send(server, "/busy")).retry_after_s == 17.0
    server.replies["/busy"] = Reply(503, headers={"Retry-After": "Thu, 01 Jan 1970 00:17:10 GMT"})
    assert (await send(server, "/busy")).retry_after_s == 30.0


async def test_headers_of_the_connection_are_dropped(server: ActionServer) -> None:
    headers = {
        "Host": "evil",
        "Content-Length": "9",
        "Cookie": "no",
        "Accept-Language": "de",
        "X-Own": 5,
        "X-Nil": None,
    }
    await send(server, headers=headers, cookie="a=b")
    got = server.asked[0].headers
    assert got["Host"].startswith("127.0.0.1")
    assert got["X-Own"] == "5"
    assert got["Cookie"] == "a=b"
    assert not {"Accept-Language", "X-Nil", "Content-Length"} & set(got)


@pytest.mark.parametrize(
    ("body", "headers", "sent", "content_type"),
    [
        ({"a": "ü"}, {}, '{"a":"ü"}'.encode(), "application/json"),
        ([1, None, True], {}, b"[1,null,true]", "application/json"),
        ("text", {}, b"text", "text/plain; charset=utf-8"),
        ("<a/>", {"content-type": "application/xml"}, b"<a/>", "application/xml"),
        ({"$content-type": "image/png", "$content": "AAE="}, {}, b"\0\1", "image/png"),
        ({"a": "b c", "n": 1}, {"Content-Type": "application/x-www-form-urlencoded"}, b"a=b+c&n=1", None),
        ({"$formdata": [{"key": "k", "value": "v"}]}, {}, b"k=v", "application/x-www-form-urlencoded"),
    ],
)
async def test_bodies_are_sent_by_their_kind(
    server: ActionServer, body: Any, headers: dict[str, str], sent: bytes, content_type: str | None
) -> None:
    await send(server, method="post", body=body, headers=headers)
    asked = server.asked[0]
    assert (asked.method, asked.body) == ("POST", sent)
    if content_type is not None:
        assert asked.headers.get("Content-Type", asked.headers.get("content-type")) == content_type


async def test_parts_of_parts_stay_packed(server: ActionServer) -> None:
    inner = {"$content-type": "multipart/mixed; boundary=x", "$multipart": [{"body": "deep"}]}
    server.replies["/echo"] = lambda asked: Reply(200, asked.body, content_type=asked.headers["Content-Type"])
    outcome = await send(server, "/echo", method="POST", body={"$multipart": [{"body": inner}]})
    (part,) = outcome.outputs["body"]["$multipart"]
    assert set(part["body"]) == {"$content-type", "$content"}
    assert b"deep" in base64.b64decode(part["body"]["$content"])


async def test_multipart_goes_there_and_back(server: ActionServer) -> None:
    parts = [
        {"headers": {"Content-Disposition": 'form-data; name="a"', "Content-Type": "text/plain"}, "body": "one"},
        {"headers": {"Content-Disposition": 'form-data; name="b"'}, "body": {"x": 1}},
    ]
    server.replies["/echo"] = lambda asked: Reply(200, asked.body, content_type=asked.headers["Content-Type"])
    outcome = await send(server, "/echo", method="POST", body={"$multipart": parts})
    assert [part["body"] for part in outcome.outputs["body"]["$multipart"]] == ["one", {"x": 1}]


@pytest.mark.parametrize(
    ("data", "content_type", "body"),
    [
        (b"plain", "text/plain", "plain"),
        ("ü".encode("latin-1"), "text/plain; charset=iso-8859-1", "ü"),
        (b"{broken", "application/json", "{broken"),
        (b"NaN", "application/json", "NaN"),
        (b"", "application/json", None),
        (b'{"a": 2}', "application/problem+json", {"a": 2}),
        (b"[" * 150 + b"]" * 150 + b" ", "application/json", json.loads("[" * 150 + "]" * 150)),
        (b"[" * 300 + b"]" * 300, "application/json", "[" * 300 + "]" * 300),
        (b"[" * 100_000, "application/json", "[" * 100_000),
        (b"\xef\xbb\xbfx", "text/plain", "x"),
        (b"x", "text/plain; charset=undefined", "x"),
        ("ü".encode("utf-16-le"), "text/plain; charset=utf-16", "ü"),
        (b"<a/>", "application/xml", {"$content-type": "application/xml", "$content": "PGEvPg=="}),
        (b"\0\1", "", {"$content-type": "application/octet-stream", "$content": "AAE="}),
    ],
)
async def test_answers_are_read_by_their_type(server: ActionServer, data: bytes, content_type: str, body: Any) -> None:
    server.replies["/data"] = Reply(200, data, content_type=content_type)
    assert (await send(server, "/data")).outputs["body"] == body


async def test_form_answers_can_be_read_by_key(server: ActionServer) -> None:
    server.replies["/form"] = Reply(200, b"a=1&a=2", content_type="application/x-www-form-urlencoded")
    body = (await send(server, "/form")).outputs["body"]
    assert body["$formdata"] == [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]


async def test_posts_carry_an_idempotency_key_unless_the_author_does(server: ActionServer) -> None:
    for method in ("POST", "PATCH", "GET", "PUT"):
        await send(server, method=method)
    await send(server, method="POST", headers={"idempotency-key": "mine"})
    keys = [asked.headers.get("Idempotency-Key", asked.headers.get("idempotency-key")) for asked in server.asked]
    assert keys == ["run-1:A:0", "run-1:A:0", None, None, "mine"]


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"type": "Basic", "username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({"type": "raw", "value": "Token x"}, "Token x"),
    ],
)
async def test_authentication_by_header(server: ActionServer, given: dict[str, str], header: str) -> None:
    await send(server, authentication=given)
    assert server.asked[0].headers["Authorization"] == header


async def test_client_credentials_are_exchanged_for_a_token(server: ActionServer) -> None:
    server.replies["/my%20tenant/oauth2/token"] = Reply(200, b'{"access_token": "T", "token_type": "Bearer"}')
    given = {
        "type": "ActiveDirectoryOAuth",
        "authority": server.url + "/",
        "tenant": "my tenant",
        "audience": "https://api",
        "clientId": "me",
        "secret": "s&cret",
    }
    assert (await send(server, authentication=given)).status == "Succeeded"
    assert server.asked[0].body == (
        b"grant_type=client_credentials&client_id=me&client_secret=s%26cret&resource=https%3A%2F%2Fapi"
    )
    assert server.asked[1].headers["Authorization"] == "Bearer T"
    server.replies["/my%20tenant/oauth2/token"] = Reply(401, b"{}")
    refused = await send(server, authentication=given)
    assert server.asked[-1].path.endswith("/token")
    assert (refused.status, refused.code) == ("Failed", "AuthenticationFailed")
    assert "401" in refused.message


async def test_the_secret_for_a_token_is_not_redirected(server: ActionServer) -> None:
    with serving() as stranger:
        server.replies["/t/oauth2/token"] = Reply(307, headers={"Location": f"{stranger.url}/token"})
        given = {"type": "ActiveDirectoryOAuth", "authority": server.url, "tenant": "t", "clientId": "c", "secret": "s"}
        assert (await send(server, authentication=given)).status == "Failed"
        assert stranger.asked == []


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"type": "ManagedServiceIdentity"}, "AuthenticationFailed", "inside Azure only"),
        ({"type": "Kerberos"}, "InvalidInputs", "'Kerberos' is not known"),
        ({"type": "ClientCertificate", "pfx": "AAAA"}, "AuthenticationFailed", "PKCS #12"),
        ({"type": "ClientCertificate", "pem": "-----BEGIN"}, "AuthenticationFailed", "certificate cannot be used"),
        ({"type": "Raw"}, "InvalidInputs", "needs 'value'"),
    ],
)
async def test_authentication_that_cannot_be(server: ActionServer, given: Any, code: str, says: str) -> None:
    outcome = await send(server, authentication=given)
    assert (outcome.status, outcome.code) == ("Failed", code)
    assert says in outcome.message
    assert server.asked == []


async def test_redirects_are_followed_and_strangers_get_no_credentials(server: ActionServer) -> None:
    with serving() as stranger:
        stranger.replies["/there"] = Reply(200, b"1")
        server.replies["/same"] = Reply(302, headers={"Location": "/ok"})
        server.replies["/away"] = Reply(307, headers={"Location": f"{stranger.url}/there"})
        secrets = {"headers": {"X-Api-Key": "k", "Accept": "a/b"}, "cookie": "c=1"}
        auth = {"type": "Raw", "value": "secret"}
        assert (await send(server, "/same", authentication=auth, **secrets)).outputs["body"] == {"a": 1}
        assert server.asked[1].headers["Authorization"] == "secret"
        assert (
            await send(server, "/away", method="POST", body={}, authentication=auth, **secrets)
        ).status == "Succeeded"
        got = {name.lower(): value for name, value in stranger.asked[0].headers.items()}
        assert stranger.asked[0].method == "POST"
        assert got["accept"] == "a/b"
        assert not {"authorization", "cookie", "x-api-key"} & set(got)


async def test_every_hop_of_a_redirect_meets_the_guard(server: ActionServer) -> None:
    server.replies["/inside"] = Reply(302, headers={"Location": "http://169.254.169.254/latest"})
    outcome = await send(server, "/inside")
    assert (outcome.status, outcome.code) == ("Failed", "HostRefused")
    assert "169.254.169.254" in outcome.message


async def test_endless_redirects_end(server: ActionServer) -> None:
    server.replies["/round"] = Reply(302, headers={"Location": "/round"})
    outcome = await send(server, "/round")
    assert (outcome.code, len(server.asked)) == ("AnswerRefused", 11)


async def test_cookies_of_one_action_are_not_sent_by_the_next(server: ActionServer) -> None:
    server.replies["/set"] = Reply(200, headers={"Set-Cookie": "session=1; Path=/"})
    await send(server, "/set")
    await send(server)
    assert "Cookie" not in server.asked[1].headers


async def test_loopback_is_refused_by_default(server: ActionServer) -> None:
    outcome = await ActionHost(Services(http=HttpPolicy())).run(call_of("http", {"uri": f"{server.url}/ok"}))
    assert (outcome.status, outcome.code) == ("Failed", "HostRefused")
    assert "LOOM_HTTP_ALLOW" in outcome.message
    assert f"127.0.0.1:{server.port}" in outcome.message
    assert server.asked == []


async def test_the_environment_opens_the_guard(server: ActionServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_HTTP_ALLOW", f"example.org, 127.0.0.1:{server.port}")
    assert (await ActionHost(Services()).run(call_of("http", {"uri": f"{server.url}/ok"}))).status == "Succeeded"
    monkeypatch.setenv("LOOM_HTTP_ALLOW", "127.0.0.1:1")
    assert (await ActionHost(Services()).run(call_of("http", {"uri": f"{server.url}/ok"}))).code == "HostRefused"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "bare deflate"])
async def test_packed_answers_are_unpacked(server: ActionServer, encoding: str) -> None:
    data = json.dumps({"a": "x" * 1000}).encode()
    packed = gzip.compress(data) if encoding == "gzip" else zlib.compress(data)
    packed = packed[2:-4] if encoding == "bare deflate" else packed
    server.replies["/packed"] = Reply(200, packed, headers={"Content-Encoding": encoding.removeprefix("bare ")})
    assert (await send(server, "/packed")).outputs["body"] == {"a": "x" * 1000}


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(200, b"x" * 1001), "1001 bytes"),
        (Reply(200, gzip.compress(b"x" * 100_000), headers={"Content-Encoding": "gzip"}), "more than 1000"),
        (Reply(200, b"??", headers={"Content-Encoding": "br"}), "'br'"),
        (Reply(200, gzip.compress(b"x" * 100)[:-9], headers={"Content-Encoding": "gzip"}), "incomplete"),
        (Reply(200, b"no gzip at all \xff", headers={"Content-Encoding": "gzip"}), "cannot be read"),
    ],
)
async def test_answers_beyond_the_limits_are_refused(server: ActionServer, reply: Reply, says: str) -> None:
    server.replies["/big"] = reply
    policy = HttpPolicy(allow_hosts=frozenset({"127.0.0.1"}), max_response_bytes=1000)
    outcome = await ActionHost(Services(http=policy)).run(call_of("http", {"uri": f"{server.url}/big"}))
    assert (outcome.status, outcome.code) == ("Failed", "AnswerRefused")
    assert says in outcome.message


async def test_nobody_listens() -> None:
    with serving() as gone:
        url = gone.url
    outcome = await ActionHost().run(call_of("http", {"uri": url}))
    assert (outcome.status, outcome.error_type) == ("Failed", "connection")


async def test_silent_server_is_a_timeout(server: ActionServer) -> None:
    import threading

    release = threading.Event()
    server.replies["/slow"] = lambda _: Reply(200) if release.wait(60) else Reply(500)
    policy = HttpPolicy(allow_all=True, request_timeout_s=0.05)
    call = call_of("http", {"uri": f"{server.url}/slow"})
    outcome = await ActionHost(Services(http=policy)).run(call)
    assert (outcome.status, outcome.error_type) == ("Failed", "timeout")
    limited = await ActionHost().run(call_of("http", {"uri": f"{server.url}/slow"}, timeout_s=0.05))
    assert (limited.status, limited.code) == ("TimedOut", "ActionTimedOut")
    release.set()


@pytest.mark.parametrize(
    "uri", ["ftp://host/x", "nothing", "http://", "file:///etc/passwd", "", None, 5, "http://[::1"]
)
async def test_uris_that_cannot_be(uri: Any) -> None:
    outcome = await ActionHost().run(call_of("http", {"uri": uri}))
    assert (outcome.status, outcome.code) == ("Failed", "InvalidInputs")


@pytest.mark.parametrize("headers", [{"X": "a\r\nHost: evil"}, {"X\n": "a"}, {"X": "\0"}, {"X": "ü"}, ["X"]])
async def test_headers_that_cannot_be(server: ActionServer, headers: Any) -> None:
    outcome = await send(server, headers=headers)
    assert (outcome.status, outcome.code) == ("Failed", "InvalidInputs")
    assert server.asked == []


async def test_secure_messages_are_hidden(server: ActionServer) -> None:
    outcome = await ActionHost(Services(http=HttpPolicy())).run(
        call_of("http", {"uri": f"{server.url}/?token=secret"}, secure=True)
    )
    assert outcome.code == "HostRefused"
    assert "127.0.0.1" not in outcome.message
    assert "hidden" in outcome.message


async def test_addresses_of_secure_requests_are_not_logged(
    server: ActionServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.replies["/s3cret"] = Reply(200, b"{}", headers={"X-Token": "s3cret"})
    assert (await ActionHost().run(call_of("http", {"uri": f"{server.url}/s3cret"}, secure=True))).status == "Succeeded"
    assert "s3cret" not in caplog.text
    await send(server, "/ok")
    assert f"{server.url}/ok" in caplog.text, "what is not secure is logged as ever"


# -- polling ----------------------------------------------------------------------------------------------------------


def accepting(server: ActionServer, *later: Reply) -> None:
    server.replies["/start"] = Reply(202, b"{}", headers={"Location": "/poll", "Retry-After": "5"})
    server.replies["/poll"] = list(later)


STILL = Reply(202, b"{}", headers={"Retry-After": "7"})
DONE = Reply(200, b'"done"')


async def test_accepted_requests_are_polled(server: ActionServer) -> None:
    accepting(server, STILL, Reply(202, headers={"Location": "/ok"}), DONE)
    host = ActionHost()
    auth = {"type": "Raw", "value": "T"}
    outcome = await host.run(call_of("http", {"method": "POST", "uri": f"{server.url}/start", "authentication": auth}))
    assert outcome.outputs["body"] == {"a": 1}
    assert host.sleeps == [5.0, 7.0, 20.0]
    assert [(asked.method, asked.path) for asked in server.asked] == [
        ("POST", "/start"), ("GET", "/poll"), ("GET", "/poll"), ("GET", "/ok"),
    ]  # fmt: skip
    assert {asked.headers["Authorization"] for asked in server.asked} == {"T"}


async def test_accepted_without_location_or_with_the_option_is_an_answer(server: ActionServer) -> None:
    server.replies["/plain"] = Reply(202, b"{}")
    assert (await send(server, "/plain")).outputs["statusCode"] == 202
    accepting(server, DONE)
    call = call_of("http", {"uri": f"{server.url}/start"}, options=("disableasyncpattern",))
    outcome = await ActionHost().run(call)
    assert (outcome.status, outcome.outputs["statusCode"]) == ("Succeeded", 202)


@pytest.mark.parametrize("effects", [1, 2, 3, 4, 5])
async def test_a_crash_does_not_repeat_the_request(server: ActionServer, effects: int) -> None:
    accepting(server, STILL, Reply(202, headers={"Location": "/next"}))
    server.replies["/next"] = [STILL, DONE]
    host = ActionHost()
    host.crash_after = effects
    with pytest.raises(Crash):
        await host.run(call_of("http", {"method": "POST", "uri": f"{server.url}/start"}))
    outcome = await host.resume()
    assert outcome.outputs["body"] == "done"
    assert host.sleeps == [5.0, 7.0, 20.0, 7.0]
    assert [asked.path for asked in server.asked].count("/start") == 1
    assert [asked.path for asked in server.asked].count("/next") <= 3


async def test_polling_ends_at_the_limit(server: ActionServer) -> None:
    accepting(server, STILL)
    host = ActionHost()
    outcome = await host.run(call_of("http", {"uri": f"{server.url}/start"}, timeout_s=16.0))
    assert (outcome.status, outcome.code) == ("TimedOut", "ActionTimedOut")
    assert host.sleeps == [5.0, 7.0, 4.0]


async def test_polls_that_fail_for_a_moment_do_not_fail_the_action(server: ActionServer) -> None:
    accepting(server, Reply(503), Reply(500), DONE)
    assert (await ActionHost().run(call_of("http", {"uri": f"{server.url}/start"}))).outputs["body"] == "done"
    accepting(server, Reply(503))
    outcome = await ActionHost().run(call_of("http", {"uri": f"{server.url}/start"}))
    assert (outcome.status, outcome.code) == ("Failed", "ServiceUnavailable")
    accepting(server, Reply(404))
    assert (await ActionHost().run(call_of("http", {"uri": f"{server.url}/start"}))).code == "NotFound"


async def test_polls_elsewhere_get_no_credentials(server: ActionServer) -> None:
    with serving() as stranger:
        stranger.replies["/poll"] = DONE
        server.replies["/start"] = Reply(202, headers={"Location": f"{stranger.url}/poll", "Retry-After": "0"})
        await send(server, "/start", authentication={"type": "Raw", "value": "T"}, headers={"X-Key": "k"})
        assert not {"Authorization", "X-Key"} & set(stranger.asked[0].headers)

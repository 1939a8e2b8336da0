"""Sessions: a cookie can do what its key can and no more, ends with it, and serves no page but the server's own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_serving import Served, serving

from loom.server.app import ROUTES, create_app
from loom.server.sessions import COOKIE, SESSIONS, csrf_of, session_id
from loom.server.settings import ServerSettings

START = {"workflow": "asks", "input": {"topic": "tea"}}


@asynccontextmanager
async def logged_in(served: Served, key: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Log in with a key, as a page does; the client keeps the cookie and sends the CSRF token."""
    async with served.client() as client:
        answer = await client.post("/v1/session", json={"key": key})
        assert answer.status_code == 200, answer.text
        client.headers["X-Loom-CSRF"] = answer.json()["csrf"]
        yield client


def token_of(client: httpx2.AsyncClient) -> str:
    return str(client.cookies[COOKIE])


async def test_a_login_gives_a_cookie_that_scripts_and_other_sites_do_not_get(served: Served) -> None:
    key = await served.key("read", "start")
    async with served.client() as client:
        assert (await client.get("/v1/runs")).status_code == 401
        answer = await client.post("/v1/session", json={"key": key})
        cookie = answer.headers["set-cookie"]
        for part in (f"{COOKIE}=", "HttpOnly", "SameSite=strict", "Path=/"):
            assert part in cookie
        assert "Secure" not in cookie
        found = (await client.get("/v1/session")).json()
        assert (found["authenticated"], found["required"], found["scopes"]) == (True, True, ["read", "start"])
        assert found["csrf"] == answer.json()["csrf"]
        assert (await client.get("/v1/runs")).status_code == 200
    async with served.client(base="https://127.0.0.1") as client:
        assert "Secure" in (await client.post("/v1/session", json={"key": key})).headers["set-cookie"]


async def test_the_store_has_no_token_and_no_key(served: Served) -> None:
    key = await served.key("read")
    async with logged_in(served, key) as client:
        (entry,) = await served.runtime.store.entries(SESSIONS)
        token = token_of(client)
        assert entry.key == session_id(token)
        for secret in (token, key, csrf_of(token)):
            assert secret.encode() not in entry.data
            assert secret not in entry.key


async def test_a_token_that_the_browser_brings_is_never_taken_over(served: Served) -> None:
    key = await served.key("read")
    planted = "a" * 43
    async with served.client() as client:
        client.cookies.set(COOKIE, planted)
        assert (await client.get("/v1/runs")).status_code == 401
    async with served.client(Cookie=f"{COOKIE}={planted}") as client:
        answer = await client.post("/v1/session", json={"key": key})
        assert planted not in answer.headers["set-cookie"]
    async with served.client(Cookie=f"{COOKIE}={planted}") as client:
        assert (await client.get("/v1/runs")).status_code == 401
    async with logged_in(served, key) as client:
        before = token_of(client)
        client.cookies.clear()
        again = await client.post("/v1/session", json={"key": key}, headers={"Cookie": f"{COOKIE}={before}"})
        assert again.status_code == 200
    async with served.client(Cookie=f"{COOKIE}={before}") as client:
        assert (await client.get("/v1/runs")).status_code == 401, "the session before a login ends with it"


async def test_what_changes_something_needs_the_token_of_this_very_session(served: Served) -> None:
    key = await served.key("admin")
    async with logged_in(served, key) as other, logged_in(served, key) as client:
        own = client.headers["X-Loom-CSRF"]
        assert (await client.post("/v1/runs", json=START)).status_code == 201
        for wrong in ("", "x", other.headers["X-Loom-CSRF"], own.upper(), own[:-1]):
            answer = await client.post("/v1/runs", json=START, headers={"X-Loom-CSRF": wrong})
            assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
        del client.headers["X-Loom-CSRF"]
        for route in ROUTES:
            if route.method != "GET" and route.scope is not None:
                answer = await client.request(route.method, route.path.replace("{", "").replace("}", ""))
                assert answer.status_code == 403, route.path
        assert (await client.delete("/v1/session")).json()["code"] == "csrf"
        assert len((await client.get("/v1/runs")).json()["items"]) == 1


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Same-Origin", ""])
async def test_pages_of_other_sites_change_nothing_with_the_cookie(served: Served, site: str) -> None:
    key = await served.key("admin")
    async with logged_in(served, key) as client:
        headers = {"Sec-Fetch-Site": site}
        assert (await client.post("/v1/runs", json=START, headers=headers)).json()["code"] == "csrf"
        assert (await client.post("/v1/session", json={"key": key}, headers=headers)).json()["code"] == "csrf"
        assert (await client.delete("/v1/session", headers=headers)).json()["code"] == "csrf"
        foreign = await client.post("/v1/runs", json=START, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        for fine in ("same-origin", "none"):
            answer = await client.post("/v1/runs", json=START, headers={"Sec-Fetch-Site": fine})
            assert answer.status_code == 201


async def test_a_login_cannot_be_made_by_a_form(served: Served) -> None:
    key = await served.key("read")
    async with served.client() as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = await client.post("/v1/session", content=json.dumps({"key": key}), headers={"Content-Type": kind})
            assert answer.status_code == 415
            assert "set-cookie" not in answer.headers


async def test_a_key_in_the_header_is_judged_alone(served: Served) -> None:
    reader, admin = await served.key("read"), await served.key("admin")
    async with logged_in(served, admin) as client:
        wrong = {"Authorization": "Bearer loom_000000000000_" + "x" * 43}
        assert (await client.get("/v1/runs", headers=wrong)).status_code == 401
        assert (await client.get("/v1/session", headers=wrong)).json()["authenticated"] is False
        assert (await client.get("/v1/audit", headers={"X-API-Key": reader})).status_code == 403


async def test_two_cookies_are_none(served: Served) -> None:
    key = await served.key("read")
    async with logged_in(served, key) as client:
        token = token_of(client)
    async with served.client(Cookie=f"{COOKIE}={token}; {COOKIE}={token}") as client:
        assert (await client.get("/v1/runs")).status_code == 401


async def test_a_session_is_limited_as_its_key_is(served: Served) -> None:
    admin = await served.key("admin")
    limited = await served.key("admin", workflows=("flow",))
    async with served.client(admin) as client:
        assert (await client.post("/v1/runs", json={**START, "run_id": "theirs"})).status_code == 201
    async with logged_in(served, limited) as client:
        assert (await client.get("/v1/session")).json()["workflows"] == ["flow"]
        assert (await client.get("/v1/runs/theirs")).status_code == 404
        assert (await client.get("/v1/runs")).json()["items"] == []
        assert (await client.post("/v1/runs", json=START)).status_code == 403
        assert (await client.get("/v1/audit")).status_code == 403


async def test_what_a_session_does_is_recorded_under_its_key(served: Served) -> None:
    key = await served.key("admin")
    async with logged_in(served, key) as client:
        await client.post("/v1/runs", json={**START, "run_id": "r"})
        assert (await client.post("/v1/runs/r/cancel")).status_code == 202
        (act,) = (await client.get("/v1/audit")).json()["items"]
        assert (act["action"], act["actor"]) == ("run.cancel", key.split("_")[1])


@pytest.mark.parametrize("how", ["revoke", "log out"])
async def test_an_open_stream_ends_within_a_second_of_its_key_or_session(how: str) -> None:
    async with serving() as served:
        key = await served.key("admin")
        async with logged_in(served, key) as client, served.client(key) as keyed:
            await client.post("/v1/runs", json={**START, "run_id": "r"})
            await served.until_waiting("r")
            reading = asyncio.create_task(client.get("/v1/runs/r/stream"))
            other = asyncio.create_task(keyed.get("/v1/runs/r/stream"))
            while len(served.server.open_streams) < 2:  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0)
            begun = asyncio.get_running_loop().time()
            if how == "revoke":
                await served.server.keys.revoke(key.split("_")[1])
                assert (await client.get("/v1/runs")).status_code == 401
            else:
                token = token_of(client)
                assert (await client.delete("/v1/session")).status_code == 204
                assert await served.runtime.store.entries(SESSIONS) == []
                async with served.client(Cookie=f"{COOKIE}={token}") as thief:
                    assert (await thief.get("/v1/runs")).status_code == 401
            await asyncio.wait([reading], timeout=10)
            assert reading.done()
            assert asyncio.get_running_loop().time() - begun < 5  # half a second, on a machine that has time
            assert how == "revoke" or not other.done(), "the key's own stream goes on"
            other.cancel()
            await asyncio.gather(reading, other, return_exceptions=True)


async def test_a_session_ends_with_a_key_that_expires_and_after_12_hours(monkeypatch: Any) -> None:
    async with serving() as served:
        key = await served.key("read")
        async with logged_in(served, key) as client:
            now = served.runtime.now()
            sessions = served.server.sessions
            for hours, status in ((11.9, 200), (23.8, 200), (36.0, 401)):
                monkeypatch.setattr(sessions, "_now", lambda hours=hours: now + hours * 3600)
                assert (await client.get("/v1/runs")).status_code == status, hours
        monkeypatch.undo()
        async with logged_in(served, key) as client:
            monkeypatch.setattr(served.server.keys, "_now", lambda: now)
            await served.server.keys.rotate(key.split("_")[1], grace=5)
            assert (await client.get("/v1/runs")).status_code == 200
            monkeypatch.setattr(served.server.keys, "_now", lambda: now + 6)
            assert (await client.get("/v1/runs")).status_code == 401


async def test_guesses_are_limited_and_tell_nothing(served: Served) -> None:
    key = await served.key("read")
    async with served.client() as client:
        wrong = {"key": key[:-1] + ("A" if key[-1] != "A" else "B")}
        told = [await client.post("/v1/session", json=wrong) for _ in range(40)]
        assert told[0].status_code == 401
        assert told[-1].status_code == 429
        assert int(told[-1].headers["retry-after"]) >= 1
        assert all("set-cookie" not in answer.headers for answer in told)
        assert (await client.post("/v1/session", json={"key": key})).status_code == 200


async def test_no_log_has_a_token(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    key = await served.key("read")
    with caplog.at_level(logging.DEBUG):
        async with logged_in(served, key) as client:
            await client.post("/v1/runs", json=START)
            await client.get("/v1/audit")
            await client.post("/v1/session", json={"key": key + "x"})
            token = token_of(client)
    assert "with a session" in caplog.text
    for secret in (token, csrf_of(token), session_id(token), key):
        assert secret not in caplog.text


async def test_without_keys_this_machine_needs_no_login_and_others_get_none(served: Served) -> None:
    async with served.client() as client:
        found = (await client.get("/v1/session")).json()
        assert (found["required"], found["authenticated"], found["name"], found["csrf"]) == (False, True, "local", None)
        assert (await client.post("/v1/session", json={"key": "x"})).status_code == 401
        client.cookies.set(COOKIE, "b" * 43)
        assert (await client.get("/v1/runs")).status_code == 200
    async with served.client(address="203.0.113.7") as stranger:
        assert (await stranger.get("/v1/session")).json()["authenticated"] is False


async def test_a_read_only_server_refuses_every_change_and_stores_no_session(tmp_path: Path) -> None:
    async with serving() as served:
        key = await served.key("admin")
        app = create_app(served.runtime, ServerSettings(read_only=True))
        served.app, served.server = app, app.state.server
        async with logged_in(served, key) as client:
            assert (await client.get("/v1/session")).json()["read_only"] is True
            assert (await client.get("/v1/runs")).status_code == 200
            for route in ROUTES:
                if route.method == "GET" or route.path == "/v1/session":
                    continue
                answer = await client.request(route.method, route.path.replace("{", "").replace("}", ""))
                assert answer.status_code == 403, route.path
                assert answer.json().get("code", "read-only") == "read-only"
            assert await served.runtime.store.entries(SESSIONS) == []
            assert (await client.get("/v1/audit")).json()["items"] == []
            assert (await client.delete("/v1/session")).status_code == 204

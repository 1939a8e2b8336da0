"""Browser: no page of another origin can use the server, and no answer can become a page of the server's own."""

from __future__ import annotations

import httpx2
from server_serving import Served, serving

import loom
from loom.server.app import ROUTES

START = {"workflow": "asks", "input": {"topic": "tea"}}


def is_safe(answer: httpx2.Response) -> bool:
    return (
        answer.headers["x-content-type-options"] == "nosniff"
        and answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        and answer.headers["referrer-policy"] == "no-referrer"
        and answer.headers["cache-control"] == "no-store"
    )


async def test_every_answer_has_the_headers_that_keep_browsers_from_guessing(client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={"workflow": "asks", "run_id": "r", "input": {"topic": "now"}})
    await client.get("/v1/runs/r?wait=10")
    for route in ROUTES:
        if route.path == "/v1/changes":
            continue  # a feed goes on until its reader leaves
        path = route.path.replace("{run_id}", "r").replace("{handler_id}", "r").replace("{name}", "asks")
        for method in {route.method, "GET", "PATCH", "OPTIONS"}:
            answer = await client.request(method, path)
            assert is_safe(answer), (method, path, answer.headers)
    for answer in (
        await client.get("/nowhere"),
        await client.get("/v1/runs", headers={"Host": "evil.example"}),
        await client.get("/v1/runs", headers={"Origin": "https://evil.example"}),
        await client.post("/v1/runs", content=b"x" * 2_000_000),
    ):
        assert answer.status_code in (403, 404, 413)
        assert is_safe(answer)


async def test_only_what_never_changes_may_be_cached(client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs?wait=5", json={"workflow": "asks", "run_id": "r", "input": {"topic": "now"}})
    past = await client.get("/v1/runs/r/state?tick=0")
    assert "immutable" in past.headers["cache-control"]
    assert "private" in past.headers["cache-control"]
    assert (await client.get("/v1/runs/r/state")).headers["cache-control"] == "no-store"


async def test_a_page_cannot_post_without_a_preflight(client: httpx2.AsyncClient) -> None:
    """The types that a form or a `fetch` may send without asking first are not taken, even without an Origin."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = await client.post(
            "/v1/runs", content=b'{"workflow": "asks", "input": {"topic": "t"}}', headers={"Content-Type": kind}
        )
        assert answer.status_code == 415, kind
        answer = await client.post(
            "/workflows/asks/run-nowait", content=b'{"start_event": {"topic": "t"}}', headers={"Content-Type": kind}
        )
        assert answer.status_code == 415, kind
    assert (await client.get("/v1/runs")).json()["items"] == []


async def test_foreign_hosts_and_origins_are_refused_on_every_route(served: Served) -> None:
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "")
        for name, value in (
            ("Host", "rebound.example"),
            ("Host", "127.0.0.1.rebound.example"),
            ("Origin", "https://evil.example"),
            ("Origin", "null"),
        ):
            async with served.client(**{name: value}) as client:
                answer = await client.request(route.method, path)
            assert answer.status_code == 403, (route.path, name, value)
            assert "access-control-allow-origin" not in answer.headers


async def test_cors_is_never_with_credentials_and_never_for_all() -> None:
    async with serving(origins=("https://ops.example",)) as served:
        for origin in ("https://ops.example", "https://evil.example", "null"):
            async with served.client(Origin=origin) as client:
                for answer in (
                    await client.get("/v1/runs"),
                    await client.options("/v1/runs", headers={"Access-Control-Request-Method": "POST"}),
                ):
                    assert "access-control-allow-credentials" not in answer.headers
                    allowed = answer.headers.get("access-control-allow-origin")
                    assert allowed == (origin if origin == "https://ops.example" else None)


async def test_what_a_run_says_is_sent_as_data(client: httpx2.AsyncClient) -> None:
    script = "<script>alert(1)</script>"
    await client.post(
        "/v1/runs", json={"workflow": "asks", "run_id": "r", "input": {"topic": script}, "tags": {"x": script}}
    )
    for path in ("/v1/runs", "/v1/runs/r", "/v1/runs/r/history", "/v1/runs/r/state", "/handlers", "/handlers/r"):
        answer = await client.get(path)
        assert answer.headers["content-type"].partition(";")[0] in ("application/json", "application/problem+json")
    answer = await client.get("/v1/runs/%3Cscript%3E")
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_a_flow_cannot_speak_for_the_server_in_its_response(served: Served, client: httpx2.AsyncClient) -> None:
    headers = {
        "Set-Cookie": "session=stolen",
        "Access-Control-Allow-Origin": "*",
        "Content-Security-Policy": "default-src *",
        "X-Content-Type-Options": "none",
        "X-Request-ID": "forged",
        "X-Split": "a\r\nSet-Cookie: b=c",
        "Content-Type": "text/html",
        "X-Own": "fine",
    }
    answer = {"type": "Response", "inputs": {"statusCode": 200, "headers": headers, "body": "<script>1</script>"}}
    definition = {"triggers": {"manual": {"type": "Request", "kind": "Http"}}, "actions": {"Say": answer}}
    served.runtime.register(loom.load({"definition": definition}), name="says")
    got = await client.post("/v1/definitions/says/invoke", json={})
    assert got.status_code == 200
    assert got.headers.get("x-own") == "fine"
    assert "set-cookie" not in got.headers
    assert "access-control-allow-origin" not in got.headers
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in got.headers["content-security-policy"]
    assert got.headers["x-request-id"] != "forged"

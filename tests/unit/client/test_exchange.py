"""What is tried again and what is not, and how refusals become errors."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest
from client_rig import URL, Script, ok, problem, run

import loom
from loom.client import NEVER, Client, ClientError
from loom.steps.events import HumanResponseEvent, StartEvent

BROKEN = httpx2.ReadError("cut")


async def test_a_start_is_repeated_with_the_same_key() -> None:
    script = Script(BROKEN, problem("request-in-progress", 409), httpx2.ReadTimeout("slow"), ok(run(), 201))
    async with script.client() as client:
        started = await client.start("my", {"topic": "x"})
    assert started.run_id == "r"
    assert len(script.keys) == 4
    assert len(set(script.keys)) == 1
    assert script.keys[0]
    assert script.bodies == [{"workflow": "my", "input": {"topic": "x"}}] * 4


async def test_two_starts_have_two_keys() -> None:
    script = Script(ok(run()), ok(run()), ok(run()))
    async with script.client() as client:
        await client.start("my")
        await client.start("my")
        await client.start("my", idempotency_key="mine")
    assert len(set(script.keys)) == 3
    assert script.keys[2] == "mine"


async def test_reads_are_repeated_until_the_attempts_are_used_up() -> None:
    script = Script(*[BROKEN] * 9)
    async with script.client() as client:
        with pytest.raises(loom.StoreUnavailable) as caught:
            await client.get("r")
    assert len(script.requests) == 4
    assert not caught.value.outcome_unknown
    assert isinstance(caught.value, ClientError)
    assert caught.value.code == "unreachable"


async def test_a_deletion_that_may_have_happened_is_not_repeated() -> None:
    script = Script(BROKEN)
    async with script.client() as client:
        with pytest.raises(loom.StoreUnavailable, match="may have happened") as caught:
            await client.delete("r")
    assert caught.value.outcome_unknown


@pytest.mark.parametrize(
    "first",
    [
        httpx2.ConnectError("refused"),
        problem("store-unavailable", 503, headers={"Retry-After": "0"}),
        problem("draining", 503),
        problem("limited", 429),
    ],
)
async def test_a_deletion_that_has_not_happened_is_repeated(first: httpx2.Response | Exception) -> None:
    script = Script(first, httpx2.Response(204))
    async with script.client() as client:
        await client.delete("r")
    assert len(script.requests) == 2


async def test_a_server_that_asks_for_too_much_patience_is_not_waited_for() -> None:
    script = Script(problem("store-unavailable", 503, headers={"Retry-After": "3600"}))
    async with script.client() as client:
        with pytest.raises(loom.StoreUnavailable) as caught:
            await client.get("r")
    assert isinstance(caught.value, ClientError)
    assert caught.value.retry_after == 3600


async def test_nothing_is_repeated_if_so_wished() -> None:
    script = Script(BROKEN)
    async with script.client(retries=NEVER) as client:
        with pytest.raises(ClientError):
            await client.get("r")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("run-not-found", 404, loom.RunNotFound),
        ("run-finished", 409, loom.RunFinished),
        ("run-exists", 409, loom.RunExists),
        ("forbidden", 403, ClientError),
        ("internal", 500, ClientError),
    ],
)
async def test_refusals_are_the_errors_of_a_runtime(code: str, status: int, kind: type[Exception]) -> None:
    script = Script(problem(code, status, "Run 'r' says no.", errors=[{"path": "/step", "message": "unknown"}]))
    async with script.client() as client:
        with pytest.raises(kind, match="says no") as caught:
            await client.send_event("r", "Approval", {"ok": True})
    assert isinstance(caught.value, ClientError)
    assert (caught.value.code, caught.value.http_status, caught.value.request_id) == (code, status, "req-1")
    assert "/step: unknown" in str(caught.value)
    assert getattr(caught.value, "run_id", "r") == "r"


async def test_a_refused_definition_lists_its_problems() -> None:
    places = [{"path": "/actions/A", "message": "no type"}, {"path": "/triggers", "message": "none"}]
    script = Script(problem("definition-invalid", 422, errors=places))
    async with script.client() as client:
        with pytest.raises(loom.DefinitionError, match="/actions/A: no type") as caught:
            await client.put_definition("sync", {"actions": {}}, if_match='"3"')
    assert [(each.path, each.message) for each in caught.value.problems] == [
        ("/actions/A", "no type"),
        ("/triggers", "none"),
    ]
    assert script.requests[0].headers["if-match"] == '"3"'


@pytest.mark.parametrize("answer", [httpx2.Response(418, text="teapot"), ok([1]), httpx2.Response(200, text="<html>")])
async def test_other_servers_are_recognised(answer: httpx2.Response) -> None:
    async with Script(answer).client() as client:
        with pytest.raises(ClientError, match=r"GET /v1/runs/r gave an unexpected answer") as caught:
            await client.get("r")
    assert caught.value.code == "unexpected-answer"


async def test_a_gateway_that_is_down_for_a_moment_is_asked_again() -> None:
    async with Script(httpx2.Response(502, text="bad gateway"), ok(run())).client() as client:
        assert (await client.get("r")).status == "running"


async def test_the_key_goes_to_this_server_only() -> None:
    script = Script(httpx2.Response(307, headers={"location": "http://elsewhere.test/"}))
    async with script.client(api_key="secret-key") as client:
        with pytest.raises(ClientError) as caught:
            await client.get("r")
        assert "secret-key" not in repr(client) + str(caught.value)
    [request] = script.requests
    assert request.headers["authorization"] == "Bearer secret-key"


async def test_a_key_that_was_read_from_a_file_may_end_with_the_line() -> None:
    script = Script(ok(run()))
    async with script.client(api_key="secret-key\n") as client:
        await client.get("r")
    assert script.requests[0].headers["authorization"] == "Bearer secret-key"


@pytest.mark.parametrize("key", ["secret-key\nof two lines", "secret-ké"])
def test_what_cannot_be_a_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ValueError, match="is no key") as caught:
        Client("http://server.test", api_key=key)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("server.test", "ftp://server.test", "http://me:pw@server.test", "http://s.test?key=1"),
        *("http://s.test:99999", "http://s.test:http", "http://[::1", ""),
    ],
)
def test_addresses_are_checked(url: str) -> None:
    with pytest.raises(ValueError, match="address of a server"):
        Client(url)


@pytest.mark.parametrize("run_id", ["a/../../metrics", "a?b", "a#b", "%2e%2e"])
async def test_a_run_id_cannot_lead_elsewhere(run_id: str) -> None:
    script = Script(ok(run()))
    async with script.client() as client:
        await client.get(run_id)
    assert script.requests[0].url.raw_path.startswith(b"/v1/runs/")
    assert script.requests[0].url.raw_path.count(b"/") == 3


@pytest.mark.parametrize("run_id", ["", ".", ".."])
async def test_an_empty_run_id_is_refused(run_id: str) -> None:
    async with Script().client() as client:
        with pytest.raises(ValueError, match="no run id"):
            await client.get(run_id)


async def test_a_server_below_a_path() -> None:
    script = Script(ok(run()))
    async with Client(f"{URL}/loom/", transport=script) as client:
        await client.get("r")
    assert script.requests[0].url.path == "/loom/v1/runs/r"


async def test_filters_are_written_as_the_api_reads_them() -> None:
    script = Script(ok({"items": [run("a"), run("b")], "next_cursor": "c1"}), ok({"items": [run("c")]}))
    since = datetime(2026, 1, 1, tzinfo=UTC)
    async with script.client() as client:
        found = [
            each.run_id
            async for each in client.list(
                status=["failed", "running"],
                idle=True,
                waiting_for=None,
                created_after=since,
                tags={"team": "a"},
                limit=2,
            )
        ]
    assert found == ["a", "b", "c"]
    first, second = (request.url.params for request in script.requests)
    expected = [
        ("status", "failed"),
        ("status", "running"),
        ("idle", "true"),
        ("created_after", "2026-01-01T00:00:00+00:00"),
        ("tag", "team=a"),
        ("limit", "2"),
    ]
    assert first.multi_items() == expected
    assert second.multi_items() == [*expected, ("cursor", "c1")]


async def test_events_are_sent_by_instance_or_by_name() -> None:
    script = Script(*[ok({"tick": 3, "delivered": "waiter", "duplicate": False})] * 2)
    async with script.client() as client:
        delivery = await client.send_event("r", HumanResponseEvent(response="yes"), event_id="e1")
        await client.send_event("r", "HumanResponseEvent", {"response": "yes"}, step="ask")
    assert (delivery.tick, delivery.delivered, delivery.duplicate) == (3, "waiter", False)
    sent = {"type": "HumanResponseEvent", "value": {"response": "yes"}}
    assert script.bodies == [{**sent, "event_id": "e1"}, {**sent, "step": "ask"}]


async def test_a_start_event_may_be_the_input() -> None:
    script = Script(ok(run()))
    async with script.client() as client:
        await client.start("my", StartEvent(topic="x"), run_id="r", tags={"team": "a"}, wait=99)
    assert script.bodies == [{"workflow": "my", "input": {"topic": "x"}, "run_id": "r", "tags": {"team": "a"}}]
    assert script.requests[0].url.params["wait"] == "60"


async def test_waiting_goes_on_until_the_end() -> None:
    script = Script(ok(run()), ok(run()), ok(run(status="failed", error={"code": "timeout", "message": "late"})))
    async with script.client() as client:
        ended = await client.wait("r")
    assert ended.finished
    assert ended.error is not None
    assert ended.error.code == "timeout"


async def test_waiting_ends_at_its_limit() -> None:
    async with Script(ok(run())).client() as client:
        with pytest.raises(TimeoutError, match="'r' is still running"):
            await client.wait("r", timeout=0.0)


async def test_health_that_is_bad_is_an_answer() -> None:
    script = Script(ok({"status": "ready"}), ok({"status": "unready", "reasons": ["draining"]}, 503))
    async with script.client() as client:
        assert (await client.health()).ready
        assert (await client.health()).reasons == ["draining"]

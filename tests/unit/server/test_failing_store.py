"""What callers are told when the store fails, before or in the middle of a request, and what a repetition finds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import httpx2
import msgspec
import pytest
from server_serving import Asks, Served

import loom
from loom.client.errors import ClientError
from loom.client.exchange import Retries
from loom.runtime.durable.stored_definitions import DEFINITIONS
from loom.server.idempotency import ANSWERS, Kept
from loom.server.pages import read_cursor, write_cursor
from loom.server.settings import ServerSettings
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing.faults import FaultPlan, FaultyStore

URL = "http://127.0.0.1"
PLAN = FaultPlan(fail_before=0.1, fail_after=0.1, fail_read=0.1, slow=0.2, slow_s=0.005, drop_news=0.2)
RETRIES = Retries(attempts=8, first_delay=0.005, max_delay=0.02)


class Failing(FaultyStore):
    """A store whose entries fail as well, from when on it is told to."""

    def __init__(self, seed: int) -> None:
        super().__init__(MemoryStore(MemoryDatabase()), FaultPlan(seed=seed))
        self._random = Random(seed)

    def begin(self) -> None:
        self._plan = PLAN

    def _fail(self, *, unknown: bool) -> None:
        if self._plan is PLAN and self._random.random() < 0.1:
            raise StoreUnavailable("on purpose", outcome_unknown=unknown)

    async def put_entry(self, *args: Any, **options: Any) -> int | None:
        self._fail(unknown=False)
        version = await super().put_entry(*args, **options)
        self._fail(unknown=True)
        return version

    async def drop_entry(self, *args: Any, **options: Any) -> bool:
        self._fail(unknown=False)
        return await super().drop_entry(*args, **options)


class Load:
    """Callers with keys, who come again, and callers without, who do not. Each start has a tag of its own."""

    def __init__(self, served: Served) -> None:
        self._transport = httpx2.ASGITransport(app=served.app, client=("127.0.0.1", 1))
        self.started: dict[str, str] = {}
        """Runs whose start was acknowledged, by tag."""
        self.told: list[str] = []
        """Runs whose event was acknowledged."""
        self.codes: dict[str, int] = {}
        """What callers without keys were told, by tag."""
        self.refusals: set[str] = set()
        """What callers with keys were told who gave up."""

    async def put(self) -> None:
        async with (
            loom.Client(URL, retries=RETRIES, transport=self._transport) as client,
            httpx2.AsyncClient(base_url=URL, transport=self._transport) as plain,
        ):
            await asyncio.gather(
                *(self._with_key(client, f"k{number}") for number in range(40)),
                *(self._without(plain, f"p{number}") for number in range(60)),
            )

    async def _with_key(self, client: loom.Client, tag: str) -> None:
        try:
            run = await client.start("asks", {"topic": "tea"}, tags={"n": tag})
            self.started[tag] = run.run_id
            await client.send_event(run.run_id, "Approval", {"by": tag})
            self.told.append(run.run_id)
        except ClientError as error:
            self.refusals.add(error.code)

    async def _without(self, client: httpx2.AsyncClient, tag: str) -> None:
        body = {"workflow": "asks", "input": {"topic": "now"}, "tags": {"n": tag}}
        self.codes[tag] = (await client.post("/v1/runs", json=body)).status_code


@pytest.mark.parametrize("seed", [2, 4])
async def test_what_is_acknowledged_has_happened_once(seed: int) -> None:
    store = Failing(seed)
    async with loom.connect(store, poll_interval=0.05) as runtime, asyncio.timeout(50):
        runtime.register(Asks(), name="asks")
        await runtime.ready()
        load = Load(Served(runtime, ServerSettings(retry_after=0)))
        store.begin()
        await load.put()
        store.calm()
        found = {info.run_id: info.tags["n"] async for info in runtime.list()}
        counts = Counter(found.values())
        assert max(counts.values()) == 1
        assert {tag: found[run_id] for tag, run_id in load.started.items()} == {tag: tag for tag in load.started}
        assert {load.codes[tag] for tag in load.codes if tag not in counts} <= {500, 503}
        assert {load.codes[tag] for tag in load.codes if tag in counts} <= {201, 500}
        assert load.refusals <= {"store-unavailable"}
        assert load.told
        for run_id in load.told:
            assert (await (await runtime.handler(run_id))).text == f"tea by {found[run_id]}"


# -- in the middle of a request ---------------------------------------------------------------------------------------


START = {"workflow": "asks", "input": {"topic": "tea"}}
KEY = {"Idempotency-Key": "k1"}
RESPONDS: dict[str, Any] = {
    "definition": {
        "actions": {"Say": {"type": "Response", "inputs": {"statusCode": 200, "body": "hi"}, "runAfter": {}}}
    }
}


@contextmanager
def failing(store: Any, method: str, when: Callable[..., bool], **error: Any) -> Iterator[list[None]]:
    """A store whose method fails while `when` says so, by the arguments of the call. Says how often it did."""
    real, failed = getattr(store, method), []

    async def call(*args: Any, **options: Any) -> Any:
        if when(*args):
            failed.append(None)
            if error:
                await real(*args, **options)
            raise StoreUnavailable("on purpose", **error)
        return await real(*args, **options)

    setattr(store, method, call)
    try:
        yield failed
    finally:
        setattr(store, method, real)


def after_start(served: Served) -> Callable[..., bool]:
    """Whether a run was stored since now."""
    before = set(served.runtime.store.database.tables.runs)
    return lambda *_args: bool(set(served.runtime.store.database.tables.runs) - before)


async def runs_of(client: httpx2.AsyncClient, workflow: str) -> list[str]:
    page = (await client.get("/v1/runs", params={"workflow": workflow})).json()
    return [run["run_id"] for run in page["items"]]


async def lose_answer(served: Served) -> None:
    """What a server leaves that died before it could keep its answer, as another one finds it later."""
    store = served.runtime.store
    [entry] = await store.entries(ANSWERS)
    kept = msgspec.json.decode(entry.data, type=Kept)
    lost = msgspec.structs.replace(kept, status=0, headers={}, body=b"", claimed_at=0.0, claimed_by="another")
    await store.put_entry(ANSWERS, entry.key, msgspec.json.encode(lost))


# -- 503 says that nothing has happened -------------------------------------------------------------------------------


@pytest.mark.parametrize("served", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("path", "body", "workflow"),
    [
        ("/v1/runs", START, "asks"),
        ("/v1/runs", {"workflow": "says", "version": 1}, "says"),
        ("/v1/definitions/says/invoke", {}, "says"),
        ("/workflows/asks/run-nowait", {"start_event": {"topic": "tea"}}, "asks"),
    ],
)
async def test_a_run_that_was_begun_is_named_though_it_cannot_be_read(
    served: Served, client: httpx2.AsyncClient, path: str, body: dict[str, Any], workflow: str
) -> None:
    await client.put("/v1/definitions/says", json=RESPONDS)
    store, is_stored = served.runtime.store, after_start(served)
    with failing(store, "get", is_stored), failing(store, "stream", is_stored), failing(store, "load", is_stored):
        answer = await client.post(path, json=body)
    [run_id] = await runs_of(client, workflow)
    assert answer.status_code == 500, answer.text
    assert "retry-after" not in answer.headers
    assert answer.headers["location"] == f"/v1/runs/{run_id}"
    assert run_id in answer.json()["detail"]


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_of_several_runs_one_is_named_that_was_begun(served: Served, client: httpx2.AsyncClient) -> None:
    trigger = {"type": "Request", "kind": "Http", "splitOn": "@triggerBody()"}
    each = {"definition": {"triggers": {"manual": trigger}, "actions": RESPONDS["definition"]["actions"]}}
    assert (await client.put("/v1/definitions/each", json=each)).status_code == 201

    def is_first(group: list[Any]) -> bool:
        return any(getattr(operation, "run_id", "").endswith("-0") for operation in group)

    with failing(served.runtime.store, "apply", is_first):
        answer = await client.post("/v1/definitions/each/invoke", json=[1, 2, 3])
    begun = await runs_of(client, "each")
    assert (answer.status_code, len(begun)) == (500, 2)
    assert answer.headers["location"].removeprefix("/v1/runs/") in begun


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_a_fork_that_was_made_is_named(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    await served.until_waiting("r")
    with failing(served.runtime.store, "get", after_start(served)):
        answer = await client.post("/v1/runs/r/fork", json={"tick": 0, "run_id": "f"})
    assert (answer.status_code, answer.headers["location"]) == (500, "/v1/runs/f")
    assert (await client.get("/v1/runs/f")).status_code == 200


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_an_event_of_which_nobody_knows_is_no_503(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    await served.until_waiting("r")
    event = {"type": "Approval", "value": {"by": "x"}}
    with failing(served.runtime.store, "apply", lambda _group: True):
        refused = await client.post("/v1/runs/r/events", json=event)
    with failing(served.runtime.store, "apply", lambda _group: True, outcome_unknown=True):
        unknown = await client.post("/v1/runs/r/events", json=event)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert (unknown.status_code, unknown.json()["code"]) == (500, "internal")
    assert "not known" in unknown.json()["detail"]


# -- repetitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("served", ["memory"], indirect=True)
async def test_with_a_key_a_failure_may_be_repeated(served: Served, client: httpx2.AsyncClient) -> None:
    is_stored = after_start(served)
    with failing(served.runtime.store, "get", is_stored):
        first = await client.post("/v1/runs", json=START, headers=KEY)
    again = await client.post("/v1/runs", json=START, headers=KEY)
    assert (first.status_code, first.headers["retry-after"]) == (503, "1")
    assert again.status_code == 200
    assert await runs_of(client, "asks") == [again.json()["run_id"]]


async def test_an_answer_that_cannot_be_kept_is_given(served: Served, client: httpx2.AsyncClient) -> None:
    def is_answer(kind: str, _key: str, data: bytes) -> bool:
        return kind == ANSWERS and msgspec.json.decode(data, type=Kept).status > 0

    with failing(served.runtime.store, "put_entry", is_answer) as failed:
        first = await client.post("/v1/runs", json=START, headers=KEY)
    assert failed
    assert first.status_code == 201
    # Nobody is at work on it any more, so there is nothing to wait for.
    again = await client.post("/v1/runs", json=START, headers=KEY)
    assert (again.status_code, again.json()["run_id"]) == (200, first.json()["run_id"])
    assert len(await runs_of(client, "asks")) == 1


async def test_a_refusal_stays_one_though_its_claim_cannot_be_dropped(
    served: Served, client: httpx2.AsyncClient
) -> None:
    with failing(served.runtime.store, "drop_entry", lambda *_args: True) as failed:
        first = await client.post("/v1/runs", json={"workflow": "no"}, headers=KEY)
    again = await client.post("/v1/runs", json={"workflow": "no"}, headers=KEY)
    assert failed
    assert [first.status_code, again.status_code] == [404, 404]


async def test_a_claim_that_seemed_to_fail_is_in_nobodys_way(served: Served, client: httpx2.AsyncClient) -> None:
    with failing(served.runtime.store, "put_entry", lambda *_args: True, outcome_unknown=True):
        first = await client.post("/v1/runs", json=START, headers=KEY)
    again = await client.post("/v1/runs", json=START, headers=KEY)
    assert [first.status_code, again.status_code] == [503, 201]


async def test_who_leaves_in_the_middle_is_in_nobodys_way(served: Served, client: httpx2.AsyncClient) -> None:
    body = {**START, "run_id": "w"}
    first = asyncio.create_task(client.post("/v1/runs?wait=20", json=body, headers=KEY))
    await served.until_waiting("w")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "x"}})
    again = await client.post("/v1/runs?wait=20", json=body, headers=KEY)
    assert (again.status_code, again.json()["status"]) == (200, "completed")


@pytest.mark.parametrize("given", [{}, {"run_id": "f"}])
async def test_a_fork_is_found_by_a_repetition(
    served: Served, client: httpx2.AsyncClient, given: dict[str, Any]
) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    await served.until_waiting("r")
    body = {"tick": 0, **given}
    first = await client.post("/v1/runs/r/fork", json=body, headers=KEY)
    await lose_answer(served)
    again = await client.post("/v1/runs/r/fork", json=body, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert again.json()["run_id"] == first.json()["run_id"]
    # Without the key it is a run that is there already.
    if given:
        assert (await client.post("/v1/runs/r/fork", json=body)).json()["code"] == "run-exists"


async def test_a_repetition_does_not_take_another_run_for_its_fork(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    await served.until_waiting("r")
    body = {"tick": 0, "run_id": "f"}
    await client.post("/v1/runs/r/fork", json=body, headers=KEY)
    await lose_answer(served)
    await client.post("/v1/runs/f/cancel")
    await client.get("/v1/runs/f?wait=10")
    assert (await client.delete("/v1/runs/f")).status_code == 204
    await client.post("/v1/runs", json={**START, "run_id": "f"})
    again = await client.post("/v1/runs/r/fork", json=body, headers=KEY)
    assert (again.status_code, again.json()["code"]) == (409, "run-exists")


async def test_a_retry_is_found_by_a_repetition(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.post("/v1/runs?wait=10", json={"workflow": "asks", "input": {"topic": "fail"}, "run_id": "r"})
    monkeypatch.setattr(served.runtime.active_runs, "notify", lambda _run_id: None)  # nobody takes it up meanwhile
    first = await client.post("/v1/runs/r/retry", headers=KEY)
    await lose_answer(served)
    again = await client.post("/v1/runs/r/retry", headers=KEY)
    assert [first.status_code, again.status_code] == [202, 202], again.text


# -- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("served", ["memory"], indirect=True)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_definition_that_was_changed_is_told_to_be(
    served: Served, client: httpx2.AsyncClient, method: str
) -> None:
    served.runtime.definitions.follow = True
    if method == "DELETE":
        await client.put("/v1/definitions/says", json=RESPONDS)
    written: list[bool] = []
    real = served.runtime.store.put_entry

    async def put_entry(*args: Any, **options: Any) -> Any:
        if args[0] == DEFINITIONS:  # what a process writes to see whether it can is not the definition
            written.append(True)
        return await real(*args, **options)

    served.runtime.store.put_entry = put_entry
    with failing(served.runtime.store, "entry", lambda *_args: bool(written)) as failed:
        answer = await client.request(method, "/v1/definitions/says", json=RESPONDS)
    assert failed
    assert answer.status_code == (201 if method == "PUT" else 204), answer.text
    # The next one who needs it finds it as it is stored.
    started = await client.post("/v1/definitions/says/invoke", json={})
    assert started.status_code == (200 if method == "PUT" else 404), started.text


async def test_a_cancellation_is_found_by_a_repetition(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    await served.until_waiting("r")
    first = await client.post("/handlers/r/cancel", headers=KEY)
    await lose_answer(served)
    again = await client.post("/handlers/r/cancel", headers=KEY)
    assert [first.json(), again.json()] == [{"status": "cancelled"}] * 2
    assert (await client.post("/handlers/r/cancel")).status_code == 404


async def test_a_cursor_that_was_tampered_with_is_refused(client: httpx2.AsyncClient) -> None:
    for number in range(2):
        body = {"start_event": {"topic": "tea"}, "handler_id": f"h{number}"}
        assert (await client.post("/workflows/asks/run-nowait", json=body)).status_code == 200
    cursor = (await client.get("/handlers?limit=1")).json()["next_cursor"]
    created_at, _, digest = read_cursor(cursor, tuple[float, str, str])
    for odd in (write_cursor(created_at, "\0", digest), write_cursor(created_at, digest), "no cursor"):
        answer = await client.get("/handlers", params={"limit": 1, "cursor": odd})
        assert (answer.status_code, list(answer.json())) == (400, ["detail"])
    assert len((await client.get("/handlers", params={"limit": 1, "cursor": cursor})).json()["handlers"]) == 1

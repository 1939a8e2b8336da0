"""Queries are shared by those who ask at the same time, and asked again where a worker loses them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from loom.store.errors import StoreUnavailable
from loom.temporal import rpc
from loom.temporal.address import TemporalAddress
from loom.temporal.client.cluster import Cluster
from loom.temporal.rpc import SharedQueries, ask, in_time


class Server:
    """Answers one query after the other, each with its number, when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Semaphore(0)

    async def query(self) -> Payload:
        self.asked += 1
        number = self.asked
        await self.answers.acquire()
        if number == 13:
            raise RPCError("bad luck", RPCStatusCode.INTERNAL, b"")
        return Payload(data=str(number).encode())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_share_the_query_that_leaves_next_and_none_that_has_left() -> None:
    server, queries = Server(), SharedQueries()
    first = asyncio.create_task(queries.ask("row", server.query))
    await settled()
    others = [asyncio.create_task(queries.ask("row", server.query)) for _ in range(50)]
    stranger = asyncio.create_task(queries.ask("state", server.query))
    await settled()
    assert server.asked == 2, "what is asked for another thing waits for nobody"
    others[0].cancel()
    for _ in range(3):
        server.answers.release()
    answers = await asyncio.gather(first, stranger, *others[1:])
    assert [answer.data for answer in answers[:2]] == [b"1", b"2"]
    assert {answer.data for answer in answers[2:]} == {b"3"}
    assert (queries._left, queries._next) == ({}, {})


async def test_an_error_reaches_everybody_who_shares_the_query() -> None:
    server, queries = Server(), SharedQueries()
    server.asked = 12
    server.answers.release()
    answers = await asyncio.gather(*(queries.ask("row", server.query) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["bad luck"] * 3
    server.answers.release()
    assert (await queries.ask("row", server.query)).data == b"14"


async def test_closing_ends_queries_without_callers() -> None:
    server, queries = Server(), SharedQueries()
    callers = [asyncio.create_task(queries.ask("row", server.query)) for _ in range(2)]
    await settled()
    callers.append(asyncio.create_task(queries.ask("row", server.query)))
    await settled()
    for caller in callers:
        caller.cancel()
    queries.close()
    await asyncio.gather(*callers, return_exceptions=True)
    await settled()
    assert (queries._left, queries._next) == ({}, {})


class Losing:
    """A run whose first calls nobody answers."""

    def __init__(self, lost: int, status: RPCStatusCode = RPCStatusCode.CANCELLED) -> None:
        self.lost, self.status = lost, status
        self.limits: list[float] = []

    async def query(self, _name: str, *, rpc_timeout: timedelta, **_options: Any) -> RawValue:
        self.limits.append(rpc_timeout.total_seconds())
        if len(self.limits) <= self.lost:
            raise RPCError("Timeout expired", self.status, b"")
        return RawValue(Payload(data=b"told"))


async def test_each_further_call_may_take_longer() -> None:
    losing: Any = Losing(2)
    assert (await ask(losing, "row", [], patience_s=100.0)).data == b"told"
    assert losing.limits == [2.0, 4.0, 8.0]
    hurried: Any = Losing(0)
    await ask(hurried, "row", [], patience_s=2.0)
    assert hurried.limits == [1.0], "there is time for a second call"


async def test_what_is_no_loss_is_raised_at_once() -> None:
    with pytest.raises(RPCError, match="Timeout expired"):
        await ask(Losing(1, RPCStatusCode.NOT_FOUND), "row", [])  # type: ignore[arg-type]


# -- calls that never end ---------------------------------------------------------------------------------------------


async def never() -> NoReturn:
    """As the SDK does now and then with a call during which its server dies."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_call_that_does_not_end_at_its_deadline_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_GRACE_S", 0.01)
    with pytest.raises(RPCError, match="did not end at its deadline") as raised:
        await in_time(never(), 0.01)
    assert raised.value.status is RPCStatusCode.DEADLINE_EXCEEDED


async def test_a_caller_that_is_cancelled_is_cancelled() -> None:
    waits = asyncio.create_task(in_time(never()))
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits


async def test_who_reads_the_end_of_a_run_is_not_left_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_GRACE_S", -rpc.PATIENT_S)
    service = SimpleNamespace(get_workflow_execution_history_reverse=lambda *_, **__: never())
    cluster = Cluster(TemporalAddress("127.0.0.1:7233"))
    monkeypatch.setattr(Cluster, "client", SimpleNamespace(workflow_service=service))
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable, match="could not read the end of 'a'"):
            await cluster.last_event("a")

"""Listing runs: every condition alone, several together, and page by page."""

from __future__ import annotations

from typing import Any

import pytest
from store_samples import Owner, do, ids, start, started

from loom.store.operations import ParkRun
from loom.store.ports import Store
from loom.store.records import RunQuery


@pytest.fixture
async def runs(store: Store, fence: int) -> Store:
    """Eight runs, each with something that no other has; the later its letter, the younger."""
    owners: dict[str, Owner] = {}
    made: dict[str, dict[str, Any]] = {
        "a": {"tags": {"team": "x", "env": "prod"}},
        "b": {"tags": {"team": "x", "env": "test"}},
        "c": {"workflow": "v", "tags": {"team": "y"}},
        "d": {"workflow": "v", "parent": "a", "parent_ref": 1},
        "e": {"parent": "a", "parent_ref": 2},
        "f": {},
        "g": {},
        "h": {},
    }
    for at, (run_id, more) in enumerate(made.items()):
        owners[run_id] = await started(store, run_id, fence, at=float(at), **more)
    await owners["a"].commit(head={"idle_since": 10.0, "waiting_for": ("Ask", "m.Ask")})
    await owners["b"].commit(head={"idle_since": 20.0, "waiting_for": ("Ask", "m.Ask", "Other")})
    await owners["c"].commit(head={"idle_since": 30.0})
    await owners["d"].commit(head={"paused": True})
    await do(store, ParkRun("e", fence, "no code"))
    await owners["f"].end("completed")
    await owners["g"].end("failed")
    await owners["h"].end("cancelled")
    return store


CASES: list[tuple[dict[str, Any], str]] = [
    ({}, "hgfedcba"),
    ({"status": "running"}, "edcba"),
    ({"status": "completed"}, "f"),
    ({"status": "failed"}, "g"),
    ({"status": "cancelled"}, "h"),
    ({"workflow": "v"}, "dc"),
    ({"workflow": "w"}, "hgfeba"),
    ({"workflow": "unknown"}, ""),
    ({"idle": True}, "cba"),
    ({"idle": False}, "hgfed"),
    ({"idle_before": 20.0}, "ba"),
    ({"idle_before": 9.9}, ""),
    ({"waiting_for": "Ask"}, "ba"),
    ({"waiting_for": "m.Ask"}, "ba"),
    ({"waiting_for": "Other"}, "b"),
    ({"waiting_for": "As"}, ""),
    ({"tags": {"team": "x"}}, "ba"),
    ({"tags": {"team": "x", "env": "test"}}, "b"),
    ({"tags": {"team": "y", "env": "test"}}, ""),
    ({"tags": {"team": ""}}, ""),
    ({"parent": "a"}, "ed"),
    ({"paused": True}, "d"),
    ({"paused": False}, "hgfecba"),
    ({"parked": True}, "e"),
    ({"parked": False}, "hgfdcba"),
    ({"limit": 3}, "hgf"),
    ({"after": (4.0, "e")}, "dcba"),
    ({"after": (4.0, "e"), "limit": 2}, "dc"),
    ({"status": "running", "workflow": "w", "idle": True}, "ba"),
    ({"status": "running", "idle": True, "idle_before": 15.0, "waiting_for": "Ask", "tags": {"env": "prod"}}, "a"),
    ({"workflow": "v", "parent": "a", "paused": True, "parked": False, "idle": False}, "d"),
    ({"status": "completed", "waiting_for": "Ask"}, ""),
    ({"tags": {"team": "x"}, "after": (1.0, "b")}, "a"),
    ({"waiting_for": "Ask", "limit": 1}, "b"),
    ({"status": ("failed", "running")}, "gedcba"),
    ({"status": ("running", "failed", "running"), "limit": 2}, "ge"),
    ({"status": ("cancelled",)}, "h"),
    ({"status": ()}, ""),
    ({"status": (), "workflow": "w"}, ""),
    ({"status": (), "waiting_for": "Ask"}, ""),
    ({"workflow": ("v", "w")}, "hgfedcba"),
    ({"workflow": ("w", "unknown"), "limit": 4}, "hgfe"),
    ({"status": (), "idle": False}, ""),
    ({"status": (), "idle": True}, ""),
    ({"status": "running", "idle": False}, "ed"),
    ({"status": ("failed", "completed"), "idle": False}, "gf"),
    ({"status": "running", "idle": False, "workflow": ("w", "x"), "after": (7.0, "h")}, "e"),
    ({"idle": False, "parent": "a", "oldest_first": True}, "de"),
    ({"idle": False, "parked": True}, "e"),
    ({"idle": False, "idle_before": 20.0}, ""),
    ({"idle_before": 20.0, "workflow": ("v", "w"), "oldest_first": True}, "ab"),
    ({"idle_before": 20.0, "waiting_for": "Ask"}, "ba"),
    ({"workflow": ()}, ""),
    ({"workflow": (), "status": "running"}, ""),
    ({"workflow": ("v", *(f"w{n}" for n in range(1000)))}, "dc"),
    ({"workflow": ("v", "w"), "status": ("completed", "running"), "idle": False}, "fed"),
    ({"workflow": ("v", "w"), "status": ("completed", "running"), "after": (4.0, "e")}, "dcba"),
    ({"workflow": ("v", "w"), "status": ("completed", "running"), "idle": True}, "cba"),
    ({"workflow": ("v", "x"), "tags": {"team": "y"}}, "c"),
    ({"status": ("running", "failed"), "waiting_for": "Ask"}, "ba"),
    ({"created_after": 2.0}, "hgfed"),
    ({"created_before": 2.0}, "ba"),
    ({"created_after": 1.0, "created_before": 6.0}, "fedc"),
    ({"created_after": 1.0, "created_before": 6.0, "after": (4.0, "e")}, "dc"),
    ({"created_after": 6.0, "created_before": 6.0}, ""),
    ({"created_after": 0.0, "idle": True}, "cb"),
    ({"created_after": 0.0, "waiting_for": "Ask"}, "b"),
    ({"created_before": 1.0, "tags": {"team": "x"}}, "a"),
    ({"created_after": 1.0, "workflow": ("v", "w"), "status": "running"}, "edc"),
    ({"oldest_first": True}, "abcdefgh"),
    ({"oldest_first": True, "limit": 3}, "abc"),
    ({"oldest_first": True, "after": (4.0, "e")}, "fgh"),
    ({"oldest_first": True, "status": ("failed", "running")}, "abcdeg"),
    ({"oldest_first": True, "workflow": ("v", "w"), "after": (1.0, "b"), "limit": 3}, "cde"),
    ({"oldest_first": True, "idle": True}, "abc"),
    ({"oldest_first": True, "waiting_for": "Ask", "after": (0.0, "a")}, "b"),
    ({"oldest_first": True, "tags": {"team": "x"}}, "ab"),
    ({"oldest_first": True, "created_after": 2.0, "created_before": 5.0}, "de"),
    ({"oldest_first": True, "parent": "a"}, "de"),
]


@pytest.mark.parametrize(("query", "expected"), CASES, ids=[str(query) for query, _ in CASES])
async def test_find(runs: Store, query: dict[str, Any], expected: str) -> None:
    assert await ids(runs, **query) == list(expected)


async def test_found_rows_are_whole(runs: Store) -> None:
    for row in await runs.find(RunQuery()):
        assert row == await runs.get(row.run_id)


async def test_runs_of_the_same_moment_are_ordered_by_their_id(store: Store) -> None:
    await store.apply([start(run_id, at=1.0) for run_id in ("b", "B", "a", "ä", "z", "Z", "10", "9")])
    assert await ids(store) == ["ä", "z", "b", "a", "Z", "B", "9", "10"]
    assert await ids(store, after=(1.0, "b")) == ["a", "Z", "B", "9", "10"]
    assert await ids(store, oldest_first=True, after=(1.0, "Z")) == ["a", "b", "z", "ä"]
    assert await ids(store, workflow=("w", "v"), after=(1.0, "b")) == ["a", "Z", "B", "9", "10"]


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"status": "running"},
        {"tags": {"k": "v"}},
        {"workflow": "w"},
        {"status": ("running", "failed")},
        {"workflow": ("v", "w", "x")},
        {"created_before": 50.0},
    ],
)
async def test_pages_have_no_gap_and_no_repeat_while_runs_are_added(store: Store, query: dict[str, Any]) -> None:
    await store.apply([start(f"r{number}", at=float(number // 3), tags={"k": "v"}) for number in range(20)])
    expected = await ids(store)
    pages: list[str] = []
    after = None
    while page := await store.find(RunQuery(**query, limit=4, after=after)):
        pages.extend(row.run_id for row in page)
        after = (page[-1].created_at, page[-1].run_id)
        await do(store, start(f"new{len(pages)}", at=100.0, tags={"k": "v"}))
    assert pages == expected


async def test_pages_from_the_oldest_on_end_with_what_was_added_meanwhile(store: Store) -> None:
    await store.apply([start(f"r{number}", "vw"[number % 2], at=float(number // 3)) for number in range(9)])
    expected = [*await ids(store, oldest_first=True), "new"]
    pages: list[str] = []
    after = None
    while page := await store.find(RunQuery(workflow=("v", "w"), oldest_first=True, limit=4, after=after)):
        pages.extend(row.run_id for row in page)
        after = (page[-1].created_at, page[-1].run_id)
        await do(store, start("new", at=100.0))
    assert pages == expected

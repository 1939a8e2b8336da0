"""Lists by the last change, by the beginning of ids, and of runs that sleep or wait for an event from outside."""

from __future__ import annotations

from typing import Any

import pytest
from store_samples import Owner, do, ids, start, started

from loom.store.operations import ParkRun
from loom.store.ports import Store
from loom.store.records import RunQuery, place_of

_CALLBACK = ("CallbackEvent", "loom.flows.CallbackEvent")


@pytest.fixture
async def runs(store: Store, fence: int) -> Store:
    """Twelve runs; the later its letter, the younger, and most are changed in the opposite order."""
    owners: dict[str, Owner] = {}
    tags = {"a": {"team": "x"}, "b": {"team": "x"}, "k": {"team": "x"}}
    for at, run_id in enumerate("abcdefghijk"):
        workflow = "v" if run_id in "bdk" else "w"
        owners[run_id] = await started(
            store, run_id, fence, workflow, float(at), tags=tags.get(run_id, {}), parent="a" if run_id in "jk" else None
        )
    await do(store, start("l", "w", 11.0))
    heads: dict[str, dict[str, Any]] = {
        "a": {"idle_since": 10.0, "waiting_for": ("Ask", "m.Ask")},
        "b": {"idle_since": 20.0, "waiting_for": ("Ask", "CallbackEvent", "loom.flows.CallbackEvent", "m.Ask")},
        "c": {"idle_since": 30.0, "waiting_for": ("child run",)},
        "d": {"idle_since": 30.0, "waiting_for": _CALLBACK},
        "e": {"paused": True, "waiting_for": ("Ask", "m.Ask")},
        "f": {},
        "g": {"needs_worker": True},
        "h": {"status": "completed"},
        "i": {"status": "failed"},
        "j": {"waiting_for": ("Ask", "m.Ask")},
    }
    for number, (run_id, head) in enumerate(heads.items()):
        await owners[run_id].commit(head={"updated_at": 150.0 - number, **head})
    await do(store, ParkRun("k", fence, "no code"))
    return store


# By the last change: a 150, b 149, ... j 141, then l 11 and k 10, which were never written.
CASES: list[tuple[dict[str, Any], str]] = [
    ({"asleep": True}, "jf"),
    ({"asleep": True, "workflow": ("v", "w"), "oldest_first": True}, "fj"),
    ({"asleep": True, "after": (9.0, "j")}, "f"),
    ({"asleep": False}, "lkihgedcba"),
    ({"asleep": False, "status": "running"}, "lkgedcba"),
    ({"asleep": True, "idle": True}, ""),
    ({"asleep": True, "paused": True}, ""),
    ({"waiting": True}, "jeba"),
    ({"waiting": True, "workflow": "v"}, "b"),
    ({"waiting": True, "tags": {"team": "x"}}, "ba"),
    ({"waiting": True, "asleep": True}, "j"),
    ({"waiting": True, "oldest_first": True, "after": (0.0, "a"), "limit": 2}, "be"),
    ({"waiting": False, "idle": True}, "dc"),
    ({"waiting": False}, "lkihgfdc"),
    ({"id_prefix": "a"}, "a"),
    ({"id_prefix": "ab"}, ""),
    ({"id_prefix": "i", "status": "failed"}, "i"),
    ({"id_prefix": "i", "status": "running"}, ""),
    ({"updated_after": 145.0}, "edcba"),
    ({"updated_after": 142.0, "asleep": False}, "hgedcba"),
    ({"updated_after": 141.0, "waiting": True}, "eba"),
    ({"updated_after": 10.5, "parent": "a"}, "j"),
    ({"updated_after": 150.0}, ""),
    ({"by_update": True}, "abcdefghijlk"),
    ({"by_update": True, "oldest_first": True}, "kljihgfedcba"),
    ({"by_update": True, "limit": 3}, "abc"),
    ({"by_update": True, "after": (144.0, "g")}, "hijlk"),
    ({"by_update": True, "after": (146.0, "e"), "limit": 2}, "fg"),
    ({"by_update": True, "oldest_first": True, "after": (144.0, "g"), "limit": 2}, "fe"),
    ({"by_update": True, "status": "running"}, "abcdefgjlk"),
    ({"by_update": True, "status": ("failed", "completed")}, "hi"),
    ({"by_update": True, "status": ()}, ""),
    ({"by_update": True, "workflow": ("v", "w"), "idle": True}, "abcd"),
    ({"by_update": True, "workflow": "v"}, "bdk"),
    ({"by_update": True, "workflow": ("v", *(f"w{n}" for n in range(1000)))}, "bdk"),
    ({"by_update": True, "tags": {"team": "x"}, "oldest_first": True}, "kba"),
    ({"by_update": True, "waiting_for": "Ask"}, "abej"),
    ({"by_update": True, "waiting_for": "Ask", "after": (149.0, "b")}, "ej"),
    ({"by_update": True, "parent": "a"}, "jk"),
    ({"by_update": True, "parked": True}, "k"),
    ({"by_update": True, "asleep": True}, "fj"),
    ({"by_update": True, "waiting": True, "created_after": 0.0}, "bej"),
    ({"by_update": True, "id_prefix": "d"}, "d"),
    ({"by_update": True, "updated_after": 147.0}, "abc"),
    ({"by_update": True, "created_before": 2.0, "updated_after": 149.0}, "a"),
]


@pytest.mark.parametrize(("query", "expected"), CASES, ids=[str(query) for query, _ in CASES])
async def test_find(runs: Store, query: dict[str, Any], expected: str) -> None:
    assert await ids(runs, **query) == list(expected)


async def test_rows_say_what_the_filters_say(runs: Store) -> None:
    rows = await runs.find(RunQuery(oldest_first=True))
    assert "".join(row.run_id for row in rows if row.head.asleep) == "fj"
    assert "".join(row.run_id for row in rows if row.head.waiting) == "abej"


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_pages_by_the_last_change_have_no_gap_and_no_repeat(runs: Store, oldest_first: bool) -> None:
    expected = await ids(runs, by_update=True, oldest_first=oldest_first)
    query = RunQuery(by_update=True, oldest_first=oldest_first, limit=5)
    pages: list[str] = []
    after = None
    while page := await runs.find(RunQuery(by_update=True, oldest_first=oldest_first, limit=5, after=after)):
        pages.extend(row.run_id for row in page)
        after = place_of(page[-1], query)
    assert pages == expected


async def test_a_prefix_ends_where_other_ids_begin(store: Store) -> None:
    named = ["run", "run-", "run-1", "run-10", "run-1~", "run-2", "ru", "s", "run-1ä"]
    await store.apply([start(run_id, at=float(at)) for at, run_id in enumerate(named)])
    assert sorted(await ids(store, id_prefix="run-1")) == sorted(["run-1", "run-10", "run-1~", "run-1ä"])
    assert len(await ids(store, id_prefix="r")) == 8
    assert await ids(store, id_prefix="s") == ["s"]


async def test_counts_by_workflow_are_those_of_the_filters(runs: Store) -> None:
    found = {each.workflow: each for each in await runs.workflow_counts()}
    assert set(found) == {"v", "w"}
    for workflow, counts in found.items():
        for status in ("running", "completed", "failed", "cancelled"):
            assert getattr(counts, status) == len(await ids(runs, workflow=workflow, status=status)), status
        for held in ("idle", "asleep", "waiting", "paused", "parked", "stuck"):
            expected = await ids(runs, workflow=workflow, status="running", **{held: True})
            assert getattr(counts, held) == len(expected), (workflow, held)
        assert counts.total == len(await ids(runs, workflow=workflow))

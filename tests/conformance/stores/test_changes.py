"""Looks tell of every run that was written or deleted between them, whoever wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from store_databases import Database
from store_samples import Owner, do, post, start, started

from loom.store.changes import MOST_CHANGES, ChangeReader
from loom.store.operations import ClaimRun, ImportRun, ParkRun, PurgeRuns, ReleaseRun, SetTags
from loom.store.ports import Store


@pytest.fixture
async def reader(store: Store) -> ChangeReader:
    """A reader that has marked its place on an empty store."""
    made = store.change_reader()
    assert (await made.look()).changed == []
    return made


async def changed(reader: ChangeReader) -> list[str]:
    """The runs that the next look tells of, in its order; deleted ones with a minus."""
    look = await reader.look()
    assert look.is_whole
    for each in look.changed:
        assert each.row is None or (each.row.run_id, each.row.workflow) == (each.run_id, each.workflow)
    return [each.run_id if each.row is not None else f"-{each.run_id}" for each in look.changed]


async def test_nothing_is_told_twice(store: Store, fence: int, reader: ChangeReader) -> None:
    owner = await started(store, "r", fence)
    assert await changed(reader) == ["r"]
    assert await changed(reader) == []
    await owner.commit()
    await owner.commit()
    assert await changed(reader) == ["r"]
    assert await changed(reader) == []


async def test_a_look_tells_how_the_run_is_now(store: Store, fence: int, reader: ChangeReader) -> None:
    owner = await started(store, "r", fence)
    await owner.commit(head={"idle_since": 4.0, "waiting_for": ("Ask",)})
    [each] = (await reader.look()).changed
    assert each.row == await store.get("r")
    assert each.row is not None
    assert each.row.head.waiting_for == ("Ask",)


async def test_every_operation_that_shows_in_a_row_is_told(store: Store, fence: int, reader: ChangeReader) -> None:
    await do(store, start("unowned"))
    assert await changed(reader) == ["unowned"]
    owner = await started(store, "r", fence)
    assert await changed(reader) == ["r"]
    await do(store, SetTags("r", {"team": "x"}))
    assert await changed(reader) == ["r"]
    await owner.commit(chunk=None, ticks=0, head={"kept": 3, "updated_at": 7.5})
    assert await changed(reader) == ["r"]
    assert await do(store, ReleaseRun("r", fence))
    assert await changed(reader) == ["r"]
    await do(store, SetTags("r", {"team": "y"}))
    assert await changed(reader) == ["r"]
    assert await do(store, ClaimRun("r", fence))
    assert await changed(reader) == ["r"]
    assert await do(store, ParkRun("r", fence, "no code"))
    assert await changed(reader) == ["r"]


async def test_ends_retries_and_deletions_are_told(store: Store, fence: int, reader: ChangeReader) -> None:
    owner = await started(store, "r", fence)
    await owner.end("failed")
    assert await changed(reader) == ["r"]
    await do(store, post("r", reopens=True))
    assert await changed(reader) == ["r"]
    assert await do(store, ClaimRun("r", fence))
    await owner.end()
    assert await changed(reader) == ["r"]
    assert await do(store, PurgeRuns(run_id="r")) == 1
    look = await reader.look()
    assert [(each.run_id, each.workflow, each.row) for each in look.changed] == [("r", "w", None)]


async def test_a_run_that_came_and_went_between_two_looks_is_told_as_gone(
    store: Store, fence: int, reader: ChangeReader
) -> None:
    await (await started(store, "r", fence)).end()
    await do(store, PurgeRuns(run_id="r"))
    assert await changed(reader) == ["-r"]


async def test_a_run_that_begins_again_as_another_workflow(store: Store, fence: int, reader: ChangeReader) -> None:
    await (await started(store, "r", fence)).end()
    await changed(reader)
    await do(store, PurgeRuns(run_id="r"))
    await do(store, start("r", "other"))
    look = await reader.look()
    assert {(each.workflow, each.row is None) for each in look.changed} == {("w", True), ("other", False)}
    assert look.changed[0].row is None


async def test_an_imported_run_is_told(store: Store, fence: int, reader: ChangeReader) -> None:
    await (await started(store, "r", fence)).end()
    stored = await store.export("r")
    assert stored is not None
    await do(store, PurgeRuns(run_id="r"))
    await changed(reader)
    assert await do(store, ImportRun(stored))
    assert await changed(reader) == ["r"]


async def test_the_clocks_of_owners_have_no_part_in_it(store: Store, fence: int, reader: ChangeReader) -> None:
    owner = await started(store, "r", fence, at=1e9)
    other = await started(store, "s", fence, at=5.0)
    assert sorted(await changed(reader)) == ["r", "s"]
    await other.commit(head={"updated_at": 1.0})
    assert await changed(reader) == ["s"]
    await owner.end(at=0.5)
    await other.end(at=0.25)
    assert sorted(await changed(reader)) == ["r", "s"]


async def test_a_reader_goes_on_from_a_position(store: Store, fence: int, reader: ChangeReader) -> None:
    ended, idle, busy = [await started(store, run_id, fence) for run_id in ("ended", "idle", "busy")]
    for run_id in ("old", "older"):
        await (await started(store, run_id, fence)).end()
    position = (await reader.look()).position
    await ended.end()
    await idle.commit(head={"idle_since": 4.0})
    await do(store, ReleaseRun("idle", fence))
    await busy.commit()
    await do(store, PurgeRuns(run_id="older"))
    # Runs with an owner may be told without a change; all others that did not change are not.
    assert sorted(await changed(store.change_reader(position))) == ["-older", "busy", "ended", "idle"]
    assert sorted(await changed(reader)) == ["-older", "busy", "ended", "idle"]


async def test_another_process_goes_on_from_a_position(database: Database, store: Store, fence: int) -> None:
    owner = await started(store, "r", fence)
    position = (await store.change_reader().look()).position
    other = await database.open()
    await owner.commit()
    second = other.change_reader(position)
    assert await changed(second) == ["r"]
    await owner.end()
    assert await changed(second) == ["r"]


async def test_what_a_member_leaves_behind_is_told(database: Database, store: Store) -> None:
    leaving = await database.open()
    fence = (await leaving.join("leaving", 60.0)).fence
    await started(leaving, "r", fence)
    reader = store.change_reader()
    await reader.look()
    await leaving.close()
    assert await changed(reader) == ["r"]


@pytest.mark.parametrize("position", ["", "x", "7:7:", "999999999999", "9:1:@1.0", "1:9:5,5@1.0", "99999999999:1@1.0"])
async def test_an_unknown_position_is_refused(store: Store, fence: int, position: str) -> None:
    await started(store, "r", fence)
    reader = store.change_reader(position)
    look = await reader.look()
    assert not look.is_whole
    assert look.changed == []
    assert (await reader.look()).is_whole


async def test_too_many_changes_are_not_told_one_by_one(store: Store, fence: int, reader: ChangeReader) -> None:
    for first in range(0, MOST_CHANGES + 1, 500):
        count = min(500, MOST_CHANGES + 1 - first)
        await store.apply([start(f"r{number}") for number in range(first, first + count)])
    look = await reader.look()
    assert not look.is_whole
    assert look.changed == []
    await do(store, start("one more"))
    assert await changed(reader) == ["one more"]


async def test_many_looks_among_many_commits_miss_nothing(database: Database, store: Store, fence: int) -> None:
    other = await database.open()
    readers = [store.change_reader(), other.change_reader()]
    for reader in readers:
        await reader.look()
    owners: dict[str, Owner] = {}
    seen: list[dict[str, Any]] = [{}, {}]
    for number in range(40):
        run_id = f"r{number % 7}"
        if run_id not in owners:
            owners[run_id] = await started(store, run_id, fence)
        await owners[run_id].commit(head={"updated_at": 100.0 - number})
        for rows, reader in zip(seen, readers, strict=True):
            if number % 3 == 0:
                rows.update({each.run_id: each.row for each in (await reader.look()).changed})
    for rows, reader in zip(seen, readers, strict=True):
        rows.update({each.run_id: each.row for each in (await reader.look()).changed})
        assert rows == {run_id: await store.get(run_id) for run_id in owners}

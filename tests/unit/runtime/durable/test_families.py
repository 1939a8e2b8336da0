"""Places of a family in memory: bounded, first come, first served, and never a standstill."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.admission import FamilyPlaces

LIMIT = 3


def test_runs_of_a_family_come_in_the_order_in_which_they_asked() -> None:
    places = FamilyPlaces(2)
    assert [places.take(run_id, ("root",)) for run_id in ("a", "b", "c")] == [True, True, True]
    assert [places.take(run_id, ("root",)) for run_id in ("d", "e")] == [False, False]
    assert places.is_full("a")
    assert places.free("c") == "d", "the one beyond the limit has left"
    assert places.free("a") == "e"
    assert not places.is_full("b")


def test_another_family_has_places_of_its_own() -> None:
    places = FamilyPlaces(1)
    assert places.take("a", ("one",))
    assert places.take("b", ("one",))
    assert not places.take("c", ("one",))
    assert places.take("d", ("two",))
    assert not places.is_full("d")


def test_beyond_the_limit_only_a_line_of_descent_goes_on() -> None:
    places = FamilyPlaces(1)
    assert places.take("a", ("root",))
    assert places.take("b", ("root",))
    assert not places.take("of a", ("a", "root"))
    assert places.take("of b", ("b", "root")), "its parent is beyond the limit, and may wait for it"
    assert places.take("of of b", ("of b", "b", "root"))
    assert not places.take("second of b", ("b", "root"))
    assert places.free("of of b") is None
    assert places.free("of b") == "second of b"


def test_a_run_that_is_only_to_end_comes_at_once() -> None:
    places = FamilyPlaces(1)
    assert [places.take(run_id, ("root",)) for run_id in ("a", "b", "c")] == [True, True, False]
    assert places.take("c", ("root",), at_once=True)
    assert not places.is_full("a")


def test_without_a_limit_nobody_waits() -> None:
    places = FamilyPlaces(None)
    assert all(places.take(str(number), ("root",)) for number in range(5000))
    assert places.free("17") is None


@pytest.mark.parametrize("seed", range(20))
def test_every_run_of_a_family_has_its_turn_and_nothing_is_kept(seed: int) -> None:
    """Runs begin children and end when these have; at any time a few are in memory, and in the end none is known."""
    chance, places = random.Random(seed), FamilyPlaces(LIMIT)
    children: dict[str, list[str]] = {}
    alive: set[str] = set()
    ready = ["root/0", "root/1"]
    most = 0
    while ready or alive:
        if ready and (not alive or chance.random() < 0.6):
            run_id = ready.pop(chance.randrange(len(ready)))
            parts = run_id.split("/")
            above = tuple("/".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
            if places.take(run_id, above):
                alive.add(run_id)
                depth = run_id.count("/")
                children[run_id] = [f"{run_id}/{n}" for n in range(chance.randrange(3) if depth < 6 else 0)]
                ready += children[run_id]
            most = max(most, len(alive))
        else:
            leaves = sorted(run_id for run_id in alive if not children[run_id])
            if not leaves:
                assert ready, "something can always go on"
                continue
            run_id = chance.choice(leaves)
            alive.remove(run_id)
            parent = run_id.rpartition("/")[0]
            if parent in children:
                children[parent].remove(run_id)
            if (following := places.free(run_id)) is not None:
                ready.append(following)
    assert most <= LIMIT + 7, "the limit, and one line of descent"
    assert not places._members
    assert not places._waiting
    assert not places._roots
    assert not places._children


class Nested(Workflow):
    """Starts two of its kind, and waits for both at the same time. Its body stays in memory."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        depth = ev.get("depth")
        if depth == 0:
            return StopEvent(result=1)
        found = await asyncio.gather(*(ctx.run_child("nested", depth=depth - 1) for _ in range(2)))
        return StopEvent(result=sum(found))


FLOW: dict[str, Any] = {
    "actions": {
        "a": {
            "type": "if",
            "condition": "@greater(triggerBody(), 0)",
            "actions": {
                "each": {
                    "type": "foreach",
                    "items": [1, 2],
                    "actions": {
                        "c": {
                            "type": "workflow",
                            "inputs": {"workflow": "nested", "body": "@sub(triggerBody(), 1)"},
                        }
                    },
                    "runtimeConfiguration": {"concurrency": {"repetitions": 2}},
                }
            },
        }
    }
}


@pytest.mark.parametrize("kind", ["steps", "flow"])
async def test_a_large_family_ends_with_few_of_it_in_memory(tmp_path: Path, kind: str) -> None:
    """Sixty-two runs descend from one, and four have places."""
    most, runtime = 0, loom.connect(f"sqlite:///{tmp_path / 'runs.db'}", max_descendants=4, idle_timeout=None)
    async with runtime:
        runtime.register(Nested(timeout=None) if kind == "steps" else loom.load(FLOW), name="nested")
        start = {"depth": 5} if kind == "steps" else 5
        handler = await runtime.start("nested", start, run_id="root")
        ended = asyncio.ensure_future(handler)
        assert runtime.active_runs is not None
        ends_at = time.monotonic() + 60
        while not ended.done():
            assert time.monotonic() < ends_at, "it stands still"
            most = max(most, len(runtime.active_runs.runs))
            await asyncio.sleep(0)
        result = await ended
        assert (result == 32) if kind == "steps" else (result.status == "Succeeded")
        assert len([info async for info in runtime.list()]) == 63
    assert most <= 1 + 4 + 5, "the first run, the limit, and one line of descent"

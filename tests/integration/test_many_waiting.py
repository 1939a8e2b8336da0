"""Runs that wait, started over HTTP, released, and woken one by one. See `make many`."""

from __future__ import annotations

from pathlib import Path

from many_waiting import many


async def test_every_released_run_is_brought_back_by_its_event(tmp_path: Path) -> None:
    outcome = await many(500, tmp_path)
    assert (outcome.idle, outcome.in_memory, outcome.answered) == (500, 0, 500)
    assert outcome.resumed >= 500

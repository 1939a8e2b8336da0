"""Runs that wait, started over HTTP, released, and woken one by one. See `make many`."""

from __future__ import annotations

from pathlib import Path

from many_waiting import many


async def test_every_released_run_is_brought_back_by_its_event(tmp_path: Path) -> None:
    outcome = await many(250, tmp_path)
    assert (outcome.idle, outcome.in_memory, outcome.answered) == (250, 0, 250)
    assert outcome.resumed >= 250

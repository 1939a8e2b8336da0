"""A loop that is longer than a history: 250 iterations here, 10,000 by command (`temporal_loop.py`)."""

from __future__ import annotations

from temporal_loop import looped


async def test_a_loop_goes_through_several_executions_and_ends_right() -> None:
    # A history half as long makes as many executions of half as many iterations.
    result, told, executions = await looped(250, suggested=300)
    assert result.status == "Succeeded"
    assert result.actions["loop"].status == "Succeeded"
    assert told == list(range(250)), "every iteration once, in order, through all executions"
    assert executions >= 5

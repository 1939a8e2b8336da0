"""A loop that is longer than a history: 150 iterations here, 10,000 by command (`temporal_loop.py`)."""

from __future__ import annotations

from temporal_loop import looped


async def test_a_loop_goes_through_several_executions_and_ends_right() -> None:
    # A shorter history makes as many executions of fewer iterations.
    result, told, executions = await looped(150, suggested=180)
    assert result.status == "Succeeded"
    assert result.actions["loop"].status == "Succeeded"
    assert told == list(range(150)), "every iteration once, in order, through all executions"
    assert executions >= 5

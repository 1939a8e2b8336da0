"""The engine and a second, naive implementation of the rules agree about random flows."""

from __future__ import annotations

from typing import Any

from flow_oracle import Oracle
from flow_player import play
from flow_sketches import sketches
from hypothesis import given


@given(sketches())
def test_both_agree(definition: dict[str, Any]) -> None:
    expected = Oracle(definition)
    played = play(definition, variables={"n": 0, "log": []})
    assert played.status == expected.status
    assert played.result.variables == expected.variables
    if not expected.ended_early:
        assert played.statuses == expected.statuses


@given(sketches())
def test_both_agree_though_the_run_is_recovered_after_every_batch(definition: dict[str, Any]) -> None:
    expected = Oracle(definition)
    played = play(definition, variables={"n": 0, "log": []}, recover_always=True)
    assert (played.status, played.result.variables) == (expected.status, expected.variables)

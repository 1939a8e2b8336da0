"""Random flows end in one way only: in memory, on SQLite, in small bites, replayed, and after a crash at any tick."""

from __future__ import annotations

from typing import Any

import pytest
from flow_driver import Driver, stored
from flow_programs import comparable, flows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.core.replay import replay
from loom.flows import walk
from loom.flows.planner import FlowPlanner
from loom.runtime.load import load
from loom.store import codec


@given(flows())
@settings(max_examples=3000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_flow_ends_and_its_journal_gives_the_same_state(definition: Any) -> None:
    program = load(definition, name="random").program
    driver = Driver(program)
    result = driver.go_on()
    again = replay(driver.journal, FlowPlanner(program))
    assert stored(again) == stored(driver.states[-1])
    assert driver.cursors == list(range(len(driver.cursors)))
    restoring = Driver(program, restores=True)
    assert restoring.go_on() == result
    assert stored(restoring.states[-1]) == stored(again)

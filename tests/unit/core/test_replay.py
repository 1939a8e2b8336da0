"""Replay of a journal."""

from __future__ import annotations

from core_rig import START, STOP, WORK, A, ev, read_field

from loom.core.commands import CommandRunWorker
from loom.core.config import BrokerConfig
from loom.core.reducer import replay, replay_steps
from loom.core.state import BrokerState
from loom.core.ticks import TickAddEvent, TickStartRun, TickStepResult
from loom.steps.planner import StepsPlanner

JOURNAL = [
    TickStartRun(at=0.0, run_id="r", config=BrokerConfig("test", (WORK,)), event=ev(START)),
    TickAddEvent(at=1.0, event=ev(A)),
    TickStepResult(at=2.0, step="work", item=1, seq=1, returned=(ev(STOP),)),
]


def test_journal_gives_the_state_that_it_made() -> None:
    state = replay(JOURNAL, StepsPlanner(), None, read_field)
    assert (state.run_id, state.at, state.outcome.event) == ("r", 2.0, ev(STOP))


def test_nothing_gives_a_run_that_has_not_begun() -> None:
    assert replay([], StepsPlanner()) == BrokerState()


def test_snapshot_and_tail_give_the_same_state() -> None:
    snapshot = replay(JOURNAL[:2], StepsPlanner())
    assert replay(JOURNAL[2:], StepsPlanner(), snapshot) == replay(JOURNAL, StepsPlanner())


def test_every_past_state_and_its_commands_can_be_looked_at() -> None:
    steps = list(replay_steps(JOURNAL, StepsPlanner()))
    assert [tick for tick, _, _ in steps] == JOURNAL
    assert [state.at for _, state, _ in steps] == [0.0, 1.0, 2.0]
    assert [sum(isinstance(c, CommandRunWorker) for c in commands) for _, _, commands in steps] == [1, 0, 0]
    tail = list(replay_steps(JOURNAL[1:], StepsPlanner(), steps[0][1]))
    assert tail == steps[1:]

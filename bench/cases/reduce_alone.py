"""The reducer alone: a journal is replayed, with few and with many events in the queue."""

import time
from typing import Any

from bench.spec import Case, Figures, Metric, Target, absolute

STEPS = 10_000
FEW, MANY = 10, 10_000


def _journal(queued: int) -> tuple[list[Any], Any, Any]:
    """A ping-pong of steps beside a queue of so many events: the state before it, its ticks, and the planner."""
    from loom.core.commands import CommandRunWorker
    from loom.core.records import EVENT, START_EVENT, EventKind, EventRecord
    from loom.core.run import Run
    from loom.core.state import BrokerConfig, StepSpec
    from loom.core.ticks import TickAddEvent, TickStartRun, TickStepResult
    from loom.steps.planner import StepsPlanner

    start, ping, pong, other = (
        EventKind(name, (EVENT,), name.rpartition(".")[2]) for name in (START_EVENT, "m.Ping", "m.Pong", "m.Other")
    )
    config = BrokerConfig(
        "bench",
        (
            StepSpec("a", (start.name, pong.name)),
            StepSpec("b", (ping.name,)),
            StepSpec("busy", (other.name,), num_workers=1),
        ),
    )
    planner = StepsPlanner()
    run = Run(planner)
    run.feed(TickStartRun(at=0.0, run_id="bench", config=config, event=EventRecord(start)))
    run.feed(*(TickAddEvent(at=0.0, event=EventRecord(other, n)) for n in range(queued + 1)))
    run.drain()
    before = run.state
    command = next(c for c in run.flush().commands if isinstance(c, CommandRunWorker) and c.step == "a")
    ticks = []
    for number in range(STEPS):
        event = EventRecord(ping if command.step == "a" else pong, number)
        tick = TickStepResult(at=1.0, step=command.step, item=command.item.id, seq=command.seq, returned=(event,))
        ticks.append(tick)
        run.feed(tick)
        run.drain()
        command = next(c for c in run.flush().commands if isinstance(c, CommandRunWorker))
    return ticks, before, planner


def _replay(queued: int) -> float:
    """Microseconds for each tick that is reduced: every result leads to the event that the step returned."""
    from loom.core.reducer import replay

    ticks, before, planner = _journal(queued)
    started = time.perf_counter()
    state = replay(ticks, planner, before)
    elapsed = time.perf_counter() - started
    assert state.workers["busy"].queue.size == queued
    assert state.items == queued + 2 + STEPS
    return elapsed / (2 * STEPS) * 1e6


def loom(size: int) -> Figures:
    del size
    few, many = _replay(FEW), _replay(MANY)
    return {"us": few, "ratio": many / few}


CASE = Case(
    name="reduce",
    title=f"reduce alone: a journal of {STEPS:,} results is replayed",
    order=50,
    size=STEPS,
    metrics=(Metric("us", "us/tick"), Metric("ratio", f"x with {MANY:,} events queued instead of {FEW}")),
    peers={"loom": loom},
    warm_up=0,
    targets=(
        absolute("at most 5 us/tick", "us", at_most=5),
        Target(
            f"with {MANY:,} queued events at most 1.5x of with {FEW}",
            lambda medians: medians["loom"]["ratio"],
            at_most=1.5,
        ),
    ),
)

"""Laws of the run as a driver sees it: one ending, budgets, crashes between batches, and the same on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from strategies import CODES, CONFIGS, executions, items_of, programs, read_field, start, tick_for, walk

from loom.core.commands import CommandRunWorker, CommandStartTimer, TerminalCommand, WorkflowCommand
from loom.core.invariants import violations
from loom.core.reducer import replay
from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import TickCancelRun, TickContinueRun, TickResume, TickStepResult, WorkflowTick
from loom.steps.planner import StepsPlanner


def new_run(state: BrokerState | None = None) -> Run:
    return Run(StepsPlanner(), state, read_field, lambda _command: 10)


@given(programs(), st.sampled_from([None, 1, 25, 60]), st.sampled_from([None, 1, 3]))
def test_there_is_one_ending_and_it_is_the_last_to_leave(
    program: list[int], max_bytes: int | None, window: int | None
) -> None:
    run, left = new_run(), []
    run.feed(start(CONFIGS[len(program) % len(CONFIGS)]))
    for code in program:
        run.drain()
        left += run.flush(max_bytes, window, len(executions(run.state))).commands
        if run.is_over:
            break
        run.feed(tick_for(code, run.state))
    if not run.is_over:
        run.feed(TickCancelRun(at=run.state.at, force=True))
        run.drain()
    while not run.is_closed or run.has_commands:
        flushed = run.flush(max_bytes, window).commands
        assert flushed
        left += flushed
    assert [isinstance(c, TerminalCommand) for c in left] == [False] * (len(left) - 1) + [True]


@given(programs(), st.lists(st.integers(0, 4), min_size=1, max_size=10))
def test_batches_of_any_size_give_a_journal_that_replays_to_the_live_state(
    program: list[int], sizes: list[int]
) -> None:
    run, journal, snapshots = new_run(), [], []
    run.feed(start(CONFIGS[len(program) % len(CONFIGS)]))
    run.drain()
    for index, code in enumerate(program):
        run.feed(tick_for(code, run.state))
        if sizes[index % len(sizes)] == 0:
            run.drain()
            batch = run.flush()
            journal += batch.ticks
            snapshots.append((len(journal), run.state))
            assert violations(run.state) == []
    run.drain()
    journal += run.flush().ticks
    assert replay(journal, StepsPlanner(), None, read_field) == run.state
    for length, state in snapshots:
        assert replay(journal[length:], StepsPlanner(), state, read_field) == run.state


class CrashingRun(RuleBasedStateMachine):
    """A run whose process dies at any moment: what was committed stays, what was not is as if it had never been."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[WorkflowTick] = []
        self.saved = BrokerState()
        self.run = new_run()
        self.bodies: set[int] = set()

    @initialize(index=st.integers(0, len(CONFIGS) - 1))
    def begin(self, index: int) -> None:
        self.run.feed(start(CONFIGS[index]))
        self.run.drain()
        self.commit()

    @precondition(lambda self: not self.run.is_over)
    @rule(codes=st.lists(CODES, min_size=1, max_size=4))
    def happen(self, codes: list[int]) -> None:
        for code in codes:
            self.run.feed(tick_for(code, self.run.state))
            self.run.drain()

    @rule(max_bytes=st.sampled_from([None, 10, 40]))
    def commit(self, max_bytes: int | None = None) -> None:
        batch = self.run.flush(max_bytes)
        self.journal += batch.ticks
        self.saved = self.run.state
        self.act(batch.commands)

    def act(self, commands: list[WorkflowCommand]) -> None:
        for command in commands:
            if isinstance(command, CommandRunWorker):
                assert command.seq not in self.bodies
                self.bodies.add(command.seq)

    @rule(away=st.sampled_from([0.0, 3.0]))
    def crash(self, away: float) -> None:
        items, running = items_of(self.saved), self.saved.is_running
        self.run = new_run(self.saved)
        self.run.feed(TickResume(at=self.saved.at + away, away_s=away))
        self.run.drain()
        if running:
            assert items_of(self.run.state) == items
        self.commit()

    @precondition(lambda self: self.saved.is_running and not self.run.has_commands)
    @rule()
    def everything_that_executes_was_asked_for(self) -> None:
        assert {e.seq for e in executions(self.saved)} <= self.bodies

    @invariant()
    def journal_replays_to_what_was_saved(self) -> None:
        assert replay(self.journal, StepsPlanner(), None, read_field) == self.saved
        assert violations(self.run.state) == []
        assert self.run.is_blocked == self.run.state.is_blocked()
        assert self.run.fields.sequence == self.run.state.sequence


TestCrashingRun = CrashingRun.TestCase
TestCrashingRun.settings = settings(stateful_step_count=15)


@given(programs())
def test_no_work_is_begun_with_or_after_the_end(program: list[int]) -> None:
    run = new_run()
    run.feed(start(CONFIGS[len(program) % len(CONFIGS)]))
    for code in program:
        run.feed(tick_for(code, run.state))
        run.drain()
    commands = run.flush().commands
    if run.is_over:
        assert not [c for c in commands if isinstance(c, CommandRunWorker | CommandStartTimer)]


@given(programs(max_size=25))
def test_recovered_run_can_still_be_brought_to_its_end(program: list[int]) -> None:
    state = walk(program, nonsense=False)[-1].after
    if not state.is_running:
        return
    run = new_run(state)
    run.feed(TickResume(at=state.at), TickContinueRun(at=state.at))
    run.drain()
    for _ in range(500):
        bodies = executions(run.state)
        awake = [e for e in bodies if not e.waits_on] or bodies
        if run.is_over or not awake:
            break
        item = awake[0].item
        run.feed(TickStepResult(at=run.state.at, step=item.step, item=item.id, seq=awake[0].seq))
        run.drain()
    left = [w for w in run.state.workers.values() if w.queue or w.in_progress or w.ready]
    assert run.is_over or not left


_DIGEST = """
import hashlib, random, sys
sys.path[:0] = sys.argv[1:]
from strategies import walk
def plain(value):
    if hasattr(value, "__struct_fields__"):
        return (type(value).__name__, [plain(getattr(value, name)) for name in value.__struct_fields__])
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "items"):
        return sorted(((plain(key), plain(entry)) for key, entry in value.items()), key=repr)
    return value
digest = hashlib.sha256()
for seed in range(60):
    dice = random.Random(seed)
    for step in walk([dice.randrange(2**48) for _ in range(40)]):
        digest.update(repr(plain((step.after, step.commands))).encode())
sys.stdout.write(digest.hexdigest())
"""


def test_states_and_commands_do_not_depend_on_the_hash_seed() -> None:
    here, src = Path(__file__).parent, Path(__file__).parents[2] / "src"
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", _DIGEST, str(here), str(src)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in ("0", "1", "4242")
    ]
    digests = {job.communicate()[0] for job in jobs}
    assert [job.returncode for job in jobs] == [0, 0, 0]
    assert len(digests) == 1

"""Laws of the command queue: under any budget nothing is lost, nothing overtakes, and one command always passes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from strategies import A

from loom.core.commands import (
    CommandCancelTimer,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    WorkflowCommand,
)
from loom.core.records import EventRecord
from loom.core.run import CommandQueue
from loom.core.state import WorkItem

SIZES = (1, 7, 30, 400)
BUDGETS = st.one_of(st.none(), st.integers(0, 60))
WINDOWS = st.one_of(st.none(), st.integers(0, 3))


def size_of(command: WorkflowCommand) -> int:
    number = command.cursor if isinstance(command, CommandPublishEvent) else command.seq
    return SIZES[number % len(SIZES)]


def make(shape: int, seq: int) -> WorkflowCommand:
    if shape == 0:
        return CommandRunWorker(seq, "work", WorkItem(seq, "work", EventRecord(A)), 0, seq, 0.0)
    if shape == 1:
        return CommandStartTimer(seq, 1.0, "retry")
    if shape == 2:
        return CommandStartChild(seq, f"r:{seq}", "w")
    return CommandPublishEvent(seq, EventRecord(A))


WINDOWED = (CommandRunWorker, CommandStartChild)


@given(st.lists(st.integers(0, 3), max_size=30), BUDGETS, WINDOWS, st.integers(0, 3), st.sampled_from([0, 0, 5, 70]))
def test_flush_is_the_longest_prefix_that_fits(
    shapes: list[int], max_bytes: int | None, window: int | None, in_flight: int, used: int
) -> None:
    commands = [make(shape, number) for number, shape in enumerate(shapes)]
    queue = CommandQueue(size_of)
    queue.add(commands)
    taken, held = queue.flush(max_bytes, window, in_flight, used), queue.held
    rest = queue.flush()
    assert taken + rest == commands
    if max_bytes is not None and taken:
        assert (len(taken) == 1 and not used) or used + sum(map(size_of, taken)) <= max_bytes
    bodies = sum(isinstance(c, WINDOWED) for c in taken)
    if window is not None:
        assert bodies <= max(window, 1) - min(in_flight, max(window, 1))
    assert bool(held) == bool(rest)
    if held == "bytes":
        assert max_bytes is not None
        assert taken or used
        assert used + sum(map(size_of, [*taken, rest[0]])) > max_bytes
    elif held == "window":
        assert window is not None
        assert isinstance(rest[0], WINDOWED)
        assert in_flight + bodies >= window


@given(st.lists(st.integers(0, 3), max_size=20), BUDGETS, WINDOWS)
def test_everything_leaves_in_the_end(shapes: list[int], max_bytes: int | None, window: int | None) -> None:
    commands = [make(shape, number) for number, shape in enumerate(shapes)]
    queue, left = CommandQueue(size_of), []
    queue.add(commands)
    for _ in commands:
        flushed = queue.flush(max_bytes, window)
        assert flushed or not len(queue)
        left += flushed
    assert left == commands


class QueueMachine(RuleBasedStateMachine):
    """The queue beside a plain list that does the same."""

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.model = CommandQueue(size_of), []
        self.sent: list[WorkflowCommand] = []
        self.last: list[WorkflowCommand] = []
        self.answers: list[int] = []
        self.number = 0

    @rule(shapes=st.lists(st.sampled_from([0, 1, 3]), min_size=1, max_size=5))
    def add(self, shapes: list[int]) -> None:
        commands = [make(shape, self.number + offset) for offset, shape in enumerate(shapes)]
        self.number += len(shapes)
        self.queue.add(commands)
        self.model += commands

    @rule(seq=st.integers(0, 30))
    def cancel(self, seq: int) -> None:
        command = CommandCancelTimer(seq)
        starts = [c for c in self.model if isinstance(c, CommandStartTimer) and c.seq == seq]
        self.queue.add([command])
        self.model = [c for c in self.model if not starts or c not in (*starts, command)]
        if not starts:
            self.model.append(command)

    @rule(max_bytes=BUDGETS, window=WINDOWS)
    def flush(self, max_bytes: int | None, window: int | None) -> None:
        self.last = self.queue.flush(max_bytes, window)
        assert self.model[: len(self.last)] == self.last
        assert self.last or not self.model
        del self.model[: len(self.last)]
        self.sent += self.last

    @rule(keep=st.integers(0, 5))
    def push_back(self, keep: int) -> None:
        back, self.last = self.last[keep:], []
        self.queue.push_back(back)
        self.model[:0] = back

    @rule()
    def answer(self) -> None:
        self.answers.append(self.number)
        self.queue.answer(self.number)

    @rule()
    def take_answers(self) -> None:
        assert self.queue.take_answers() == self.answers
        self.answers = []

    @rule()
    def end(self) -> None:
        self.queue.drop_work()
        self.model = [c for c in self.model if not isinstance(c, CommandRunWorker | CommandStartTimer)]
        self.last = []

    @invariant()
    def length_is_the_models(self) -> None:
        assert len(self.queue) == len(self.model)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(stateful_step_count=20)

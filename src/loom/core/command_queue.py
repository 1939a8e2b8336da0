"""The command queue: collects outward commands in order and lets them go when the run is blocked.

The contract with a driver:

1. Commands keep their order. A flush is the longest prefix that fits the budget; the rest stays, in order, and leaves
   with the next flush. One command always passes, unless the budget was spent on others before.
2. The terminal command is built at the flush, after all ticks of the batch, and goes last: only when nothing is queued.
3. Answers (to queries, and that an update was accepted) use a lane of their own and never wait.
4. Cancelling something that is still queued removes both.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    WorkflowCommand,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

C = TypeVar("C")

_STARTS = (CommandStartTimer, CommandStartChild)
_CANCELS = (CommandCancelTimer, CommandCancelChild)
_CANCELLING = frozenset[type](_CANCELS)
_WINDOWED = frozenset[type]((CommandRunWorker, CommandStartChild))
"""What is under way for a while after it has left."""

Held = Literal["", "bytes", "window", "cancels"]
"""Why commands stay queued, if any do."""


class CommandQueue:
    """Outward commands on their way out."""

    __slots__ = ("_answers", "_queue", "_size_of", "held")

    def __init__(self, size_of: Callable[[WorkflowCommand], int] | None = None) -> None:
        self._queue: list[WorkflowCommand] = []
        self._answers: list[Any] = []
        self._size_of = size_of
        self.held: Held = ""
        """Why the last flush left something behind."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, commands: Sequence[WorkflowCommand]) -> None:
        """Queue commands. The cancelling of a timer or a child run whose start is still queued takes both away."""
        self._queue += commands
        if not _CANCELLING.isdisjoint(map(type, commands)):
            self._withdraw({command.seq for command in commands if isinstance(command, _CANCELS)})

    def _withdraw(self, cancelled: set[int]) -> None:
        unsent = {c.seq for c in self._queue if isinstance(c, _STARTS) and c.seq in cancelled}
        if unsent:
            self._queue = [c for c in self._queue if not (isinstance(c, _STARTS + _CANCELS) and c.seq in unsent)]

    def answer(self, reply: Any) -> None:
        """Let a reply leave with the next flush, before and regardless of everything queued."""
        self._answers.append(reply)

    def take_answers(self) -> list[Any]:
        """The replies so far."""
        answers, self._answers = self._answers, []
        return answers

    def drop_work(self) -> list[WorkflowCommand]:
        """Take out bodies that were not started and timers that were not armed: it is over, or goes on elsewhere."""
        work: list[WorkflowCommand] = [c for c in self._queue if isinstance(c, CommandRunWorker | CommandStartTimer)]
        if work:
            self._queue = [c for c in self._queue if not isinstance(c, CommandRunWorker | CommandStartTimer)]
        return work

    def take_published(self) -> list[CommandPublishEvent]:
        """Take out the events for the stream, for a driver that has it beside the queue: so they wait for nothing."""
        published = [c for c in self._queue if type(c) is CommandPublishEvent]
        if published:
            self._queue = [c for c in self._queue if type(c) is not CommandPublishEvent]
        return published

    def queued_children(self) -> list[CommandStartChild]:
        """List the starts of child runs that have not left."""
        return [c for c in self._queue if isinstance(c, CommandStartChild)]

    def flush(
        self,
        max_bytes: int | None = None,
        max_in_flight: int | None = None,
        in_flight: int = 0,
        used: int = 0,
        max_cancels: int | None = None,
    ) -> list[WorkflowCommand]:
        """The longest prefix within the budget: so many bytes, and so many bodies and child runs under way at a time.

        `used` of the bytes were spent before. `max_cancels` is how many child runs may be cancelled by this flush;
        None is no limit.
        """
        queue, self.held = self._queue, ""
        if max_bytes is None and max_in_flight is None and max_cancels is None:
            self._queue = []
            return queue
        fitting = 0
        for command in queue:
            if max_in_flight is not None and type(command) in _WINDOWED:
                if in_flight >= max(max_in_flight, 1):
                    self.held = "window"
                    break
                in_flight += 1
            if max_cancels is not None and type(command) is CommandCancelChild:
                if not max_cancels:
                    self.held = "cancels"
                    break
                max_cancels -= 1
            if max_bytes is not None:
                size = self._measure(command)
                if size and used and used + size > max_bytes:  # what weighs nothing always fits
                    self.held = "bytes"
                    break
                used += size
            fitting += 1
        self._queue = queue[fitting:]
        return queue[:fitting]

    def push_back(self, commands: list[WorkflowCommand]) -> None:
        """Return commands that could not be sent: they are first in the next flush, in the same order."""
        self._queue = [*commands, *self._queue]

    def _measure(self, command: WorkflowCommand) -> int:
        if self._size_of is None:
            raise ValueError("A byte budget needs a CommandQueue with a way to measure commands.")
        return self._size_of(command)

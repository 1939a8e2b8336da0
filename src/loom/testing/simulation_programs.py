"""What a simulation runs: a program says which workflows there are, who answers them, and what must come out.

May import loom.steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from loom.steps.events import Event, StartEvent
    from loom.steps.workflow import Workflow


class Ended(NamedTuple):
    """A run that is over, for whoever checks it."""

    run_id: str
    status: str
    result: Any
    """What it ended with, if it completed."""
    events: list[Event]
    """Its whole stream, the engine's own reports among them."""
    retried: bool
    """Whether it had failed before, and was let go on."""


class Program(Protocol):
    """What is simulated."""

    def workflows(self) -> dict[str, Workflow]:
        """The workflows by name, made anew for every worker that starts."""
        ...

    def start(self, number: int) -> tuple[str, dict[str, Any] | StartEvent]:
        """Which workflow the run of a number is of, and its input."""
        ...

    def answer(self, run_id: str, event: Event) -> Event | None:
        """What somebody sends to a run that has published an event, if anything."""
        ...

    def noise(self, chance: Random) -> Event | None:
        """An event that comes by itself, if there are such."""
        ...

    def heal(self, run_id: str) -> bool:
        """A run has failed: put right what it failed for, so that it can be retried; False to leave it so."""
        ...

    def check(self, ended: Ended) -> Iterator[str]:
        """What is wrong with a run that has ended."""
        ...


class OwnProgram:
    """A user's workflow as a program."""

    def __init__(
        self,
        make: Callable[[], Workflow],
        inputs: dict[str, Any] | Callable[[int], dict[str, Any] | StartEvent] | None,
        answer: Callable[[Event], Event | None] | None,
        check: Callable[[Ended], None] | None,
    ) -> None:
        self._make = make
        self._inputs = inputs
        self._answer = answer
        self._check = check

    def workflows(self) -> dict[str, Workflow]:
        """The one workflow, made anew."""
        return {"simulated": self._make()}

    def start(self, number: int) -> tuple[str, dict[str, Any] | StartEvent]:
        """The same input for all, or one by the number."""
        inputs = self._inputs
        return "simulated", inputs(number) if callable(inputs) else dict(inputs or {})

    def answer(self, run_id: str, event: Event) -> Event | None:
        """What the user's function says."""
        del run_id
        return self._answer(event) if self._answer is not None else None

    def noise(self, chance: Random) -> Event | None:
        """Nothing comes by itself."""
        del chance
        return None

    def heal(self, run_id: str) -> bool:
        """A failed run is a result like others."""
        del run_id
        return False

    def check(self, ended: Ended) -> Iterator[str]:
        """What the user's function asserts."""
        if self._check is not None:
            try:
                self._check(ended)
            except AssertionError as error:
                yield f"check: {error}"

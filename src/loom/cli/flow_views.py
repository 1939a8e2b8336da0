"""How `loom run` shows a flow while it runs: line by line, or live on a terminal. May import loom.flows and rich."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from loom.api.lengths import span
from loom.cli.flow_words import live_words, repetition_path, tree
from loom.cli.shown import clean, print_line
from loom.effects.flow_events import ActionEvent, LoopIterationEvent
from loom.flows.graph import type_words
from loom.flows.progress import action_progress, loop_progress
from loom.flows.state import FlowPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from rich.text import Text

    from loom.flows.program import Program
    from loom.steps.events import Event


class View(Protocol):
    """Shows what happens to a run, for as long as it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, event: Event) -> None:
        """Something has happened."""
        ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: Event) -> None:
        """Nothing."""


class Lines(Silence):
    """One line for every action that ends or waits and for every iteration, for those who read no terminal."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @override
    def show(self, event: Event) -> None:
        """Print it, if it is for people."""
        match event:
            case ActionEvent(status="Running"):
                pass
            case ActionEvent():
                print_line(action_words(self._program, event))
            case LoopIterationEvent():
                number = f"{event.iteration + 1}/{event.max_iterations}"
                name = event.path.rpartition("[")[0] or event.action_name
                print_line(f"Iteration  {name} {number} {event.status}, {span(event.duration)}")
            case _:
                other = event_words(event)
                if other:
                    print_line(other)
        sys.stdout.flush()


def action_words(program: Program, event: ActionEvent) -> str:
    """An action that has ended or waits, in one line."""
    path = repetition_path(program, event.name, event.repetition)
    words = f"{event.status:<10} {path} ({type_words(event.type)})"
    if event.attempt:
        words = f"{'Retrying':<10} {path} ({type_words(event.type)}), attempt {event.attempt + 1}"
    elif event.status not in ("Waiting", "Skipped"):
        words += f", {span(event.duration)}"
    return f"{words}: {event.message}" if event.message else words


def event_words(event: Event) -> str:
    """Other events on a flow's stream that people may want to see: somebody is asked, or an answer was refused."""
    from loom.steps.events import AnswerRefusedEvent, InputRequiredEvent, InternalDispatchEvent

    if isinstance(event, AnswerRefusedEvent):
        return f"{'Refused':<10} an answer to {event.action or event.step}: {event.reason}"
    if not isinstance(event, InputRequiredEvent) or isinstance(event, InternalDispatchEvent):
        return ""
    asked = {name: event._data.get(name) for name in ("action", "event", "prompt")}
    words = f"{'Asked':<10} {asked['action'] or type(event).__name__}"
    words += f" waits for {asked['event']}" if asked["event"] else ""
    return f"{words}: {asked['prompt']}" if asked["prompt"] else words


_MARKS = {"Succeeded": ("✓", "+", "green"), "Skipped": ("-", "-", "dim"), "Cancelled": ("-", "-", "yellow")}
_BAD_MARK = ("✗", "x", "red")


class Live:
    """The top level action by action, and below it what is under way, drawn anew several times a second."""

    def __init__(self, program: Program, look: Callable[[], tuple[Program, Any] | None]) -> None:
        """`look` gives the run's own version of the program and its plan, while it is in memory."""
        from rich.console import Console
        from rich.live import Live as Region

        self._program = program
        self._look = look
        self._last: tuple[Program, FlowPlan] | None = None
        self._console = Console(file=sys.stdout, highlight=False)
        self._is_utf8 = self._console.encoding.lower().startswith("utf")
        self._region = Region(console=self._console, get_renderable=self._drawn, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._region.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._region.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        """Leave a line for what has ended at the top level or has failed anywhere; loops count in the region below."""
        from rich.text import Text

        if not isinstance(event, ActionEvent):
            other = event_words(event)
            if other:
                self._console.print(Text(clean(other)))
            return
        is_bad = event.status in ("Failed", "TimedOut")
        if event.status in ("Running", "Waiting") or (event.repetition and not is_bad):
            return
        fancy, simple, style = _MARKS.get(event.status, _BAD_MARK)
        path = repetition_path(self._program, event.name, event.repetition)
        words = f"{path} ({type_words(event.type)})"
        words += "  skipped" if event.status == "Skipped" else f"  {span(event.duration)}"
        words += f"  {event.status}: {event.message or event.code}" if is_bad else ""
        self._console.print(Text.assemble((fancy if self._is_utf8 else simple, style), f" {clean(words)}"))

    def _drawn(self) -> Text:
        """What is under way now. A run that was released stays as it was last seen."""
        from rich.text import Text

        found = self._look()
        if found is not None and isinstance(found[1], FlowPlan):
            self._last = found
        if self._last is None:
            return Text("")
        (program, plan), now = self._last, time.time()
        entries = tree(loop_progress(program, plan, now), action_progress(program, plan))
        mark = "⟳" if self._is_utf8 else "*"
        lines = [f"{'  ' * depth}{mark} {live_words(entry, now)}" for depth, entry in entries]
        shown = lines[: max(1, self._console.height - 2)]
        return Text("\n".join(clean(line) for line in shown), style="cyan", overflow="ellipsis", no_wrap=True)

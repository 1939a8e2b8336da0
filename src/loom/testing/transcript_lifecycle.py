"""The verbs of transcripts that pause, park and retry a run, record results and start child runs.

May import loom.core and the words of scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.records import Failure
from loom.core.ticks import (
    TickChildEnded,
    TickContinueRun,
    TickParkRun,
    TickPauseRun,
    TickRecordResult,
    TickRetryRun,
    TickStartChild,
)
from loom.testing.transcript_script import ScriptError, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.testing.transcript_script import Line
    from loom.testing.transcript_session import Session


def _once(session: Session, line: Line) -> None:
    """A body that finds its result recorded tells the run nothing, but the effect has its number."""
    body, name = session.body(line.word(0, "who")), line.word(1, "a name")
    source = body.source(line.number("ordinal"))
    if name in body.command.records:
        session.out.append(f"{line.words[0]} finds {name}={body.command.records[name]}")
        return
    value = value_of(line.word(2, "a value"))
    session.feed(TickRecordResult(at=session.now, source=source, name=name, value=value))


def _child(session: Session, line: Line) -> None:
    body = session.body(line.word(0, "who"))
    session.feed(
        TickStartChild(
            at=session.now,
            source=body.source(line.number("ordinal")),
            occurrence=body.occurrence("a child run"),
            workflow=line.word(1, "a workflow"),
            start=line.fields(),
            suspends="child" not in line.words[2:],
        )
    )


def _child_ended(session: Session, line: Line) -> None:
    number, rest = int(line.word(0, "a number")), line.words[2:]
    event = failure = None
    match line.word(1, "how it ended"):
        case "completed" as status:
            event = session.kinds.event(rest[0] if rest else "StopEvent", line.fields())
        case "failed" as status:
            failure = Failure(rest[0] if rest else "Error", " ".join(rest[1:]))
        case "cancelled" | "timed_out" as status:
            pass
        case other:
            raise ScriptError(f"no run ends {other}")
    session.feed(TickChildEnded(at=session.now, child=number, status=status, event=event, failure=failure))


VERBS: dict[str, Callable[[Session, Line], None]] = {
    "pause": lambda session, _line: session.feed(TickPauseRun(at=session.now)),
    "continue": lambda session, _line: session.feed(TickContinueRun(at=session.now)),
    "park": lambda session, line: session.feed(TickParkRun(at=session.now, reason=" ".join(line.words))),
    "retry": lambda session, _line: session.feed(TickRetryRun(at=session.now)),
    "once": _once,
    "child": _child,
    "childended": _child_ended,
}

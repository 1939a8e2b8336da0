"""Readable transcripts of runs: command lines, a rule, and what happened.

    # why this transcript exists
    define plan StartEvent
    start order-17
    ----
    1 @0s    TickStartRun order-17 StartEvent    -> CommandRunWorker plan#1 attempt=1 seq=1

`run_transcript` executes the commands of a text and returns the text with what really happened. So a test compares the
two, and a rewrite is one assignment. Every block is also checked against the invariants and by a replay. `VERBS` is the
table of verbs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.body_effects import EMPTY_BUFFER
from loom.core.records import Failure
from loom.core.state import CleanupSpec, StepLimits
from loom.core.ticks import (
    CollectCall,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickRetryRun,
    TickSkip,
    TickSleep,
    TickStartChild,
    TickStartRun,
    TickStepResult,
)
from loom.testing.transcript_session import (
    Line,
    ScriptError,
    TranscriptBody,
    TranscriptSession,
    duration,
    parse,
    value_of,
)
from loom.testing.transcript_text import published_text, state_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from loom.core.records import EventRecord


RULE = "----"


def run_transcript(text: str) -> str:
    """Execute a transcript's commands; return the transcript with what really happened."""
    session = TranscriptSession()
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return "\n\n".join("\n".join(_run_block(session, block)) for block in blocks) + "\n"


def _run_block(session: TranscriptSession, lines: list[str]) -> list[str]:
    script = lines[: lines.index(RULE)] if RULE in lines else lines
    commands = [line for line in script if line.strip() and not line.startswith("#")]
    if not commands:
        return script
    session.out = []
    for line in commands:
        for command in line.split(";"):
            execute(session, command.strip())
    session.check()
    return [*script, RULE, *(session.out or ["ok"])]


def execute(session: TranscriptSession, command: str) -> None:
    """Execute one command. One that makes no sense is answered with an error and changes nothing."""
    try:
        line = parse(command)
        verb = VERBS.get(line.verb)
        if verb is None:
            raise ScriptError(f"there is no verb {line.verb!r}")
        at = line.seconds("at")
        if at is not None:
            session.now = at
        verb(session, line)
    except ScriptError as error:
        session.out.append(f"error: {error}")


def _define(session: TranscriptSession, line: Line) -> None:
    what = line.word(0, "something to define")
    if what == "workflow":
        timeout, keep = line.seconds("timeout"), line.number("keep")
        session.settings |= {"timeout_s": timeout} if timeout is not None else {}
        session.settings |= {"keep_unclaimed": keep} if keep is not None else {}
        session.max_depth = line.number("depth")
        if "cleanup" in line.options:
            session.settings["program"] = StepLimits(
                cleanup=CleanupSpec(line.options["cleanup"], line.seconds("bound") or 60.0)
            )
    elif what == "event":
        session.kinds.define(line.word(1, "a type"), line.word(2, "its base"))
    else:
        session.steps.append(session.kinds.step(line))


def _start(session: TranscriptSession, line: Line) -> None:
    run_id = line.word(0, "a run id")
    first = session.kinds.event("StartEvent", line.fields()) if "quiet" not in line.words else None
    session.feed(TickStartRun(at=session.now, run_id=run_id, config=session.config, event=first))


def _event(session: TranscriptSession, line: Line) -> None:
    by, options = line.options.get("by"), line.options
    source = session.body(by).source(line.number("ordinal")) if by is not None else None
    event = session.kinds.event(line.word(0, "a type"), line.fields())
    session.feed(
        TickAddEvent(
            at=session.now,
            event=event,
            step=options.get("to"),
            waiter_id=options.get("waiter"),
            event_id=options.get("id"),
            source=source,
            accepted="accepted" in line.words,
        )
    )


def _publish(session: TranscriptSession, line: Line) -> None:
    source = session.body(line.word(0, "who")).source(line.number("ordinal"))
    event = session.kinds.event(line.word(1, "a type"), line.fields())
    session.feed(TickPublishEvent(at=session.now, event=event, source=source))


def _result(session: TranscriptSession, line: Line) -> dict[str, Any]:
    body = session.end_body(line.word(0, "who"))
    item, seq = body.command.item, line.number("seq")
    return {
        "at": session.now,
        "step": item.step,
        "item": item.id,
        "seq": body.command.seq if seq is None else seq,
        "collects": tuple(body.collects),
    }


def _finish(session: TranscriptSession, line: Line) -> None:
    returned: tuple[EventRecord, ...] = ()
    fans_out = len(line.words) > 1 and line.words[1].startswith("[")
    if fans_out:
        members = " ".join(line.words[1:]).strip("[]").split()
        returned = tuple(session.kinds.event(member) for member in members)
    elif len(line.words) > 1:
        returned = (session.kinds.event(line.words[1], line.fields()),)
    session.feed(TickStepResult(**_result(session, line), returned=returned, fanned_out=fans_out))


def _fail(session: TranscriptSession, line: Line) -> None:
    failure = Failure(line.word(1, "an error"), " ".join(line.words[2:]))
    session.feed(TickStepResult(**_result(session, line), failure=failure, retry_delay_s=line.seconds("retry")))


def _wait(session: TranscriptSession, line: Line) -> None:
    body = session.body(line.word(0, "who"))
    event_type = session.kinds.of(line.word(1, "a type")).name
    waiter_id = line.options.get("id", line.words[1])
    ask = line.options.get("ask")
    session.feed(
        TickAwaitEvent(
            at=session.now,
            source=body.source(line.number("ordinal")),
            waiter_id=waiter_id,
            occurrence=body.occurrence(waiter_id),
            event_type=event_type,
            requirements=tuple(line.fields().items()),
            timeout_s=line.seconds("timeout"),
            waiter_event=session.kinds.event(ask) if ask is not None else None,
            suspends="child" not in line.words,
        )
    )


def _sleep(session: TranscriptSession, line: Line) -> None:
    body = session.body(line.word(0, "who"))
    delay, suspends = duration(line.word(1, "how long")), "child" not in line.words
    occurrence, source = body.occurrence("a sleep"), body.source(line.number("ordinal"))
    session.feed(TickSleep(at=session.now, source=source, occurrence=occurrence, delay_s=delay, suspends=suspends))


def _end_wait(session: TranscriptSession, line: Line) -> None:
    body = session.body(line.word(0, "who"))
    item, wanted = body.command.item, line.words[1] if len(line.words) > 1 else None
    worker = session.state.workers[item.step]
    waiters = worker.collected_waiters.values()
    keys = [w.key for w in waiters if w.item == item.id and wanted in (None, w.waiter_id)]
    if item.id in worker.suspended and wanted is None:
        keys = [worker.suspended[item.id].waits_on]
    if not keys:
        raise ScriptError(f"{line.words[0]} waits for no such thing")
    session.feed(TickEndWait(at=session.now, step=item.step, item=item.id, seq=body.command.seq, key=keys[0]))


def _leave(session: TranscriptSession, line: Line) -> None:
    """Let a body leave its process with the named waits, or with all open waits of its item."""
    body = session.end_body(line.word(0, "who"))
    item = body.command.item
    pending = tuple(line.words[1:]) or tuple(sorted(session.state.waiting.open.get(item.id, ())))
    session.feed(TickLeaveStep(at=session.now, step=item.step, item=item.id, seq=body.command.seq, pending=pending))


def _collect(session: TranscriptSession, line: Line) -> None:
    body = session.body(line.word(0, "who"))
    name, event = line.word(1, "a buffer"), session.kinds.event(line.word(2, "a type"), line.fields())
    needed = session.kinds.counts(line.options.get("needs", ""))
    reserved = body.command.item.reserved.get(name)
    if reserved is not None:
        call = CollectCall(name, event, needed, True, body.ordinal, reserved=True)
        session.out.append(f"{line.words[0]} gets the {len(reserved)} that an earlier attempt had collected")
    else:
        call = _collected(session, body, name, event, needed)
    body.collects.append(call)


def _collected(
    session: TranscriptSession, body: TranscriptBody, name: str, event: EventRecord, needed: tuple[tuple[str, int], ...]
) -> CollectCall:
    """Answer a body's call from the snapshot that it was started with."""
    buffer = body.view.get(name, EMPTY_BUFFER)
    found = buffer.verdict(event.kind.name, needed)
    if found != "drop":
        body.view = body.view.set(name, buffer.emptied() if found == "take" else buffer.with_event(event))
    answer = f"gets {len(buffer.events) + 1}" if found == "take" else "gets nothing yet"
    session.out.append(f"{body.command.step}#{body.command.item.id} {answer}")
    return CollectCall(name, event, needed, found == "take", body.ordinal, buffer.generation)


def _edit(session: TranscriptSession, line: Line) -> None:
    source = session.body(line.words[0]).source(line.number("ordinal")) if line.words else None
    removed = tuple(line.options["remove"].split(",")) if "remove" in line.options else ()
    version = session.state.store_version
    session.feed(
        TickEditStore(at=session.now, base_version=version, changed=line.fields(), removed=removed, source=source)
    )


def _cancel(session: TranscriptSession, line: Line) -> None:
    session.feed(TickCancelRun(at=session.now, reason=" ".join(line.words), force="force" in line.options))


def _query(session: TranscriptSession, _line: Line) -> None:
    session.out.append(f"answer: {session.query()}")


_LIMITS = {"bytes": "max_bytes", "in_flight": "max_in_flight", "sends": "sends"}


def _limits(line: Line) -> dict[str, int]:
    return {_LIMITS[name]: int(value) for name, value in line.options.items() if name in _LIMITS}


def _flush(session: TranscriptSession, line: Line) -> None:
    session.flush(**(session.budget | _limits(line)))


def _budget(session: TranscriptSession, line: Line) -> None:
    """Limit what leaves at once; `hold` lets nothing leave before `flush`; without words, lift all limits."""
    session.held = "hold" in line.words
    session.budget = _limits(line)


def _state(session: TranscriptSession, _line: Line) -> None:
    session.out += state_lines(session.state)


def _stream(session: TranscriptSession, line: Line) -> None:
    first = int(line.words[0]) if line.words else 0
    session.out += [f"{n} {published_text(e)}" for n, e in enumerate(session.stream) if n >= first]


def _once(session: TranscriptSession, line: Line) -> None:
    """Record a result. A body that finds it recorded feeds nothing, but the effect still has its number."""
    body, name = session.body(line.word(0, "who")), line.word(1, "a name")
    source = body.source(line.number("ordinal"))
    if name in body.command.records:
        session.out.append(f"{line.words[0]} finds {name}={body.command.records[name]}")
        return
    value = value_of(line.word(2, "a value"))
    session.feed(TickRecordResult(at=session.now, source=source, name=name, value=value))


def _child(session: TranscriptSession, line: Line) -> None:
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


def _child_ended(session: TranscriptSession, line: Line) -> None:
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


def _skip(session: TranscriptSession, line: Line) -> None:
    session.feed(TickSkip(at=session.now, timer=line.number("timer")))


VERBS: dict[str, Callable[[TranscriptSession, Line], None]] = {
    "define": _define,
    "start": _start,
    "event": _event,
    "publish": _publish,
    "finish": _finish,
    "fail": _fail,
    "wait": _wait,
    "sleep": _sleep,
    "endwait": _end_wait,
    "leave": _leave,
    "collect": _collect,
    "edit": _edit,
    "advance": lambda session, line: session.advance(duration(line.word(0, "how long"))),
    "crash": lambda session, _line: session.crash(),
    "release": lambda session, _line: session.release(),
    "resume": lambda session, line: session.resume(line.number("depth")),
    "cancel": _cancel,
    "query": _query,
    "flush": _flush,
    "budget": _budget,
    "state": _state,
    "stream": _stream,
    "pause": lambda session, _line: session.feed(TickPauseRun(at=session.now)),
    "continue": lambda session, line: session.feed(TickContinueRun(at=session.now, max_depth=line.number("depth"))),
    "skip": _skip,
    "park": lambda session, line: session.feed(TickParkRun(at=session.now, reason=" ".join(line.words))),
    "retry": lambda session, _line: session.feed(TickRetryRun(at=session.now)),
    "once": _once,
    "child": _child,
    "childended": _child_ended,
}

"""Logs for people and programs: what each line belongs to, and the lines on the life of runs.

Each line names the run, the step and the request that it belongs to. Lines that libraries log while a body runs carry
its run too: the execution is found in the context.

`LifecycleLog` writes one line each for a start, an end, a failed attempt, idleness and recovery. It does so after the
commit, so that nothing is logged twice or too early, and works nothing out for a level that is off.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from loom.api.attempts import numbered, place_of
from loom.api.times import moment
from loom.core.records import IdleReport
from loom.core.ticks import TickResume, TickRetryRun, TickStartRun, TickStepResult
from loom.effects.redaction import masked, without_secrets
from loom.flows.calls import ActionCall, ActionOutcome
from loom.steps.ports import current_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

    from loom.core.records import Published
    from loom.core.state import Outcome, RunFields
    from loom.effects.execution import StepExecution
    from loom.flows.program import Program

_FIELDS = ("run_id", "workflow", "step", "request_id")

_LINE_ENDS = {ord(sign): sign.encode("unicode_escape").decode() for sign in "\n\r\v\f\x1b\x85\u2028\u2029"}


class OpenRequest:
    """A request that is being answered."""

    __slots__ = ("id", "is_open")

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.is_open = True

    def close(self) -> None:
        """Mark it as answered. Tasks that it began may live longer; what they log is not of this request."""
        self.is_open = False


_request: ContextVar[OpenRequest | None] = ContextVar("loom_request", default=None)


def open_request(request_id: str) -> OpenRequest:
    """From now on lines of this context belong to a request, until it is closed."""
    request = OpenRequest(request_id)
    _request.set(request)
    return request


def about(run_id: str) -> dict[str, str]:
    """The `extra` of a line that is about a run."""
    return {"run_id": run_id}


def about_execution(execution: StepExecution) -> dict[str, str]:
    """The `extra` of a line that is about a body: its run, its workflow, and its step or action."""
    command, host = execution.command, execution.host
    body = command.item.event.body
    step = body.action if isinstance(body, ActionCall) else command.step
    return {"run_id": host.run_id, "workflow": host.workflow_name, "step": step}


class LogContext(logging.Filter):
    """Adds run, step and request to each record. It is a filter of a handler, so it sees the records of all loggers."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Add what the record does not say itself."""
        mark, request = current_body.get(), _request.get()
        fields = record.__dict__
        if mark is not None:
            for name, value in mark.names.items():
                fields.setdefault(name, value)
        elif request is not None and request.is_open:
            fields.setdefault("request_id", request.id)
        return True


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and as far as they are known the run and the request."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """A record as one line."""
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        line |= {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        if told := _exception(self, record):
            line["exception"] = told
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A line for people, followed by the exception if there was one."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """A record as a line. Text from a caller cannot begin another line."""
        known = [f"{name}={value}" for name in _FIELDS if (value := getattr(record, name, None)) is not None]
        place = f" [{' '.join(known)}]" if known else ""
        text = f"{_time(record.created)} {record.levelname} {record.name}: {record.getMessage()}{place}"
        # Most texts have no such sign, and to see that costs less than to translate them.
        text = without_secrets(text if text.isprintable() else text.translate(_LINE_ENDS))
        told = _exception(self, record)
        return f"{text}\n{told}" if told else text


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info and not record.stack_info:
        return ""
    told = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        told.append(formatter.formatStack(record.stack_info))
    return without_secrets("\n".join(told))


def configure_logs(
    format: Literal["text", "json"] = "text",  # noqa: A002 - it is what it is called on the command line
    level: int | str = "INFO",
    stream: TextIO | None = None,
) -> logging.Handler:
    """Let the program log like this, to stderr if no stream is given. Calling it again replaces what it did before."""
    if format not in ("text", "json"):
        raise ValueError(f"The format of logs is text or json, not {format!r}.")
    handler = _Configured(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    handler.addFilter(LogContext())
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, _Configured)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    return handler


class _Configured(logging.StreamHandler[Any]):
    """The handler that `configure_logs` has set."""


# -- the life of runs -------------------------------------------------------------------------------------------------


_log = logging.getLogger("loom.run")
_MAX_ERROR = 500
_OWN = "loom."
"""The names of workflows that the engine uses for itself begin so."""


def has_lifecycle_news(ticks: Sequence[Any]) -> bool:
    """Say whether a batch with these ticks may have something to tell, by the levels that are on."""
    if not ticks or _log.isEnabledFor(logging.INFO):
        return bool(ticks)
    for tick in ticks:  # most are results that tell of no failure: that is seen at a glance
        if type(tick) is TickStepResult:
            returned = tick.returned
            is_plain = type(returned[0].body) is not ActionOutcome if returned else tick.failure is None
            if not is_plain and _has_failed(tick):
                return _log.isEnabledFor(logging.WARNING)
    return False


class LifecycleLog:
    """Writes the lines of one run. It is made when there is something to tell: an idle run shall take little room."""

    __slots__ = ("_program", "_run_id", "_workflow")

    def __init__(self, run_id: str, workflow: str, program: Program | None = None) -> None:
        self._run_id = run_id
        self._workflow = workflow
        self._program = program

    def committed(self, ticks: Sequence[Any], published: Iterable[Published], now: RunFields) -> None:
        """A batch is committed: its ticks, what they put on the stream, and the run after it."""
        tells_all = _log.isEnabledFor(logging.INFO)
        for tick in ticks:
            if _has_failed(tick):
                self._failed(tick, now)
            elif tells_all and type(tick) in _BEGINNINGS:
                self._info(_BEGINNINGS[type(tick)])
        if not tells_all:
            return
        for report in published:
            if type(report) is IdleReport:
                waiters = dict.fromkeys(waiter.event_type.rpartition(".")[2] for waiter in report.waiters)
                self._info("became idle, waiting for %s", ", ".join(waiters) or "nothing")

    def ended(self, outcome: Outcome) -> None:
        """The run is over. One that is parked is not: it waits for other code."""
        if outcome.status != "parked" and _log.isEnabledFor(logging.INFO):
            self._info("ended: %s", outcome.status.replace("_", " "))

    def parked(self, reason: str) -> None:
        """The run cannot go on with the code of this process."""
        _log.warning("Run %s is parked: %s", self._run_id, reason, extra=self._extra())

    def _failed(self, tick: TickStepResult, now: RunFields) -> None:
        """An attempt has failed: which of how many, with what, where, and when the next one is."""
        if tick.failure is not None:
            attempt, most, text = tick.attempt or 1, tick.max_attempts, tick.failure.traceback
            error = f"{tick.failure.type.removeprefix('builtins.')}: {tick.failure.message}".removesuffix(": ")
            due = None if tick.retry_delay_s is None else tick.at + tick.retry_delay_s
        else:
            outcome = tick.returned[0].body
            attempt, text = outcome.attempt or 1, outcome.traceback
            error = f"{outcome.code}: {outcome.message}" if outcome.code not in outcome.message else outcome.message
            most, due = self._next_attempt(tick.step, attempt, now)
        place = place_of(text) if text else None
        where = f" ({place.file}, line {place.line}, in {place.function})" if place is not None else ""
        after = "no other attempt follows" if due is None else f"the next attempt is at {_due_time(due)}"
        _log.warning(
            "Run %s of %s: attempt %s at %s failed: %s%s; %s",
            self._run_id,
            self._workflow,
            numbered(attempt, most),
            tick.step,
            masked(" ".join(error.split()), _MAX_ERROR),
            where,
            after,
            extra=self._extra() | {"step": tick.step},
        )

    def _next_attempt(self, action: str, attempt: int, now: RunFields) -> tuple[int | None, float | None]:
        """Tell how many attempts an action may have, and when the next one is: the flow has decided that by now."""
        from loom.flows.progress import action_progress, max_attempts

        assert self._program is not None
        node = next((node for node in self._program.nodes if node.name == action), None)
        most = max_attempts(node) if node is not None else None
        under_way = action_progress(self._program, now.plan) if now.outcome is None else []
        for found in under_way:
            if (found.name, found.status, found.attempt) == (action, "retrying", attempt + 1):
                return most, found.due
        return most, None

    def _info(self, message: str, *arguments: object) -> None:
        level = _level(self._workflow)
        _log.log(level, f"Run %s of %s {message}", self._run_id, self._workflow, *arguments, extra=self._extra())

    def _extra(self) -> dict[str, str]:
        return {"run_id": self._run_id, "workflow": self._workflow}


def log_release(run_id: str, workflow: str) -> None:
    """Tell that an idle or sleeping run has left memory; it is in the store."""
    if _log.isEnabledFor(level := _level(workflow)):
        extra = {"run_id": run_id, "workflow": workflow}
        _log.log(level, "Run %s of %s was released from memory", run_id, workflow, extra=extra)


def log_stuck(run_id: str, workflow: str, reason: str | None) -> None:
    """Tell that a run is idle and waits for nothing."""
    extra = {"run_id": run_id, "workflow": workflow}
    _log.warning("Run %s of %s is stuck: %s", run_id, workflow, reason, extra=extra)


_BEGINNINGS: dict[type, str] = {TickStartRun: "started", TickResume: "was recovered", TickRetryRun: "is retried"}


def _has_failed(tick: Any) -> bool:
    """Whether a tick records a failed attempt, at a step or at an action of a flow."""
    if type(tick) is not TickStepResult:
        return False
    if not tick.returned:
        return tick.failure is not None
    body = tick.returned[0].body
    return type(body) is ActionOutcome and body.status in ("Failed", "TimedOut")


def _level(workflow: str) -> int:
    """Choose the level of what is no failure: runs of Loom's own, such as schedules and notices, come and go."""
    return logging.DEBUG if workflow.startswith(_OWN) else logging.INFO


def _due_time(seconds: float) -> str:
    return moment(seconds).isoformat(timespec="seconds").replace("+00:00", "Z")

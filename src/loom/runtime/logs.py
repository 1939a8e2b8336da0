"""Logs for people and for programs, in which each line tells the run, the step and the request that it belongs to.

Whatever is logged while a body runs carries its run, also what libraries log that know nothing of runs: the execution
is found in the context. May import loom.effects, loom.flows and loom.steps.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from loom.effects.execution import StepExecution
from loom.effects.redaction import without_secrets
from loom.flows.calls import ActionCall
from loom.steps.ports import current_execution

if TYPE_CHECKING:
    from typing import TextIO

_FIELDS = ("run_id", "workflow", "step", "request_id")

_LINE_ENDS = {ord(sign): sign.encode("unicode_escape").decode() for sign in "\n\r\v\f\x1b\x85\u2028\u2029"}


class OpenRequest:
    """A request that is being answered."""

    __slots__ = ("id", "is_open")

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.is_open = True

    def close(self) -> None:
        """It is answered. Tasks that were begun meanwhile may live longer; what they log is not of this request."""
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
    """Tells each record what it belongs to. It belongs to a handler, so that it sees the records of all loggers."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Add what the record does not say itself."""
        execution, request = current_execution.get(), _request.get()
        fields = record.__dict__
        if isinstance(execution, StepExecution):
            for name, value in about_execution(execution).items():
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
    """A line for people; behind it, if there was one, the exception."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        """A record as a line. What somebody sent cannot begin another one."""
        known = [f"{name}={value}" for name in _FIELDS if (value := getattr(record, name, None)) is not None]
        place = f" [{' '.join(known)}]" if known else ""
        text = f"{_time(record.created)} {record.levelname} {record.name}: {record.getMessage()}{place}"
        lines = [without_secrets(text.translate(_LINE_ENDS))]
        if told := _exception(self, record):
            lines.append(told)
        return "\n".join(lines)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
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

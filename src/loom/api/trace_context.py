"""The caller's span, as one header: `traceparent` of the W3C's Trace Context.

A start and an event keep it, so that the run can name its caller in its own trace, in whatever process and however
late. The package of OpenTelemetry is never imported here: a program that has a span has imported it.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.steps.ports import current_body

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_LONGEST = 512

_of_request: ContextVar[str | None] = ContextVar("loom_caller_of_request", default=None)
"""What the request that is being answered brought."""


class RemoteSpan(NamedTuple):
    """A span by its numbers."""

    trace_id: int
    span_id: int
    flags: int


def parse(text: str | None) -> RemoteSpan | None:
    """Read a `traceparent`; None for a text that is none. Later versions may have more parts, which are left out."""
    found = _FORM.fullmatch(text) if text is not None and len(text) <= _LONGEST else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    span = RemoteSpan(int(found[2], 16), int(found[3], 16), int(found[4], 16))
    return span if span.trace_id and span.span_id else None


def written(span: RemoteSpan) -> str:
    """Write a span as a `traceparent`."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.flags:02x}"


def open_span() -> str | None:
    """Return the `traceparent` of the span that is open here; None without one."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return written(RemoteSpan(context.trace_id, context.span_id, int(context.trace_flags) & 0xFF))


def caller() -> str | None:
    """Return the `traceparent` of who calls: of the open span, else of the request that is being answered.

    A step is nobody's request: its tasks may have been made while one was answered.
    """
    opened = open_span()
    if opened is not None or current_body.get() is not None:
        return opened
    return _of_request.get()


@contextmanager
def answering(header: str | None) -> Iterator[None]:
    """Take what a request says of its caller for the calls that are made inside. What is malformed is left out."""
    span = parse(header)
    before = _of_request.set(written(span) if span is not None else None)
    try:
        yield
    finally:
        _of_request.reset(before)

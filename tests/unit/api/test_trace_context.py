"""The caller's span as a `traceparent`."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from loom.api.trace_context import RemoteSpan, answering, caller, open_span, parse, written

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_traceparent_is_read_and_written() -> None:
    span = parse(GOOD)
    assert span == RemoteSpan(int(TRACE, 16), int(SPAN, 16), 1)
    assert written(span) == GOOD
    assert parse(f"cc-{TRACE}-{SPAN}-01-what-the-future-brings") == span


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        GOOD.upper(),
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE[:-1]}\N{ARABIC-INDIC DIGIT ONE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
    ],
)
def test_what_is_no_traceparent_is_left_out(text: str | None) -> None:
    assert parse(text) is None
    with answering(text):
        assert caller() is None


def test_a_request_is_the_caller_unless_a_span_is_open() -> None:
    tracer = TracerProvider().get_tracer("t")
    assert caller() is open_span() is None
    with answering(GOOD):
        assert caller() == GOOD
        with tracer.start_as_current_span("inner") as span:
            context = span.get_span_context()
            assert (
                caller()
                == open_span()
                == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            )
        with answering(None):
            assert caller() is None
        assert caller() == GOOD
    assert caller() is None

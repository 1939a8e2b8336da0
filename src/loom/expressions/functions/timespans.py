"""The function of time spans. Pure; may import `dotnet`, `arguments` and `registry`."""

from __future__ import annotations

from typing import Any

from loom.expressions.arguments import want_string
from loom.expressions.dotnet.locales import culture_of
from loom.expressions.dotnet.timespans import format_timespan, parse_timespan
from loom.expressions.registry import function


@function("formatTimeSpan", 2, 3)
def format_time_span(span: Any, fmt: Any, culture: Any = "en-US") -> str:
    """A time span such as `1.02:03:04` in a format of a culture."""
    ticks = parse_timespan(want_string("timeSpan", span))
    return format_timespan(ticks, want_string("format", fmt), culture_of(want_string("culture", culture)))

"""The function that formats numbers. Pure; may import `dotnet`, `arguments` and `registry`."""

from __future__ import annotations

from typing import Any

from loom.expressions.arguments import want_number, want_string
from loom.expressions.dotnet.locales import culture_of
from loom.expressions.dotnet.number_format import format_number
from loom.expressions.registry import function


@function("formatNumber", 2, 3)
def format_number_function(number: Any, fmt: Any, locale: Any = "en-US") -> str:
    """A number in a .NET format of a culture."""
    culture = culture_of(want_string("locale", locale))
    return format_number(want_number("number", number), want_string("format", fmt), culture.numbers)

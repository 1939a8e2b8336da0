"""Answers in JSON, whatever a run has in its data. May import msgspec and starlette."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from starlette.responses import JSONResponse
from typing_extensions import override

from loom.steps.tags import MAX_INT_BITS


class JsonAnswer(JSONResponse):
    """An answer in strict JSON: numbers that JSON lacks are null, half characters stay escaped."""

    @override
    def render(self, content: Any) -> bytes:
        """The content as text."""
        return json_bytes(content)


def json_bytes(content: Any) -> bytes:
    """Write strict JSON: numbers that JSON lacks are null, half characters stay escaped, endless integers are hex."""
    try:
        return msgspec.json.encode(content)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(_finite(content), separators=(",", ":"), default=str).encode()


def _finite(value: Any) -> Any:
    match value:
        case int() if value.bit_length() > MAX_INT_BITS:
            return hex(value)  # an earlier version had stored it
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value

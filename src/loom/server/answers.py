"""Answers in JSON, whatever a run has in its data. May import msgspec and starlette."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from starlette.responses import JSONResponse
from typing_extensions import override


class JsonAnswer(JSONResponse):
    """An answer in strict JSON: numbers that JSON lacks are null, half characters stay escaped."""

    @override
    def render(self, content: Any) -> bytes:
        """The content as text."""
        try:
            return msgspec.json.encode(content)
        except (UnicodeEncodeError, OverflowError, TypeError):
            return json.dumps(_finite(content), separators=(",", ":"), default=str).encode()


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value

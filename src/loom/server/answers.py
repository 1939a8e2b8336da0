"""Answers in strict JSON, whatever a run has in its data, and the marks by which a caller knows an answer again."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
from starlette.responses import JSONResponse, Response
from typing_extensions import override

from loom.effects.off_loop import aside_if_large
from loom.steps.tagged import MAX_INT_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import Headers

    from loom.store.records import RunRow


class JsonAnswer(JSONResponse):
    """An answer in strict JSON: numbers that JSON lacks are null, half characters stay escaped."""

    @override
    def render(self, content: Any) -> bytes:
        """Write the content as text."""
        return json_bytes(content)


async def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a `JsonAnswer` of what may be large: it is written in a thread then."""
    return Response(await aside_if_large(json_bytes, content), status, headers, media_type="application/json")


def json_bytes(content: Any) -> bytes:
    """Write strict JSON: numbers that JSON lacks are null, half characters stay escaped, endless integers are hex."""
    try:
        return msgspec.json.encode(content)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(_finite(content), separators=(",", ":"), default=str).encode()


def _finite(value: Any) -> Any:
    match value:
        case msgspec.Struct() | datetime():
            return _finite(msgspec.to_builtins(value, enc_hook=str))
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


def etag(row: RunRow) -> str:
    """Mark a run: the mark changes with its last tick, its status, its tags and whether a process holds it in memory.

    The status is part of it because a retry changes that first.
    """
    place = "memory" if row.owner is not None else "store"
    tags = f"-{crc32(msgspec.json.encode(sorted(row.tags.items()))):x}" if row.tags else ""
    return f'"{row.head.ticks - 1}-{row.head.status}-{place}{tags}"'


def is_known(headers: Headers, mark: str) -> bool:
    """Tell whether a caller has the marked answer already, by `If-None-Match`."""
    given = [each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")]
    return mark in given or given == ["*"]

"""What handlers return, as plain JSON data: the only kind of value that a flow has. May import loom.steps and pydantic.

Models, dataclasses, structs, dates and tuples are converted; anything else is refused by its name, for a value that
cannot be stored must not enter a run.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from pydantic import BaseModel

from loom.expressions.values import INT_MAX, INT_MIN
from loom.flows.plain import below
from loom.steps.texts import well_formed

MAX_DEPTH = 200


class NotPlainData(TypeError):
    """A result that is no JSON data. The message names the type and the place."""


def plain(value: Any, path: str = "", depth: int = 0) -> Any:
    """The value as null, booleans, numbers, text, lists and dicts with text as keys."""
    if isinstance(value, Enum):
        return plain(value.value, path, depth)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if INT_MIN <= value <= INT_MAX else _finite(float(value), path)
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float):
        return _finite(value, path)
    if depth > MAX_DEPTH:
        raise NotPlainData(f"The result is nested more than {MAX_DEPTH} deep at {path[:80]}.")
    if isinstance(value, dict):
        return {_key(key, path): plain(item, below(path, f".{key}"), depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, below(path, f"[{index}]"), depth + 1) for index, item in enumerate(value)]
    return plain(_opened(value, path), path, depth + 1)


def _opened(value: Any, path: str) -> Any:
    """One layer of an object that has a form in JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray):
        content = base64.b64encode(value).decode()
        return {"$content-type": "application/octet-stream", "$content": content}
    raise NotPlainData(f"The result holds {_where(path)}a {type(value).__qualname__}, which is no JSON data.")


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise NotPlainData(f"The result holds {_where(path)}{value}, which is no number in JSON.")
    return value


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return well_formed(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise NotPlainData(f"The result holds {_where(path)}a key of type {type(key).__qualname__}; keys are text.")


def _where(path: str) -> str:
    return f"at {path.removeprefix('.')} " if path else ""

"""The table of tags: values that JSON has no form for, and how each is written and read.

A tag is a name in this table, nothing else; it never leads to an import. May import the standard library.
"""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST = 2**63
"""Beyond it, not every reader of JSON takes a number as it is, and Python itself refuses to print very long ones."""

MAX_INT_BITS = 14_280
"""An integer with more has over 4,299 digits: Python refuses to print it, and so no answer in JSON can show it."""

PLAIN = frozenset((str, bool, type(None)))
"""What JSON holds as it is, whatever the value."""


def is_plain_number(value: Any) -> bool:
    """Whether JSON holds a number (an int or a float) as it is."""
    return -_LARGEST <= value < _LARGEST if isinstance(value, int) else math.isfinite(value)


def _write_bytes(value: Any) -> str:
    return base64.b64encode(value).decode()


_FOLD = "!"
"""Marks the second of two moments that a clock shows alike, in the hour in which it is set back."""


def _write_moment(value: datetime | time) -> str:
    return value.isoformat() + (_FOLD if value.fold else "")


def _read_moment(cls: type[datetime] | type[time], data: str) -> datetime | time:
    return cls.fromisoformat(data.removesuffix(_FOLD)).replace(fold=int(data.endswith(_FOLD)))


def _write_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


WRITERS: dict[type[Any], tuple[str, Callable[[Any], Any]]] = {
    int: ("int", hex),
    float: ("float", repr),
    complex: ("complex", lambda value: [repr(value.real), repr(value.imag)]),
    bytes: ("bytes", _write_bytes),
    bytearray: ("bytearray", _write_bytes),
    datetime: ("datetime", _write_moment),
    date: ("date", date.isoformat),
    time: ("time", _write_moment),
    timedelta: ("timedelta", _write_timedelta),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
    type(Path()): ("path", str),
    type(PurePath()): ("pure_path", str),
}
"""By exact class: the tag, and the value's JSON form. Numbers come here only if JSON would not hold them."""

_READERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda data: int(data, 16),
    "float": float,
    "complex": lambda data: complex(float(data[0]), float(data[1])),
    "bytes": lambda data: base64.b64decode(data, validate=True),
    "bytearray": lambda data: bytearray(base64.b64decode(data, validate=True)),
    "datetime": partial(_read_moment, datetime),
    "date": date.fromisoformat,
    "time": partial(_read_moment, time),
    "timedelta": lambda data: timedelta(*data),
    "decimal": Decimal,
    "uuid": UUID,
    "path": Path,
    "pure_path": PurePath,
    # These get their members read already.
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}
CONTAINERS = frozenset(("tuple", "set", "frozenset", "dict"))


def read_tagged(tag: str, data: Any) -> Any:
    """The value behind a tag; `ValueError` if there is no such tag, or the data does not fit it."""
    reader = _READERS.get(tag)
    if reader is None:
        raise ValueError(f"Unknown tag {tag!r}: a newer version may have written it.")
    try:
        return reader(data)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise ValueError(f"What stands under the tag {tag!r} does not fit it: {error}") from error

"""What all answers share: every key is written, and a client still reads the answers of older and newer servers.

A field has the type that a client accepts. Its default is what a client sees where an older server had no such key.
Where the server promises more than a client asks for, `promises` says so. The OpenAPI document shows the promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NotRequired, TypeVar, get_origin

import msgspec
from msgspec import Meta

from loom.api.problems import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ID_PATTERN", "Answer", "Id", "Kind", "Page", "RunStatus", "is_optional", "promised", "promises"]

ID_PATTERN = r"^[A-Za-z0-9._:~-]{1,200}$"
"""Ids of runs and of events."""

Id = Annotated[str, Meta(pattern=ID_PATTERN)]
Kind = Literal["steps", "flow"]
"""A workflow in Python, or a declarative one."""

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT", bound="type[Answer]")

_PROMISES: dict[type, dict[str, Any]] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer. The server writes every key; one whose value is UNSET is left out."""


def promises(**types: Any) -> Callable[[AnswerT], AnswerT]:
    """Declare what the server writes in fields where a client accepts more: never null, fewer values, only ids.

    `NotRequired` marks a key that the server may leave out.
    """

    def declare(kind: AnswerT) -> AnswerT:
        _PROMISES[kind] = types
        return kind

    return declare


def promised(kind: type) -> dict[str, Any]:
    """Return the promises of an answer and its bases, by field."""
    return {name: each for base in reversed(kind.__mro__) for name, each in _PROMISES.get(base, {}).items()}


def is_optional(promise: Any) -> bool:
    """Tell whether the server may leave a promised key out."""
    return get_origin(promise) is NotRequired


class Page(Answer, Generic[ItemT], frozen=True):
    """A part of a list. With `next_cursor` as `cursor`, and the same filters, the next part is asked for."""

    items: list[ItemT]
    next_cursor: str | None = None

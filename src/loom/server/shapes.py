"""What `/v1` answers with beside runs, and how it says no: the shapes of its JSON.

The functions that make answers have these types, and the OpenAPI document is made of them. Keys may be added to a shape
later; those that are there stay. May import msgspec and loom.runtime.shapes.
"""

from __future__ import annotations

from typing import Annotated, Generic, Literal, NotRequired, TypedDict, TypeVar

from msgspec import Meta

from loom.runtime.shapes import Moment  # noqa: TC001 - shapes are read at run time

ItemT = TypeVar("ItemT")


class Page(TypedDict, Generic[ItemT]):
    """A part of a list. With `next_cursor` as `cursor`, and the same filters, the next part is asked for."""

    items: list[ItemT]
    next_cursor: str | None


Delivered = Literal["waiter", "step", "kept", "inbox"]


class Delivery(TypedDict):
    """What became of an event that was sent. It is stored, whatever is said here.

    Of a duplicate only that is known: who took the first one is in the history. An event that only ends a run, or asks
    somebody something, is kept for nobody: `delivered` is null too if no step takes it.
    """

    tick: int | None
    delivered: Delivered | None
    duplicate: bool


class Acted(TypedDict):
    """Something that an operator did, or was refused: then `outcome` is 403."""

    at: Moment
    actor: str
    actor_name: str
    action: str
    target: str
    made: str | None
    request_id: str | None
    outcome: int | str


class Alive(TypedDict):
    """The process answers."""

    status: Literal["live"]


class Readiness(TypedDict):
    """Whether the server takes work, and if not, why."""

    status: Literal["ready", "unready"]
    reasons: list[str]


class Place(TypedDict):
    """A place in a request that is wrong; of a definition also how bad it is, and its line where that is known."""

    path: Annotated[str, Meta(description="A JSON Pointer into the request or the definition.")]
    message: str
    severity: NotRequired[str]
    code: NotRequired[str | None]
    line: NotRequired[int | None]
    column: NotRequired[int | None]


class Problem(TypedDict):
    """Why a request was refused."""

    type: Annotated[str, Meta(description="`urn:loom:problem:` and the code.")]
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str | None
    errors: NotRequired[list[Place]]

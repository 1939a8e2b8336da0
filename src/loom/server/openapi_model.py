"""The words in which operations are described: parameters, bodies, answers. May import the shapes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

JSON = "application/json"
YAML = "application/yaml"
TEXT = "text/plain"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
ANY = "*/*"

Seconds = Annotated[float, Meta(ge=0, le=9_999_999_999)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Cursor = Annotated[str, Meta(pattern=r"^(-1|[0-9]{1,15})$")]
"""The number of an entry on a stream; -1 stands before the first."""

Tag = Literal["runs", "definitions", "schedules", "server", "compatible"]
TAGS: dict[Tag, str] = {
    "runs": "Runs of workflows: start them, look at them, send them events.",
    "definitions": "Workflows that the server knows.",
    "schedules": "Starts that recur.",
    "server": "The server itself.",
    "compatible": 'The protocol of llama-agents-server 0.8, over the same runs. Its errors are `{"detail"}`.',
}


class Param(NamedTuple):
    """A parameter of the query or a header that a request may bring; one whose type is a list may be repeated."""

    name: str
    type: Any
    description: str
    place: Literal["query", "header"] = "query"
    required: bool = False


class Body(NamedTuple):
    """What a request brings."""

    type: Any
    required: bool = True
    media: tuple[str, ...] = (JSON,)


class Answer(NamedTuple):
    """What an operation answers with. Without a type it has no body."""

    description: str
    type: Any = None
    media: tuple[str, ...] = (JSON,)
    headers: tuple[str, ...] = ()
    """Names of `HEADERS`."""
    is_stream: bool = False
    """The type is that of its entries."""


Answers = dict[int | Literal["default"], Answer]
"""By status; the default stands for all that are not there."""


class Operation(NamedTuple):
    """One operation. What holds for all of them (keys, ids of requests, limits) is added by `openapi.document`."""

    id: str
    tag: Tag
    summary: str
    answers: Answers
    problems: tuple[str, ...] = ()
    """The codes of problems that this operation has beside those of all, and of those that its path leads to."""
    params: tuple[Param, ...] = ()
    body: Body | None = None
    description: str = ""
    deprecated: bool = False


Operations = dict[tuple[str, str], Operation]
"""By method and path."""

HEADERS: dict[str, str] = {
    "ETag": "Changes whenever the answer does.",
    "Location": "Where the run is found.",
    "Retry-After": "After so many seconds it is worth trying again.",
    "WWW-Authenticate": "How a key is shown.",
    "Idempotent-Replay": "`true` if this is the answer to an earlier request with the same Idempotency-Key.",
    "X-Request-ID": "The id of the request, as it was sent or as the server made it.",
}
"""Headers of answers."""

LIMIT = Param(
    "limit", Annotated[int, Meta(ge=1, le=500)], "How many items the page has at most; 100 if nothing is said."
)
CURSOR = Param("cursor", str, "Where the page begins: the `next_cursor` of the one before.")
IF_NONE_MATCH = Param("If-None-Match", str, "An ETag: if it still holds, the answer is 304.", "header")
LAST_EVENT_ID = Param("Last-Event-ID", Cursor, "The id of the last event that was read; wins over the query.", "header")
REQUEST_ID = Param(
    "X-Request-ID", str, "The id of the request; one of other characters than an id has is not used.", "header"
)
IDEMPOTENCY_KEY = Param(
    "Idempotency-Key",
    Annotated[str, Meta(min_length=1, max_length=200)],
    "Names the request for 24 hours: repeated with the same body, it gets the first answer again.",
    "header",
)

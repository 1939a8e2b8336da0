"""Routes: each is declared beside its function, with what it needs, takes and answers.

`@route("POST", "/v1/runs", "startRun", scope="start", body=StartRequest, replies={201: ...})` is all that there is to
say. The application is built from these declarations, and the OpenAPI document is generated from them. A route cannot
be made without a scope.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from loom.server.auth import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from loom.server.addresses import Addresses
    from loom.server.auth import Principal
    from loom.server.call import Call

    Handler = Callable[[Call], Awaitable[Response]]
    Opener = Callable[[Addresses, Request], Awaitable[Principal]]

JSON = "application/json"
YAML = "application/yaml"
TEXT = "text/plain"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
ANY = "*/*"

Number = Annotated[int, Meta(ge=0, le=2**53)]
After = Annotated[int, Meta(ge=-1, le=2**53)]
Cursor = Annotated[str, Meta(pattern=r"^(-1|[0-9]{1,15})$")]
"""The number of an entry on a stream; -1 is the place before the first."""

Tag = Literal["runs", "definitions", "schedules", "server", "compatible"]
TAGS: dict[Tag, str] = {
    "runs": "Runs of workflows: start them, look at them, send them events.",
    "definitions": "Workflows that the server knows.",
    "schedules": "Starts that recur.",
    "server": "The server itself.",
    "compatible": 'The protocol of llama-agents-server 0.8, over the same runs. Its errors are `{"detail"}`.',
}
HEADERS: dict[str, str] = {
    "ETag": "Changes whenever the answer does.",
    "Location": "Where the run is found, or its answer.",
    "Loom-Response": "`pending` if the flow's answer is still to come, `none` if its run has ended without one.",
    "Loom-Run-ID": "The run that a request has started.",
    "Allow": "The methods that the trigger takes.",
    "Retry-After": "After so many seconds it is worth trying again.",
    "WWW-Authenticate": "How a key is shown.",
    "Idempotent-Replay": "`true` if this is the answer to an earlier request with the same Idempotency-Key.",
    "X-Request-ID": "The id of the request, as it was sent or as the server made it.",
}
"""Headers of answers."""
PARAMETERS = "Loom-Parameters"
"""The header with the parameters that a flow begins with: a JSON object."""


class Param(NamedTuple):
    """A parameter of the query or a header that a request may bring; one whose type is a list may be repeated."""

    name: str
    type: Any
    description: str
    place: Literal["query", "header"] = "query"
    required: bool = False


class Body(NamedTuple):
    """What a request brings, where a type alone does not say it all."""

    type: Any
    required: bool = True
    media: tuple[str, ...] = (JSON,)


class Reply(NamedTuple):
    """What a route answers with. Without a type it has no body."""

    description: str
    type: Any = None
    media: tuple[str, ...] = (JSON,)
    headers: tuple[str, ...] = ()
    """Names of `HEADERS`."""
    is_stream: bool = False
    """The type is that of its entries."""
    event_data: tuple[Any, ...] = ()
    """Types of the data of its server-sent events, one of which each event has; none: that of its entries."""


Replies = dict[int | Literal["default"], Reply]
"""By status; the default is for all statuses that are not there."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Route:
    """One operation of the API. What holds for all of them (keys, ids of requests, limits) is added by `openapi`."""

    method: str
    path: str
    answer: Handler
    scope: Scope | None
    """What a key needs; None: open to every caller."""
    signed: Opener | None = None
    """Finds the caller of a request with a signature, which counts in place of a key; None: no signature does."""
    fires: bool = False
    """True: it starts runs whatever its method is."""
    name: str
    """The name of the operation in the OpenAPI document."""
    tag: Tag
    summary: str
    replies: Replies
    problems: tuple[str, ...] = ()
    """The codes of its own problems, beside the ones of all routes and of its path."""
    params: tuple[Param, ...] = ()
    body: Body | None = None
    description: str = ""
    deprecated: bool = False

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.fires or self.method not in ("GET", "HEAD")

    @property
    def is_repeatable(self) -> bool:
        """Whether an `Idempotency-Key` counts."""
        return self.fires or self.method == "POST"


class RouteList(list[Route]):
    """The routes of one module. Called, it is the decorator that adds one."""

    def __init__(self, tag: Tag) -> None:
        super().__init__()
        self._tag = tag

    def __call__(
        self,
        method: str,
        path: str,
        name: str,
        *,
        scope: Scope | None,
        body: Any = None,
        **more: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare that a function answers requests. `body` is a type, or a `Body`; for the rest see `Route`."""
        if body is not None and not isinstance(body, Body):
            body = Body(body)

        def declare(answer: Handler) -> Handler:
            more.setdefault("tag", self._tag)
            self.append(Route(method=method, path=path, answer=answer, scope=scope, name=name, body=body, **more))
            return answer

        return declare


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

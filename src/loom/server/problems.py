"""What goes wrong, as callers are told: problem+json below `/v1`, `{"detail"}` on the compatible routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from loom.api.refusals import Place, Problem
from loom.runtime.durable.stored_definitions import DefinitionNotFound, DefinitionUnreadable, NameTaken
from loom.server.answers import JsonAnswer
from loom.store.errors import (
    CorruptRecord,
    HistoryGone,
    MemoryExceeded,
    NothingToSkip,
    NotSupported,
    RunActive,
    RunBusy,
    RunExists,
    RunFinished,
    RunNotFound,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

    from loom.api.compatible import Detail
    from loom.api.runs import RunError

PROBLEMS: dict[str, tuple[int, str]] = {
    "invalid-request": (400, "The request is not valid"),
    "unauthenticated": (401, "A valid key is needed"),
    "forbidden": (403, "This is not allowed"),
    "csrf": (403, "The request must come from a page of this server"),
    "read-only": (403, "This server changes nothing"),
    "not-found": (404, "There is nothing here"),
    "run-not-found": (404, "No such run"),
    "definition-not-found": (404, "No such definition"),
    "flow-disabled": (404, "The flow is disabled"),
    "schedule-not-found": (404, "No such schedule"),
    "method-not-allowed": (405, "This method is not known here"),
    "too-slow": (408, "The request took too long to arrive"),
    "run-exists": (409, "Another run has this id"),
    "run-finished": (409, "The run has ended"),
    "run-active": (409, "The run has not ended"),
    "nothing-to-skip": (409, "The run has no delay that can be skipped"),
    "name-taken": (409, "The name is taken"),
    "request-in-progress": (409, "The first request is still under way"),
    "history-gone": (410, "This part of the history was pruned"),
    "version-mismatch": (412, "Another version is stored"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "This media type is not taken"),
    "definition-invalid": (422, "The definition is not valid"),
    "idempotency-mismatch": (422, "The key was used for another request"),
    "result-unreadable": (422, "The stored result cannot be read"),
    "limited": (429, "Too many at once"),
    "internal": (500, "The server has failed"),
    "not-supported": (501, "The store cannot do this"),
    "no-response": (502, "The run has ended without a response"),
    "store-unavailable": (503, "The store cannot be reached"),
    "draining": (503, "The server is stopping"),
    "memory-exceeded": (503, "The server has too little memory"),
    "response-late": (504, "The run has not answered in time"),
}
"""Status and title by code."""


_REFUSALS: dict[type[Exception], str] = {
    RunNotFound: "run-not-found",
    RunFinished: "run-finished",
    RunActive: "run-active",
    NothingToSkip: "nothing-to-skip",
    HistoryGone: "history-gone",
    NotSupported: "not-supported",
    CorruptRecord: "result-unreadable",
    DefinitionNotFound: "definition-not-found",
    DefinitionUnreadable: "definition-invalid",
    NameTaken: "name-taken",
}
"""What the runtime refuses with words that are meant for callers, by code."""


class ApiProblem(Exception):
    """Something that the caller is told: its code decides the status.

    `errors` are places in the request, `{path, message}`, where `path` is a JSON Pointer.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: list[Place] | None = None,
        headers: dict[str, str] | None = None,
        error: RunError | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = errors
        self.headers = headers or {}
        self.error = error
        """What a run has failed with, if that is the problem."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return PROBLEMS[self.code][0]


def invalid(detail: str, path: str = "") -> ApiProblem:
    """Make the problem of a request that is wrong at one place."""
    return ApiProblem("invalid-request", detail, errors=[Place(path=path, message=detail)])


def problem_of(error: Exception, retry_after: int = 1) -> ApiProblem | None:
    """Translate a refusal of the runtime for a caller; None for an error that was not foreseen."""
    match error:
        case ApiProblem():
            return error
        case RunExists():
            # Whose it is may be none of the caller's business.
            return ApiProblem("run-exists", f"Another run has the id {error.run_id!r}: choose another one.")
        case RunBusy():
            return ApiProblem("limited", str(error), headers={"Retry-After": str(retry_after)})
        case MemoryExceeded():
            return ApiProblem("memory-exceeded", str(error), headers={"Retry-After": str(retry_after)})
        case StoreUnavailable():
            # The text may name hosts and files: it is for the log.
            return ApiProblem(
                "store-unavailable",
                "The store cannot be reached at present.",
                headers={"Retry-After": str(retry_after)},
            )
        case _:
            code = next((code for kind, code in _REFUSALS.items() if isinstance(error, kind)), None)
            return ApiProblem(code, str(error)) if code is not None else None


def problem_response(problem: ApiProblem, scope: Scope) -> Response:
    """Make the answer for a problem, in the words of the face that was asked."""
    if not speaks_problems(scope):
        told: Detail = {"detail": problem.detail}
        return JsonAnswer(told, status_code=problem.status, headers=problem.headers)
    status, title = PROBLEMS[problem.code]
    refused = Problem(
        type=f"urn:loom:problem:{problem.code}",
        title=title,
        status=status,
        detail=problem.detail,
        instance=scope.get("path", ""),
        code=problem.code,
        request_id=scope.get("state", {}).get("request_id"),
        errors=problem.errors or (),
        error=problem.error,
    )
    content = msgspec.to_builtins(refused)
    for name in ("errors", "error"):
        if not content[name]:
            del content[name]
    return JsonAnswer(content, status, headers=problem.headers, media_type="application/problem+json")


def speaks_problems(scope: Scope) -> bool:
    """Tell whether a path is one of Loom's own, not of the compatible routes."""
    path = route_path(scope)
    return path == "/v1" or path.startswith("/v1/") or path in ("/metrics", "/openapi.json")


def route_path(scope: Scope) -> str:
    """Return the path within this application, wherever it is mounted."""
    path: str = scope.get("path", "")
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path

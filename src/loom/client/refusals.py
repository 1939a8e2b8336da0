"""Which error an answer, or none, stands for. May import the errors of loom.client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from loom.client.errors import (
    ClientError,
    Problem,
    RemoteRunExists,
    RemoteRunFinished,
    RemoteRunNotFound,
    RemoteUnavailable,
)

if TYPE_CHECKING:
    import httpx2

_PREVIEW = 200

_OF_RUNS = {
    "run-not-found": RemoteRunNotFound,
    "run-finished": RemoteRunFinished,
    "run-exists": RemoteRunExists,
}
_UNAVAILABLE = frozenset({"store-unavailable", "draining", "memory-exceeded"})


def refusal(response: httpx2.Response, run_id: str | None) -> ClientError:
    """The error that an answer stands for. `run_id` is the run that the request was about."""
    error = _named(_problem(response), run_id)
    after = response.headers.get("retry-after", "")
    error.retry_after = float(after) if after.isdecimal() else None
    return error


def _named(problem: Problem, run_id: str | None) -> ClientError:
    of_run = _OF_RUNS.get(problem.code)
    if of_run is not None:
        return of_run(problem, run_id or "")
    if problem.code in _UNAVAILABLE:
        return RemoteUnavailable(problem)
    if problem.code == "definition-invalid":
        from loom.client.definition_error import RemoteDefinitionError

        return RemoteDefinitionError(problem)
    return ClientError(problem)


def unreachable(url: str, error: Exception, *, outcome_unknown: bool) -> RemoteUnavailable:
    """The error for a request that got no answer."""
    reason = str(error) or type(error).__name__
    again = " What was asked may have happened nevertheless." if outcome_unknown else ""
    detail = f"{url} gave no answer: {reason.rstrip('.')}.{again} Is a server running there?"
    return RemoteUnavailable(Problem(code="unreachable", status=0, detail=detail), outcome_unknown=outcome_unknown)


def unexpected(response: httpx2.Response, reason: str) -> ClientError:
    """The error for an answer that is not what the API promises."""
    detail = f"{response.request.method} {response.request.url.path} gave an unexpected answer: {reason}"
    request_id = response.headers.get("x-request-id")
    status = response.status_code
    return ClientError(Problem(code="unexpected-answer", status=status, detail=detail, request_id=request_id))


def _problem(response: httpx2.Response) -> Problem:
    try:
        return msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        # Not of Loom: a proxy, or some other server.
        text = response.text[:_PREVIEW].strip() or response.reason_phrase
        return unexpected(response, f"{response.status_code} {text}").problem

"""What a server refuses, as exceptions.

A refusal that a runtime in this process knows too is also that error: `except loom.RunNotFound` serves both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.errors import RunExists, RunFinished, RunNotFound, StoreUnavailable

if TYPE_CHECKING:
    from loom.api.refusals import Problem


class ClientError(Exception):
    """The server refused, could not be reached, or gave an answer that is none."""

    def __init__(self, problem: Problem) -> None:
        # Not by `super`: the errors of a runtime, which some of these are too, make their own messages.
        Exception.__init__(self, str(problem))
        self.problem = problem
        self.retry_after: float | None = None
        """After how many seconds the server wants to be asked again."""

    @property
    def code(self) -> str:
        """What went wrong, for programs: a code of the API, `unreachable` or `unexpected-answer`."""
        return self.problem.code

    @property
    def http_status(self) -> int:
        """The status code of the answer; 0 if there was none."""
        return self.problem.status

    @property
    def request_id(self) -> str | None:
        """By what the server's log knows the request."""
        return self.problem.request_id


class RemoteRunNotFound(ClientError, RunNotFound):
    """The server has no run of this id."""

    def __init__(self, problem: Problem, run_id: str) -> None:
        ClientError.__init__(self, problem)
        self.run_id = run_id


class RemoteRunFinished(ClientError, RunFinished):
    """The run has ended, so that what was asked of it cannot be done any more."""

    def __init__(self, problem: Problem, run_id: str) -> None:
        ClientError.__init__(self, problem)
        self.run_id = run_id
        self.status = "finished"


class RemoteRunExists(ClientError, RunExists):
    """The server has another run of this id."""

    def __init__(self, problem: Problem, run_id: str) -> None:
        ClientError.__init__(self, problem)
        self.run_id = run_id


class RemoteUnavailable(ClientError, StoreUnavailable):
    """The server cannot be reached, or it cannot reach its store, or it is stopping."""

    def __init__(self, problem: Problem, *, outcome_unknown: bool = False) -> None:
        ClientError.__init__(self, problem)
        self.outcome_unknown = outcome_unknown

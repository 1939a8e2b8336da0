"""What a server refuses, as the command line tells it: in the words and with the exit codes that a store has for it.

May import loom.client.errors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom.cli.problems import NoServer, NotAllowed, Problem, WrongUse
from loom.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def told_by_server() -> Iterator[None]:
    """Turn the refusals of a server into problems, as those of a store are."""
    try:
        yield
    except ClientError as error:
        raise _KINDS.get(error.code, Problem)(_words(error)) from error
    except UnicodeEncodeError as error:
        raise WrongUse(f"{error.object!r} has no form in UTF-8: it cannot be sent.") from error


@contextmanager
def told_as_problem(path: str = "") -> Iterator[None]:
    """A request that is not valid here asks for something that is not there; the command as such is right."""
    try:
        yield
    except ClientError as error:
        if error.code == "invalid-request" and any(place.path == path for place in error.problem.errors):
            raise Problem(_words(error)) from error
        raise


def _words(error: ClientError) -> str:
    problem = error.problem
    words = problem.detail or problem.title or problem.code
    places = [f"{place.path.lstrip('/')}: {place.message}" for place in problem.errors if place.message != words]
    if places:
        words += f" {'; '.join(places).rstrip('.')}."
    if problem.code == "internal" and problem.request_id:
        words += f" The server's log has it as request {problem.request_id}."
    return words + _ADVICE.get(problem.code, "")


_ADVICE = {
    "unauthenticated": " Give a key of the server in the variable LOOM_API_KEY.",
}
_KINDS: dict[str, type[Problem]] = {
    "invalid-request": WrongUse,
    "unreachable": NoServer,
    "unexpected-answer": NoServer,
    "store-unavailable": NoServer,
    "draining": NoServer,
    "memory-exceeded": NoServer,
    "unauthenticated": NotAllowed,
    "forbidden": NotAllowed,
}

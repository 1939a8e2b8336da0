"""Tell what goes wrong: one line on stderr that names the thing, and an exit code.

0: done. 1: what was asked for failed. 2: the command was given wrongly. 3: the store or the server cannot be used.
4: the server does not allow it with this key.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from loom.cli.output import clean

if TYPE_CHECKING:
    from collections.abc import Iterator


class Problem(click.ClickException):
    """Something that the user is told in one line: what was asked for failed."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(clean(in_one_line(message)))


class Stopped(Problem):
    """The process was told to stop before it was done."""


class WrongUse(Problem):
    """The command was given wrongly."""

    exit_code = 2


class NoStore(Problem):
    """The store cannot be used."""

    exit_code = 3


class NoServer(Problem):
    """The server cannot be reached, or cannot do its work at present."""

    exit_code = 3


class NotAllowed(Problem):
    """The server wants a key, another one, or one with more scopes."""

    exit_code = 4


def in_one_line(message: str) -> str:
    """A message without line ends, as far as it tells something."""
    return " ".join(message.split())


@contextmanager
def told() -> Iterator[None]:
    """Turn the errors that stores and runs raise into problems. Errors of Loom itself stay what they are."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception as error:
        problem = _problem(error)
        if problem is None:
            raise
        raise problem from error


def _problem(error: Exception) -> Problem | None:
    """What an error means to a user; only now are those loaded that could have happened."""
    from pydantic import ValidationError

    from loom.flows.diagnostics import DefinitionError
    from loom.steps.errors import WorkflowRuntimeError
    from loom.steps.registry import UnknownTypeError
    from loom.store.errors import StoreError, StoreOutdated, StoreTooNew, StoreUnavailable, WrongKeys

    match error:
        case StoreUnavailable() | StoreTooNew() | StoreOutdated() | WrongKeys():
            return NoStore(str(error))
        case DefinitionError():
            return Problem(f"A stored definition cannot be read by this version of Loom: {error}")
        case UnknownTypeError():
            return Problem(f"{error} Name its code with --target.")
        case WorkflowRuntimeError(__cause__=ValidationError() as wrong):
            fields = (f"{'.'.join(map(str, part['loc'])) or 'input'}: {part['msg']}" for part in wrong.errors())
            return WrongUse(f"The input is not what the workflow takes. {'; '.join(fields)}.")
        case StoreError() | WorkflowRuntimeError():
            return Problem(str(error))
        case _:
            return None

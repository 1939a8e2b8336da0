"""What goes wrong, as the command line tells it: one line on stderr that names the thing, and an exit code.

0: done. 1: what was asked for failed. 2: the command was given wrongly. 3: the store cannot be used.
May import click, and loom.flows, loom.steps and loom.store inside functions.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from loom.cli.shown import clean

if TYPE_CHECKING:
    from collections.abc import Iterator


class Problem(click.ClickException):
    """Something that the user is told in one line: what was asked for failed."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(clean(in_one_line(message)))


class WrongUse(Problem):
    """The command was given wrongly."""

    exit_code = 2


class NoStore(Problem):
    """The store cannot be used."""

    exit_code = 3


def in_one_line(message: str) -> str:
    """A message without line ends, as far as it tells something."""
    return " ".join(message.split())


@contextmanager
def told() -> Iterator[None]:
    """Turn the errors that stores and runs raise into problems. Errors of Loom itself stay what they are."""
    from loom.flows.diagnostics import DefinitionError
    from loom.steps.errors import WorkflowRuntimeError
    from loom.steps.registry import UnknownTypeError
    from loom.store.errors import StoreError, StoreOutdated, StoreTooNew, StoreUnavailable

    try:
        yield
    except (StoreUnavailable, StoreTooNew, StoreOutdated) as error:
        raise NoStore(str(error)) from error
    except DefinitionError as error:
        raise Problem(f"A stored definition cannot be read by this version of Loom: {error}") from error
    except UnknownTypeError as error:
        raise Problem(f"{error} Name its code with --target.") from error
    except (StoreError, WorkflowRuntimeError) as error:
        raise Problem(str(error)) from error

"""The command `loom runs changes`: the runs of a list as they change, one line each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import click

from loom.cli.options import json_option, tag_option
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.api.changes import RunChange
    from loom.api.requests import RunFilters
    from loom.cli.sources import Runs, RunSource

_STATUSES = ["running", "completed", "failed", "cancelled"]
_INTERRUPTED = 130
"""What shells say of a program that Ctrl-C has ended."""


@click.command()
@click.option(
    "--status", type=click.Choice(_STATUSES), multiple=True, help="Only runs in this status. May be repeated."
)
@click.option("--workflow", metavar="NAME", multiple=True, help="Only runs of this workflow. May be repeated.")
@click.option("--idle/--not-idle", default=None, help="Only runs that can(not) be moved from outside alone.")
@click.option("--waiting/--not-waiting", default=None, help="Only runs that (do not) wait for an event from outside.")
@click.option("--parked/--not-parked", default=None, help="Only runs that (do not) lack their code.")
@click.option("--id-prefix", metavar="TEXT", help="Only runs whose id begins so.")
@click.option("--parent", "parent_id", metavar="RUN_ID", help="Only child runs of this run.")
@tag_option("Only runs with this tag. May be repeated.")
@click.option("--after", metavar="ID", help="Go on after the change with this id, which --json shows.")
@source_options
@json_option
def changes(
    source: RunSource,
    as_json: bool,
    after: str | None,
    tags: Sequence[tuple[str, str]],
    status: Sequence[str],
    workflow: Sequence[str],
    **given: Any,
) -> None:
    """Print runs as they change, until Ctrl-C.

    One line each, or one JSON object per line.

    A run that was deleted, or that the filters do not mean any more, is gone. After a reset, list the runs again.
    """
    chosen = {"status": [*status] or None, "workflow": [*workflow] or None, "tags": dict(tags)}
    filters = cast("RunFilters", {**given, **chosen})

    async def follow(runs: Runs) -> None:
        async for change in runs.changes(filters, after):
            _print(change, as_json=as_json)

    with suppress(BrokenPipeError):
        try:
            perform(source, follow)
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None


def _print(change: RunChange, *, as_json: bool) -> None:
    from loom.cli.output import print_json_line, print_line
    from loom.cli.status import state_words, waiting_words

    if as_json:
        print_json_line(change)
    elif change.run is not None:
        run = change.run
        words = (run.run_id, run.workflow, state_words(run), waiting_words(run))
        print_line("  ".join(word for word in words if word))
    elif change.event == "gone":
        print_line(f"{change.run_id}  gone")
    elif change.event == "reset":
        print_line("Changes were missed: list the runs again.")

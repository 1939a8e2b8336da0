"""`loom workflow fork|export|import|purge`: making runs of others, and deleting them.

Other rooms are imported inside commands.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from loom.cli.acting import tell
from loom.cli.options import json_option, moment, run_id_argument, store_option, target_option

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@run_id_argument
@click.option("--tick", type=click.IntRange(min=0), required=True, help="The last tick of its history that is kept.")
@click.option("--run-id", "fork_id", metavar="ID", help="The id of the new run.")
@target_option
@store_option
@json_option
def fork(run_id: str, tick: int, fork_id: str | None, targets: Sequence[str], store: str, as_json: bool) -> None:
    """Make a new run that goes on from a past tick of another one."""
    from loom.cli.problems import Problem
    from loom.cli.session import client, perform

    async def work() -> str:
        async with client(store, targets) as runtime:
            try:
                return (await runtime.fork(run_id, tick=tick, run_id=fork_id)).run_id
            except ValueError as error:
                raise Problem(str(error)) from error

    made = perform(work())
    words = f"Run {made} goes on from tick {tick} of run {run_id}."
    tell(as_json, words, run_id=made, forked_from=run_id, tick=tick)


@click.command("export")
@run_id_argument
@click.option("--output", "-o", type=click.File("wb", lazy=True), default="-", help="A file; else the standard output.")
@store_option
def export_run(run_id: str, output: IO[bytes], store: str) -> None:
    """Write everything that is stored of a run, as JSON."""
    from loom.cli.session import client, perform

    async def work() -> bytes:
        async with client(store) as runtime:
            return await runtime.export_run(run_id)

    output.write(perform(work()) + b"\n")


@click.command("import")
@click.argument("file", type=click.File("rb"))
@store_option
@json_option
def import_run(file: IO[bytes], store: str, as_json: bool) -> None:
    """Store a run that was exported to FILE (- for the standard input). If it is not over, it goes on."""
    from loom.cli.session import client, perform

    data = file.read()

    async def work() -> str:
        async with client(store) as runtime:
            return await runtime.import_run(data)

    found = perform(work())
    tell(as_json, f"Run {found} is stored.", run_id=found)


@click.command()
@click.argument("run_id", required=False)
@click.option("--ended-before", metavar="WHEN", type=moment, help="A date, or an age as in 30d.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting many runs.")
@store_option
@json_option
def purge(run_id: str | None, ended_before: float | None, yes: bool, store: str, as_json: bool) -> None:
    """Delete an ended run with all its traces, or all runs that ended before a time."""
    from loom.cli.session import client, perform
    from loom.cli.shown import clock

    if (run_id is None) == (ended_before is None):
        raise click.UsageError("Name a RUN_ID, or a time with --ended-before.")
    if ended_before is not None and not yes:
        click.confirm(f"Delete all runs that ended before {clock(ended_before)}?", abort=True, err=True)

    async def work() -> int:
        async with client(store) as runtime:
            return await runtime.purge(run_id, ended_before=ended_before)

    gone = perform(work())
    tell(as_json, f"{gone} {'run was' if gone == 1 else 'runs were'} deleted.", purged=gone)

"""`loom workflow fork|export|import|purge`: making runs of others, and deleting them.

Other rooms are imported inside commands.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from loom.cli.acting import tell
from loom.cli.options import json_option, moment, run_id_argument, target_option
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.cli.sources import Source


@click.command()
@run_id_argument
@click.option("--tick", type=click.IntRange(min=0), required=True, help="The last tick of its history that is kept.")
@click.option("--run-id", "fork_id", metavar="ID", help="The id of the new run.")
@target_option
@source_options
@json_option
def fork(run_id: str, tick: int, fork_id: str | None, targets: Sequence[str], source: Source, as_json: bool) -> None:
    """Make a new run that goes on from a past tick of another one."""
    made = perform(source, lambda runs: runs.fork(run_id, tick, fork_id), targets)
    words = f"Run {made} goes on from tick {tick} of run {run_id}."
    tell(as_json, words, run_id=made, forked_from=run_id, tick=tick)


@click.command("export")
@run_id_argument
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, allow_dash=True), default="-",
    help="A file, for your eyes only; else the standard output.",
)  # fmt: skip
@source_options
def export_run(run_id: str, output: str, source: Source) -> None:
    """Write everything that is stored of a run, as JSON."""
    store = source.store_for("An export")

    from loom.cli.private_files import write_private
    from loom.cli.problems import Problem
    from loom.cli.session import client
    from loom.cli.session import perform as performed

    async def work() -> bytes:
        async with client(store) as runtime:
            return await runtime.export_run(run_id)

    data = performed(work()) + b"\n"
    if output == "-":
        click.echo(data, nl=False)
        return
    try:
        write_private(output, data)
    except OSError as error:
        raise Problem(f"{output} cannot be written: {error.strerror}.") from error


@click.command("import")
@click.argument("file", type=click.File("rb"))
@source_options
@json_option
def import_run(file: IO[bytes], source: Source, as_json: bool) -> None:
    """Store a run that was exported to FILE (- for the standard input). If it is not over, it goes on."""
    store = source.store_for("An import")

    from loom.cli.session import client
    from loom.cli.session import perform as performed

    data = file.read()

    async def work() -> str:
        async with client(store) as runtime:
            return await runtime.import_run(data)

    found = performed(work())
    tell(as_json, f"Run {found} is stored.", run_id=found)


@click.command()
@click.argument("run_id", required=False)
@click.option("--ended-before", metavar="WHEN", type=moment, help="A date, or an age as in 30d.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting many runs.")
@source_options
@json_option
def purge(run_id: str | None, ended_before: float | None, yes: bool, source: Source, as_json: bool) -> None:
    """Delete an ended run, or all that ended before a time. Nothing of them is left."""
    from loom.cli.shown import clock

    if (run_id is None) == (ended_before is None):
        raise click.UsageError("Name a RUN_ID, or a time with --ended-before.")
    if ended_before is not None and not yes:
        click.confirm(f"Delete all runs that ended before {clock(ended_before)}?", abort=True, err=True)

    gone = perform(source, lambda runs: runs.purge(run_id, ended_before))
    tell(as_json, f"{gone} {'run was' if gone == 1 else 'runs were'} deleted.", purged=gone)

"""One act on all runs that pass filters: the options that say which, the question before, the progress, the end."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from loom.cli.options import duration, instant, json_option, tag_option
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from loom.api.bulk import Bulk, BulkAction
    from loom.api.requests import RunFilters
    from loom.cli.options import Decorated
    from loom.cli.sources import Runs, RunSource

_STATUSES = ["running", "completed", "failed", "cancelled"]
_FILTERS = (
    click.option(
        "--status", type=click.Choice(_STATUSES), multiple=True, help="All runs in this status. May be repeated."
    ),
    click.option("--workflow", metavar="NAME", multiple=True, help="All runs of this workflow. May be repeated."),
    click.option("--idle/--not-idle", default=None, help="All runs that can(not) be moved from outside alone."),
    click.option("--idle-longer-than", metavar="TIME", type=duration, help="All runs idle for so long, as in 5m."),
    click.option("--waiting-for", metavar="TYPE", help="All runs that wait for an event of this type."),
    click.option("--paused/--not-paused", default=None, help="All runs that are (not) paused."),
    click.option("--parked/--not-parked", default=None, help="All runs that (do not) lack their code."),
    click.option("--stuck/--not-stuck", default=None, help="All runs that are (not) idle with nothing to move them."),
    click.option("--asleep/--not-asleep", default=None, help="All runs that (not) only a timer will move."),
    click.option(
        "--waiting/--not-waiting", default=None, help="All runs that (do not) wait for an event from outside."
    ),
    click.option("--id-prefix", metavar="TEXT", help="All runs whose id begins so."),
    click.option("--created-after", metavar="WHEN", type=instant, help="All runs started after a date or age, as 2d."),
    click.option("--created-before", metavar="WHEN", type=instant, help="All runs started before a date or age."),
    click.option("--updated-after", metavar="WHEN", type=instant, help="All runs changed after a date or age."),
    click.option("--parent", "parent_id", metavar="RUN_ID", help="All child runs of this run."),
    tag_option("All runs with this tag. May be repeated."),
)


def many_options(command: Decorated) -> Decorated:
    """RUN_ID or filters, `--dry-run` and `--yes`, and where the runs are; the command gets the filters as `wanted`."""

    @functools.wraps(command)
    def merged(*args: Any, **given: Any) -> Any:
        names = {parameter.name for parameter in click.get_current_context().command.params}
        found = {name: given.pop(name) for name in [*given] if name in names & _NAMES}
        wanted = {name: value for name, value in found.items() if value not in (None, ())}
        if "tags" in wanted:
            wanted["tags"] = dict(wanted["tags"])
        wanted |= {name: [*wanted[name]] for name in ("status", "workflow") if name in wanted}
        if (given["run_id"] is None) == (not wanted):
            raise click.UsageError("Name a RUN_ID, or filters such as --status failed: one of them.")
        return command(*args, wanted=wanted, **given)

    found: Any = merged
    for option in (
        source_options,
        json_option,
        click.option("--yes", "-y", is_flag=True, help="With filters: do not ask before."),
        click.option("--dry-run", is_flag=True, help="With filters: only say how many runs they are."),
        *reversed(_FILTERS),
        click.argument("run_id", required=False),
    ):
        found = option(found)
    return cast("Decorated", found)


_NAMES = frozenset((
    "status", "workflow", "idle", "idle_longer_than", "waiting_for", "paused", "parked", "stuck", "asleep", "waiting",
    "id_prefix", "created_after", "created_before", "updated_after", "parent_id", "tags",
))  # fmt: skip


def act_on_many(
    action: BulkAction, source: RunSource, wanted: dict[str, Any], *, as_json: bool, dry_run: bool, yes: bool
) -> None:
    """Count the runs, ask, do it with its progress, and say how it ended. Exits with 1 if some failed."""
    from loom.cli.output import print_json, print_line

    filters = cast("RunFilters", wanted)
    if dry_run or not yes:
        counted = perform(source, lambda runs: _ended(runs, action, filters, dry_run=True, shows=False))
        if dry_run:
            if as_json:
                print_json(counted)
            else:
                print_line(f"{_runs(counted.matched)} would be asked to {action}.")
                for run_id in counted.sample:
                    print_line(run_id)
            return
        if not counted.matched:
            click.echo("No run matches.", err=True)
            return
        click.confirm(f"{action.capitalize()} {_runs(counted.matched)}?", abort=True, err=True)
    shows = sys.stderr.isatty() and not as_json
    ended = perform(source, lambda runs: _ended(runs, action, filters, dry_run=False, shows=shows))
    if as_json:
        print_json(ended)
    else:
        print_line(f"{action}: {ended.done} of {_runs(ended.matched)} done, {ended.failed_count} failed.")
        for failure in ended.failed:
            click.echo(f"{failure.run_id}: {failure.code}: {failure.message}", err=True)
    if not ended.finished:
        from loom.cli.problems import Problem

        raise Problem("It was stopped before its end: what is done stays done. Ask again for the rest.")
    if ended.failed_count:
        raise SystemExit(1)


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


async def _ended(runs: Runs, action: BulkAction, filters: RunFilters, *, dry_run: bool, shows: bool) -> Bulk:
    """Do it, and show how far it is, where a person looks on."""
    from loom.api.bulk import Bulk

    told = Bulk(action=action, dry_run=dry_run, matched=0)
    async for told in runs.bulk(action, filters, dry_run=dry_run):
        if shows:
            click.echo(f"\r{told.done + told.failed_count:,} of {_runs(told.matched)}", nl=False, err=True)
    if shows:
        click.echo(err=True)
    return told

"""The group `loom schedule`: recurring starts, stored beside the engine that makes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from loom.cli.control_commands import tell
from loom.cli.options import duration, json_object, json_option, json_value, setting, tag_option
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.cli.sources import RunSource


_name_argument = click.argument("name")


@click.group()
def schedule() -> None:
    """Start runs again and again, at given times."""


@schedule.command()
@_name_argument
@click.argument("workflow")
@click.option("--every", metavar="TIME", type=duration, help="Each time so much has passed, as in 90s, 5m, 2h, 7d.")
@click.option("--cron", metavar="EXPR", help="Minute, hour, day of month, month, day of week: '30 9 * * mon-fri'.")
@click.option("--recurrence", metavar="JSON", type=json_object, help="A recurrence of Logic Apps; @file reads it.")
@click.option("--time-zone", metavar="TZ", help="Whose clock counts: Europe/Berlin or a Windows name; UTC without.")
@click.option("--input", metavar="JSON", type=json_value, help="What the runs begin with; @file reads it.")
@click.option("--parameter", "parameters", metavar="NAME=VALUE", type=setting, multiple=True, help="Of a flow.")
@click.option("--variable", "variables", metavar="NAME=VALUE", type=setting, multiple=True, help="Of a flow.")
@tag_option("Give the runs a tag. May be repeated.")
@click.option("--catch-up", is_flag=True, help="Start every run that was missed, not only the last.")
@source_options
@json_option
def create(name: str, workflow: str, source: RunSource, as_json: bool, **given: Any) -> None:
    """Start runs of WORKFLOW on schedule NAME.

    The same again changes nothing, something else replaces what was there. Whoever works on the store starts the runs.
    """
    from loom.cli.output import plain

    if sum(given[key] is not None for key in ("every", "cron", "recurrence")) != 1:
        raise click.UsageError("Say when, in one way: --every, --cron or --recurrence.")
    for key in ("parameters", "variables"):
        given[key] = dict(given[key]) or None
    given["tags"] = dict(given["tags"])

    found = perform(source, lambda runs: runs.schedule(name, workflow, given), starts=True)
    facts = plain(found)
    due = f"due next at {facts['next_at']}" if found.next_at is not None else "never due"
    tell(as_json, f"The schedule {name} of {workflow} is stored, and {due}.", **facts)


@schedule.command("list")
@source_options
@json_option
def list_schedules(source: RunSource, as_json: bool) -> None:
    """List schedules by their names."""
    from loom.cli.output import ago, print_json, print_table

    found, now = perform(source, lambda runs: runs.schedules(), starts=True), time.time()
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No schedules.")
    else:
        columns = ("schedule", "workflow", "when", "next", "last", "last run")
        rows: list[Sequence[str]] = [
            (
                each.name,
                each.workflow,
                _when(each.recurrence or {}),
                "paused" if each.paused else ago(each.next_at, now),
                ago(each.last_at, now),
                each.last_error or each.last_run_id or "",
            )
            for each in found
        ]
        print_table(columns, rows)


@schedule.command()
@_name_argument
@source_options
@json_option
def show(name: str, source: RunSource, as_json: bool) -> None:
    """Show a schedule: what it starts, when, and what came of it last."""
    from loom.cli.describe import json_words
    from loom.cli.output import plain, print_json, print_line

    found = perform(source, lambda runs: runs.get_schedule(name), starts=True)
    if as_json:
        print_json(found)
        return
    for key, value in plain(found).items():
        if value not in (None, {}, False):
            print_line(f"{key.replace('_', ' ')}: {json_words(value)}")


@schedule.command()
@_name_argument
@source_options
@json_option
def delete(name: str, source: RunSource, as_json: bool) -> None:
    """Let a schedule start nothing any more. Its runs are left alone."""
    perform(source, lambda runs: runs.unschedule(name), starts=True)
    tell(as_json, f"The schedule {name} is deleted.", name=name, asked="delete")


@schedule.command()
@_name_argument
@source_options
@json_option
def pause(name: str, source: RunSource, as_json: bool) -> None:
    """Let a schedule start nothing until it is resumed."""
    _ask(name, source, as_json, "pause")


@schedule.command()
@_name_argument
@source_options
@json_option
def resume(name: str, source: RunSource, as_json: bool) -> None:
    """Let a paused schedule go on. The last occurrence that was missed, if any, is made up for."""
    _ask(name, source, as_json, "resume")


def _ask(name: str, source: RunSource, as_json: bool, what: str) -> None:
    run_id = perform(source, lambda runs: runs.ask_schedule(name, what), starts=True)
    tell(as_json, f"The schedule {name} was asked to {what}.", name=name, run_id=run_id, asked=what)


def _when(recurrence: Mapping[str, Any]) -> str:
    """When a schedule is due, in few words."""
    timing = dict(recurrence)
    zone = timing.pop("timeZone", None)
    first = timing.pop("cron", None)
    if first is None:
        number, unit = timing.pop("interval", 1), str(timing.pop("frequency")).lower()
        first = f"every {unit}" if number == 1 else f"every {number} {unit}s"
    rest = [f"{key} {value}" for key, value in timing.items()] + ([str(zone)] if zone else [])
    return ", ".join([first, *rest])

"""`loom schedule …`: recurring starts, beside whoever works on them. Other rooms are imported inside commands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loom.cli.acting import tell
from loom.cli.options import duration, json_object, json_option, json_value, setting, store_option, tag_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom.runtime.durable.runtime import DurableRuntime
    from loom.runtime.durable.schedules import ScheduleInfo

T = TypeVar("T")

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
@store_option
@json_option
def create(name: str, workflow: str, store: str, as_json: bool, **given: Any) -> None:
    """Start runs of WORKFLOW on schedule NAME.

    The same again changes nothing, something else replaces what was there. Whoever works on the store starts the runs.
    """
    from loom.cli.problems import WrongUse

    for key in ("parameters", "variables"):
        given[key] = dict(given[key]) or None
    given["tags"] = dict(given["tags"])

    async def work(runtime: DurableRuntime) -> ScheduleInfo:
        try:
            return await runtime.schedule(name, workflow, **given)
        except ValueError as error:
            raise WrongUse(str(error)) from error

    found = _performed(store, work)
    due = f"due next at {_iso(found.next_at)}" if found.next_at is not None else "never due"
    tell(as_json, f"The schedule {name} of {workflow} is stored, and {due}.", **_fields(found))


@schedule.command("list")
@store_option
@json_option
def list_schedules(store: str, as_json: bool) -> None:
    """List schedules by their names."""
    from loom.cli.shown import ago, print_json, print_table

    async def work(runtime: DurableRuntime) -> list[ScheduleInfo]:
        return await runtime.schedules()

    found, now = _performed(store, work), time.time()
    if as_json:
        print_json([_fields(each) for each in found])
    elif not found:
        click.echo("No schedules.")
    else:
        columns = ("schedule", "workflow", "when", "next", "last", "last run")
        rows: list[Sequence[str]] = [
            (
                each.name,
                each.workflow,
                _when(each),
                "paused" if each.paused else ago(each.next_at, now),
                ago(each.last_at, now),
                each.last_error or each.last_run_id or "",
            )
            for each in found
        ]
        print_table(columns, rows)


@schedule.command()
@_name_argument
@store_option
@json_option
def show(name: str, store: str, as_json: bool) -> None:
    """Show a schedule: what it starts, when, and what came of it last."""
    from loom.cli.shown import print_json, print_line

    async def work(runtime: DurableRuntime) -> ScheduleInfo:
        return await runtime.get_schedule(name)

    fields = _fields(_performed(store, work))
    if as_json:
        print_json(fields)
        return
    for key, value in fields.items():
        if value not in (None, {}, False):
            print_line(f"{key.replace('_', ' ')}: {value}")


@schedule.command()
@_name_argument
@store_option
@json_option
def delete(name: str, store: str, as_json: bool) -> None:
    """Let a schedule start nothing any more. Its runs are left alone."""

    async def work(runtime: DurableRuntime) -> None:
        await runtime.unschedule(name)

    _performed(store, work)
    tell(as_json, f"The schedule {name} is deleted.", name=name, asked="delete")


@schedule.command()
@_name_argument
@store_option
@json_option
def pause(name: str, store: str, as_json: bool) -> None:
    """Let a schedule start nothing until it is resumed."""
    _ask(name, store, as_json, "pause")


@schedule.command()
@_name_argument
@store_option
@json_option
def resume(name: str, store: str, as_json: bool) -> None:
    """Let a paused schedule go on: with the last occurrence that was missed, if any."""
    _ask(name, store, as_json, "resume")


def _ask(name: str, store: str, as_json: bool, what: str) -> None:
    async def work(runtime: DurableRuntime) -> str:
        run_id = (await runtime.get_schedule(name)).run_id
        await getattr(runtime, what)(run_id)
        return run_id

    run_id = _performed(store, work)
    tell(as_json, f"The schedule {name} was asked to {what}.", name=name, run_id=run_id, asked=what)


def _performed(store: str, work: Callable[[DurableRuntime], Awaitable[T]]) -> T:
    from loom.cli.session import client, perform

    async def beside() -> T:
        async with client(store) as runtime:
            return await work(runtime)

    return perform(beside())


def _when(found: ScheduleInfo) -> str:
    """When a schedule is due, in few words."""
    timing = dict(found.recurrence)
    zone = timing.pop("timeZone", None)
    first = timing.pop("cron", None)
    if first is None:
        number, unit = timing.pop("interval", 1), str(timing.pop("frequency")).lower()
        first = f"every {unit}" if number == 1 else f"every {number} {unit}s"
    rest = [f"{key} {value}" for key, value in timing.items()] + ([str(zone)] if zone else [])
    return ", ".join([first, *rest])


def _fields(found: ScheduleInfo) -> dict[str, Any]:
    """A schedule for programs and people. Which parameters are secret only the flow knows: none is shown."""
    from loom.flows.records import MASK

    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    hidden = dict.fromkeys(found.parameters, MASK) if found.parameters else found.parameters
    return {**fields, "parameters": hidden, "next_at": _iso(found.next_at), "last_at": _iso(found.last_at)}


def _iso(at: Any) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at is not None else None

"""The group `loom flows`: which flows there are, whether their triggers fire, and the addresses of those."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from loom.cli.control_commands import tell
from loom.cli.options import duration, json_option
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.api.definitions import FlowStatus, TriggerFired, TriggerHistory
    from loom.cli.sources import Runs, RunSource

_name_argument = click.argument("name")


@click.group()
def flows() -> None:
    """Look at flows, enable them, and print their addresses."""


@flows.command("list")
@source_options
@json_option
def list_flows(source: RunSource, as_json: bool) -> None:
    """List flows by their names."""
    from loom.cli.output import ago, print_json, print_table

    found, now = perform(source, lambda runs: runs.flows(), starts=True), time.time()
    if as_json:
        print_json(found)
    elif not found:
        click.echo("No flows.")
    else:
        rows: list[Sequence[str]] = [
            (
                each.name,
                str(each.version) if each.version is not None else "",
                ago(each.updated_at, now),
                "enabled" if each.enabled else "disabled",
            )
            for each in found
        ]
        print_table(("flow", "version", "changed", "triggers"), rows)


@flows.command()
@_name_argument
@source_options
@json_option
def show(name: str, source: RunSource, as_json: bool) -> None:
    """Show the version of a flow, and what starts its runs."""
    from loom.cli.output import plain, print_json, print_line

    found = perform(source, lambda runs: runs.flow_status(name), starts=True)
    if as_json:
        print_json(found)
        return
    facts = plain(found)
    for key in ("name", "version", "updated_at", "disabled_at"):
        if facts[key] is not None:
            print_line(f"{key.replace('_', ' ')}: {facts[key]}")
    print_line(f"triggers: {'enabled' if found.enabled else 'disabled'}")
    for each in found.triggers:
        below = f" /{each.path}" if each.path is not None else ""
        by = f", fired by {' and '.join(each.methods)}{below}" if each.methods else ""
        print_line(f"  {each.name} ({each.type}){by}")


@flows.command()
@_name_argument
@source_options
@json_option
def enable(name: str, source: RunSource, as_json: bool) -> None:
    """Let the triggers of a flow fire again. What they have missed is not made up for."""
    _turn(name, source, as_json, enabled=True)


@flows.command()
@_name_argument
@source_options
@json_option
def disable(name: str, source: RunSource, as_json: bool) -> None:
    """Let the triggers of a flow fire no more.

    Requests to it are refused, its own schedules start nothing, and no service is polled or subscribed to for it. Runs
    under way go on, and it can still be started by `loom runs start`.
    """
    _turn(name, source, as_json, enabled=False)


def _turn(name: str, source: RunSource, as_json: bool, *, enabled: bool) -> None:
    from loom.cli.output import plain

    found: FlowStatus = perform(source, lambda runs: runs.turn_flow(name, enabled=enabled), starts=True)
    words = "fire" if enabled else "fire no more; runs under way go on"
    tell(as_json, f"The triggers of {name} {words}.", **plain(found))


_trigger_argument = click.argument("trigger", required=False)


@flows.command()
@_name_argument
@_trigger_argument
@source_options
@json_option
def history(name: str, trigger: str | None, source: RunSource, as_json: bool) -> None:
    """Show what became of a trigger, latest first.

    Without TRIGGER it is the only one of the flow.
    """
    from loom.cli.output import ago, print_json, print_line, print_table

    async def read(runs: Runs) -> TriggerHistory:
        return await runs.trigger_history(name, await _only_trigger(runs, name, trigger))

    found, now = perform(source, read, starts=True), time.time()
    if as_json:
        print_json(found)
        return
    listens = f"run {found.run_id}" if found.run_id is not None else "nothing listens for it"
    print_line(f"{found.name} ({found.type}), {listens}")
    if found.next_at is not None:
        print_line(f"next at: {found.next_at}")
    if found.subscribed is not None:
        print_line(f"subscribed: {'yes' if found.subscribed else 'no'}")
    rows: list[Sequence[str]] = [
        (
            ago(each.until or each.at, now),
            f"{each.status} x{each.repeats + 1}" if each.repeats else each.status,
            each.code,
            str(each.runs) if each.runs else "",
            each.message or each.run_id or "",
        )
        for each in found.firings
    ]
    if rows:
        print_table(("when", "status", "code", "runs", "first run or error"), rows)


@flows.command()
@_name_argument
@_trigger_argument
@source_options
@json_option
def fire(name: str, trigger: str | None, source: RunSource, as_json: bool) -> None:
    """Fire a trigger by hand.

    It polls its service now, or starts the run that time would start. What becomes of it is in `loom flows history`. A
    trigger that is fired by calls needs one: `loom flows url`.
    """
    from loom.cli.output import plain

    async def ask(runs: Runs) -> TriggerFired:
        return await runs.fire_trigger(name, await _only_trigger(runs, name, trigger))

    found = perform(source, ask, starts=True)
    tell(as_json, f"The trigger {found.name} fires: run {found.run_id}.", **plain(found))


async def _only_trigger(runs: Runs, name: str, trigger: str | None) -> str:
    """Return the trigger that is meant: the one that was named, or the only one."""
    if trigger is not None:
        return trigger
    names = [each.name for each in (await runs.flow_status(name)).triggers]
    if len(names) != 1:
        raise click.UsageError(f"Say which trigger: {', '.join(names)}." if names else f"{name} has no trigger.")
    return names[0]


@flows.command()
@_name_argument
@click.option("--expires", metavar="TIME", type=duration, help="Good for so long, as in 90d; for ever without.")
@click.option("--rotate", is_flag=True, help="End all addresses that were given out before.")
@click.option(
    "--callback-url",
    metavar="URL",
    envvar="LOOM_CALLBACK_URL",
    show_envvar=True,
    help="Where the server is, for an address that is made in a store.",
)
@source_options
@json_option
def url(name: str, source: RunSource, as_json: bool, **given: Any) -> None:
    """Print a signed address that fires the flow's trigger.

    Who has the address needs no key, so it is a secret. It opens this one trigger.
    """
    from loom.cli.output import print_json

    if source.url is None and given["callback_url"] is None:
        raise click.UsageError("Say where the server is: ask it with --url, or give --callback-url beside --store.")
    found = perform(
        source,
        lambda runs: runs.flow_address(
            name, given["callback_url"], expires_in=given["expires"], rotate=given["rotate"]
        ),
        starts=True,
    )
    if as_json:
        print_json(found)
    else:
        click.echo(found.url)

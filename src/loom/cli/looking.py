"""`loom workflow list|status|events|history|replay`: looking at runs. Other rooms are imported inside commands."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

import click

from loom.cli.options import duration, json_option, run_id_argument, store_option, tag_option, target_option

if TYPE_CHECKING:
    from collections.abc import Sequence

_STATUSES = ["running", "completed", "failed", "cancelled"]


@click.command("list")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs in this status.")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--idle/--not-idle", default=None, help="Only runs that can(not) be moved from outside alone.")
@click.option("--idle-longer-than", metavar="TIME", type=duration, help="Only runs idle for so long, as in 5m.")
@click.option("--waiting-for", metavar="TYPE", help="Only runs that wait for an event of this type.")
@click.option("--paused/--not-paused", default=None, help="Only runs that are (not) paused.")
@click.option("--parked/--not-parked", default=None, help="Only runs that (do not) lack their code.")
@click.option("--parent", metavar="RUN_ID", help="Only child runs of this run.")
@tag_option("Only runs with this tag. May be repeated.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many runs.")
@store_option
@json_option
def list_runs(store: str, as_json: bool, limit: int, tags: Sequence[tuple[str, str]], **filters: Any) -> None:
    """List runs, newest first."""
    from loom.cli.session import client, perform
    from loom.cli.shown import ago, print_json, print_table
    from loom.cli.status import info_dict, state_words, waiting_words

    async def work() -> list[Any]:
        async with client(store) as runtime:
            wanted = {**filters, "parent_id": filters["parent"], "tags": dict(tags), "limit": limit + 1}
            del wanted["parent"]
            return [info async for info in runtime.list(**wanted)]

    found = perform(work())
    infos, now = found[:limit], time.time()
    if as_json:
        print_json([info_dict(info) for info in infos])
    elif not infos:
        click.echo("No runs.")
    else:
        columns = ("run", "workflow", "status", "created", "updated", "waits for")
        print_table(
            columns,
            (
                (i.run_id, i.workflow, state_words(i), ago(i.created_at, now), ago(i.updated_at, now), waiting_words(i))
                for i in infos
            ),
        )
    if len(found) > limit:
        click.echo(f"There are more than these {limit} runs: use --limit, or a filter.", err=True)


@click.command()
@run_id_argument
@click.option("--tick", type=click.IntRange(min=0), help="As it was after this tick of its history.")
@click.option("--actions", "with_actions", is_flag=True, help="Of a flow also all its actions.")
@target_option
@store_option
@json_option
def status(
    run_id: str, tick: int | None, with_actions: bool, targets: Sequence[str], store: str, as_json: bool
) -> None:
    """Show a run: what it does, what it waits for, its timers and the events that it keeps.

    Of a flow: its current actions, and how far its loops are.
    """
    from loom.cli.flow_status import print_flow_status
    from loom.cli.session import client, perform
    from loom.cli.shown import print_json
    from loom.cli.status import info_dict, print_status, status_of

    async def work() -> tuple[Any, Any, dict[str, Any]]:
        async with client(store, targets) as runtime:
            info = await runtime.get(run_id)
            flow, found = await status_of(runtime, info, tick)
            return info, flow, {**info_dict(info), **found}

    info, flow, found = perform(work())
    if as_json:
        print_json(found)
    elif flow is not None:
        print_flow_status(info, flow, found["active_waiters"], with_actions)
    else:
        print_status(info, found, time.time())


@click.command()
@run_id_argument
@click.option("--after", type=click.IntRange(min=-1), default=-1, help="Begin behind this cursor.")
@click.option("--all", "internal", is_flag=True, help="Also what the engine reports about steps.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends; JSON is then one object per line.")
@store_option
@json_option
def events(run_id: str, after: int, internal: bool, follow: bool, store: str, as_json: bool) -> None:
    """Print the event stream of a run, each event with its cursor."""
    from loom.cli.describe import published_words
    from loom.cli.session import client, perform
    from loom.cli.shown import print_json, print_json_line, print_line
    from loom.cli.streams import entry_dict, stream

    collected: list[dict[str, Any]] = []

    async def work() -> None:
        async with client(store) as runtime:
            async for cursor, published in stream(runtime, run_id, after, internal=internal, follow=follow):
                if as_json and not follow:
                    collected.append(entry_dict(cursor, published))
                elif as_json:
                    print_json_line(entry_dict(cursor, published))
                else:
                    print_line(f"{cursor:>5}  {published_words(published)}")

    perform(work())
    if as_json and not follow:
        print_json(collected)


@click.command()
@run_id_argument
@click.option("--start", type=click.IntRange(min=0), default=0, help="Begin with this tick.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many ticks.")
@store_option
@json_option
def history(run_id: str, start: int, limit: int | None, store: str, as_json: bool) -> None:
    """Print what happened to a run, one tick per line. Data of a flow that is secure is masked."""
    from loom.cli.describe import tick_words
    from loom.cli.session import client, perform
    from loom.cli.shown import clock, print_json, print_line
    from loom.runtime.details import program_of_run
    from loom.runtime.masking import Masking
    from loom.runtime.plain import iso, plain

    collected: list[dict[str, Any]] = []

    async def work() -> None:
        async with client(store) as runtime:
            program = await program_of_run(runtime, run_id)
            masking = Masking(program) if program is not None else None
            async for seq, at, entry in runtime.history(run_id, start=start):
                if limit is not None and seq >= start + limit:
                    return
                tick = masking.tick(entry) if masking is not None else entry
                if as_json:
                    kind = type(tick).__name__
                    collected.append(
                        {"seq": seq, "at": iso(at), "type": kind, "summary": tick_words(tick), "tick": plain(tick)}
                    )
                else:
                    print_line(f"{seq:>5}  {clock(at)}  {tick_words(tick)}")

    perform(work())
    if as_json:
        print_json(collected)


@click.command()
@run_id_argument
@target_option
@store_option
@json_option
def replay(run_id: str, targets: Sequence[str], store: str, as_json: bool) -> None:
    """Reduce the history of a run again, and say whether that gives what is stored.

    Exits with 1 if it does not.
    """
    from loom.cli.problems import Problem
    from loom.cli.replaying import Replayed, replayed
    from loom.cli.session import client, perform
    from loom.cli.shown import print_json, print_line
    from loom.store.errors import RunNotFound

    async def work() -> Replayed:
        async with client(store, targets) as runtime:
            stored = await runtime.store.export(run_id)
            if stored is None:
                raise RunNotFound(run_id)
            return replayed(stored, runtime.convert_of(stored.row).field)

    found = perform(work())
    verdict: Literal["same", "different"] = "different" if found.differences else "same"
    if as_json:
        shown = {name: getattr(found, name) for name in ("first_tick", "ticks", "events", "snapshot", "differences")}
        print_json({"run_id": run_id, "replay": verdict, **shown})
    else:
        for difference in found.differences:
            print_line(difference)
        since = f" from tick {found.first_tick} on" if found.first_tick else ""
        gives = "something else than is stored" if found.differences else "what is stored"
        print_line(f"Run {run_id}: {found.ticks} ticks{since} and {found.events} events give {gives}.")
    if found.differences:
        raise SystemExit(Problem.exit_code)

"""The commands that look at runs: list, status, events, history, replay and why; and what `--watch` does."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import click

from loom.cli.options import duration, instant, json_option, run_id_argument, tag_option, target_option
from loom.cli.output import console
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom.api.requests import RunFilters
    from loom.api.runs import HistoryItem, Run, StreamEvent
    from loom.api.state import State
    from loom.cli.output import TextPage
    from loom.cli.sources import Runs, RunSource

    Look = Callable[[Runs], Awaitable[tuple[TextPage, bool]]]
    """What there is to see, and whether that is the end of it."""


_STATUSES = ["running", "completed", "failed", "cancelled"]
_ORDERS = ["created_at", "-created_at", "updated_at", "-updated_at"]
_INTERRUPTED = 130
"""What shells say of a program that Ctrl-C has ended."""

_watch_option = click.option("--watch", "-w", is_flag=True, help="Draw it again and again on a terminal, until Ctrl-C.")


@click.command("list")
@click.option(
    "--status", type=click.Choice(_STATUSES), multiple=True, help="Only runs in this status. May be repeated."
)
@click.option("--workflow", metavar="NAME", multiple=True, help="Only runs of this workflow. May be repeated.")
@click.option("--idle/--not-idle", default=None, help="Only runs that can(not) be moved from outside alone.")
@click.option("--idle-longer-than", metavar="TIME", type=duration, help="Only runs idle for so long, as in 5m.")
@click.option("--waiting-for", metavar="TYPE", help="Only runs that wait for an event of this type.")
@click.option("--paused/--not-paused", default=None, help="Only runs that are (not) paused.")
@click.option("--parked/--not-parked", default=None, help="Only runs that (do not) lack their code.")
@click.option(
    "--stuck/--not-stuck", default=None, help="Only runs that are (not) idle with nothing that can move them."
)
@click.option("--asleep/--not-asleep", default=None, help="Only runs that (not) only a timer will move.")
@click.option("--waiting/--not-waiting", default=None, help="Only runs that (do not) wait for an event from outside.")
@click.option("--id-prefix", metavar="TEXT", help="Only runs whose id begins so.")
@click.option("--created-after", metavar="WHEN", type=instant, help="Only runs started after a date or age, as 2d.")
@click.option("--created-before", metavar="WHEN", type=instant, help="Only runs started before a date or age.")
@click.option("--updated-after", metavar="WHEN", type=instant, help="Only runs changed after a date or age.")
@click.option(
    "--order", type=click.Choice(_ORDERS), help="By the start or by the last change; with - the newest are first."
)
@click.option("--parent", "parent_id", metavar="RUN_ID", help="Only child runs of this run.")
@tag_option("Only runs with this tag. May be repeated.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many runs.")
@click.option("--results", is_flag=True, help="With --json: with the results of the runs too.")
@_watch_option
@source_options
@json_option
def list_runs(
    source: RunSource,
    as_json: bool,
    watch: bool,
    results: bool,
    limit: int,
    tags: Sequence[tuple[str, str]],
    status: Sequence[str],
    workflow: Sequence[str],
    **given: Any,
) -> None:
    """List runs, newest first unless --order says otherwise."""
    from loom.cli.output import print_json
    from loom.cli.status import list_page

    # The options have the names of the filters.
    wanted = {
        **given,
        "status": [*status] or None,
        "workflow": [*workflow] or None,
        "tags": dict(tags),
        "include": "result" if results and as_json else None,
    }
    filters = cast("RunFilters", wanted)

    async def look(runs: Runs) -> tuple[TextPage, bool]:
        return list_page(await runs.list(filters, limit), time.time()), False

    if watch:
        _watch(source, look, as_json=as_json)
        return
    found = _found(source, filters, limit + 1, as_json=as_json)
    if as_json:
        print_json(found[:limit])
    else:
        list_page(found[:limit], time.time()).print()
    if len(found) > limit:
        click.echo("There are more runs: use a larger --limit, or a filter.", err=True)


_COUNTED = (
    ("running", "completed", "failed", "cancelled"),
    ("idle", "asleep", "waiting", "paused", "parked", "stuck"),
)


@click.command()
@click.option("--workflow", "workflows", metavar="NAME", multiple=True, help="Only of this workflow. May be repeated.")
@source_options
@json_option
def counts(workflows: Sequence[str], source: RunSource, as_json: bool) -> None:
    """Count runs by status, by what holds them and by workflow."""
    from loom.cli.output import TextPage, print_json

    found = perform(source, lambda runs: runs.counts(workflows))
    if as_json:
        print_json(found)
        return
    names = [name for part in _COUNTED for name in part]
    rows = [(each.workflow, *(str(getattr(each, name)) for name in names)) for each in found.workflows]
    known = [getattr(found, name) for name in names]
    page = TextPage()
    page.table(("workflow", *names), [*rows, ("all", *("?" if count is None else str(count) for count in known))])
    page.print()


@click.command()
@source_options
@json_option
def workers(source: RunSource, as_json: bool) -> None:
    """List the processes that work on runs."""
    from loom.cli.output import TextPage, ago, print_json

    found = perform(source, lambda runs: runs.workers())
    if as_json:
        print_json(found)
        return
    page, now = TextPage(), time.time()
    rows = [
        (
            each.name,
            each.role,
            "yes" if each.alive else "no",
            ago(each.seen, now) if each.seen is not None else "?",
            "?" if each.owned is None else str(each.owned),
            ", ".join(each.workflows) if each.workflows is not None else "?",
        )
        for each in found
    ]
    if rows:
        page.table(("worker", "role", "alive", "seen", "owns", "workflows"), rows)
    else:
        page.line("No process works on runs.")
    page.print()


def _found(source: RunSource, filters: RunFilters, limit: int, *, as_json: bool) -> Sequence[Run]:
    """Find the runs for a list. For people the rows of a store are enough, which are read without an engine."""
    if source.url is not None or as_json:
        return perform(source, lambda runs: runs.list(filters, limit))
    from loom.cli.session import perform as performed
    from loom.cli.store_rows import listed

    return performed(listed(source.store, filters, limit))


@click.command()
@run_id_argument
@source_options
@json_option
def why(run_id: str, source: RunSource, as_json: bool) -> None:
    """Say in one sentence what holds a run now.

    A waiter, a timer, a back-off, a lease, a step that executes; or that it is paused, parked, stuck or over. If
    several things hold it, the others follow, one a line.
    """
    from loom.cli.output import clean, print_json

    found = perform(source, lambda runs: runs.why(run_id))
    if as_json:
        print_json(found)
        return
    click.echo(clean(found.sentence))
    for cause in found.causes[1:]:
        click.echo(f"- {clean(cause.sentence)}")


@click.command()
@run_id_argument
@click.option("--tick", type=click.IntRange(min=0), help="As it was after this tick of its history.")
@click.option("--actions", "with_actions", is_flag=True, help="Of a flow also all its actions.")
@_watch_option
@target_option
@source_options
@json_option
def status(
    run_id: str,
    tick: int | None,
    with_actions: bool,
    watch: bool,
    targets: Sequence[str],
    source: RunSource,
    as_json: bool,
) -> None:
    """Show what a run does, waits for and keeps, and its timers.

    Of a flow: its current actions, and how far its loops are. With --watch until the run has ended.
    """
    from loom.cli.output import print_json
    from loom.cli.status import combined, is_flow, status_data, status_page

    async def found(runs: Runs) -> tuple[Run, State]:
        run, state = await runs.get(run_id), await runs.state(run_id, tick)
        return combined(run, state), state

    def page(run: Run, state: State) -> TextPage:
        if not is_flow(state):
            return status_page(run, state, time.time(), past=tick is not None)
        from loom.cli.flow_status import flow_page  # it loads the whole language of flows

        return flow_page(run, state, time.time(), past=tick is not None, with_actions=with_actions)

    async def look(runs: Runs) -> tuple[TextPage, bool]:
        run, state = await found(runs)
        return page(run, state), run.status != "running" or tick is not None

    if watch:
        _watch(source, look, as_json=as_json, targets=targets)
    elif as_json:
        print_json(status_data(*perform(source, found, targets)))
    else:
        page(*perform(source, found, targets)).print()


def _watch(source: RunSource, look: Look, *, as_json: bool, targets: Sequence[str] = ()) -> None:

    if as_json:
        raise click.UsageError("--watch is for people: programs follow `loom workflow events --follow --json`.")
    with suppress(KeyboardInterrupt):  # which is how it is meant to end
        perform(source, lambda runs: watched(runs, look), targets)


@click.command()
@run_id_argument
@click.option("--after", type=click.IntRange(min=-1), default=-1, help="Begin behind this cursor.")
@click.option("--all", "internal", is_flag=True, help="Also what the engine reports: steps and actions.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends; JSON is then one object per line.")
@source_options
@json_option
def events(run_id: str, after: int, internal: bool, follow: bool, source: RunSource, as_json: bool) -> None:
    """Print the event stream of a run, each event with its cursor."""
    from loom.cli.describe import entry_words
    from loom.cli.output import print_json, print_json_line, print_line

    collected: list[StreamEvent] = []

    async def work(runs: Runs) -> None:
        async for entry in runs.events(run_id, after, internal=internal, follow=follow):
            if as_json and not follow:
                collected.append(entry)
            elif as_json:
                print_json_line(entry)
            else:
                print_line(f"{entry.seq:>5}  {entry_words(entry)}")

    try:
        perform(source, work)
    except KeyboardInterrupt:
        if not follow:
            raise
        raise SystemExit(_INTERRUPTED) from None  # as it is with others who follow something
    if as_json and not follow:
        print_json(collected)


@click.command()
@run_id_argument
@click.option("--start", type=click.IntRange(min=0), default=0, help="Begin with this tick.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many ticks.")
@source_options
@json_option
def history(run_id: str, start: int, limit: int | None, source: RunSource, as_json: bool) -> None:
    """Print what happened to a run, one tick per line.

    Below a failed attempt is the line of code where it failed; --json has the whole traceback. Data of a flow that is
    secure is masked.
    """
    from loom.cli.describe import place_lines, tick_words
    from loom.cli.output import clock, print_json, print_line

    collected: list[HistoryItem] = []

    async def work(runs: Runs) -> None:
        async for entry in runs.history(run_id, start):
            if limit is not None and entry.seq >= start + limit:
                return
            if as_json:
                collected.append(entry)
            else:
                print_line(f"{entry.seq:>5}  {clock(entry.at.timestamp())}  {tick_words(entry.tick)}")
                for line in place_lines(entry.tick):
                    print_line(f"{'':>7}{line}")

    perform(source, work)
    if as_json:
        print_json(collected)


@click.command()
@run_id_argument
@target_option
@source_options
@json_option
def replay(run_id: str, targets: Sequence[str], source: RunSource, as_json: bool) -> None:
    """Reduce a history again, and compare with what is stored.

    Exits with 1 if the ticks of the run give something else.
    """
    from loom.cli.output import print_json, print_line
    from loom.cli.problems import Problem

    found = perform(source, lambda runs: runs.replay(run_id), targets)
    differs = found.replay == "different"
    if as_json:
        print_json(found)
    else:
        for difference in found.differences:
            print_line(difference)
        since = f" from tick {found.first_tick} on" if found.first_tick else ""
        gives = "something else than is stored" if differs else "what is stored"
        print_line(f"Run {run_id}: {found.ticks} ticks{since} and {found.events} events give {gives}.")
    if differs:
        raise SystemExit(Problem.exit_code)


INTERVAL_S = 1.0
PATIENCE_S = 30.0
"""Seconds to wait for a server or a database that is restarted."""


async def watched(runs: Runs, look: Look) -> None:
    """Draw what there is until the end of it, or until Ctrl-C. What was last seen stays. Elsewhere, print each look."""
    import asyncio

    from rich.live import Live

    from loom.store.errors import StoreUnavailable

    screen = console()
    # What does not fit is cut, so that it can be drawn over; the last one is shown whole.
    with Live(console=screen, auto_refresh=False, vertical_overflow="ellipsis") as region:
        seen_at: float | None = None
        while True:
            try:
                page, is_last = await look(runs)
            except StoreUnavailable:
                if seen_at is None or time.monotonic() > seen_at + PATIENCE_S:
                    raise
                await asyncio.sleep(INTERVAL_S)
                continue
            seen_at = time.monotonic()
            if screen.is_terminal:
                region.update(page.drawn(screen.width), refresh=True)
            else:
                page.print()
            if is_last:
                return
            await asyncio.sleep(INTERVAL_S)

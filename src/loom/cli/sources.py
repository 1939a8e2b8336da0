"""Find the runs that a command is about: in a store, or on a server. Commands know only what `Runs` says.

Everything in it has the types of the HTTP API, which are also what `--json` prints. The two sources are imported when
one is needed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click
from click.core import ParameterSource

from loom.cli.options import store_option

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from loom.api.bulk import Bulk, BulkAction
    from loom.api.changes import RunChange
    from loom.api.counts import Counts
    from loom.api.definitions import Definition, FlowAddress, FlowStatus, Schedule, TriggerFired, TriggerHistory
    from loom.api.requests import ForkRequest, RunFilters
    from loom.api.runs import Delivery, HistoryItem, Replay, Run, StreamEvent
    from loom.api.state import State
    from loom.api.views import Timeline
    from loom.api.why import Why
    from loom.api.workers import Worker
    from loom.cli.options import Decorated
    from loom.flows.limits import Limits

    Given = Mapping[str, Any]
    """What the options of a command say, by their names."""

T = TypeVar("T")


class RunSource(NamedTuple):
    """What the options of a command say about where the runs are."""

    store: str
    url: str | None = None
    """The server that is asked, instead of a store."""
    api_key: str | None = None


class Runs(Protocol):
    """Runs and schedules, in a store or on a server."""

    async def list(self, filters: RunFilters, limit: int) -> Sequence[Run]:
        """List runs that pass the filters, newest first, up to a limit."""
        ...

    async def counts(self, workflows: Sequence[str]) -> Counts:
        """Count the runs, of these workflows or of all."""
        ...

    def changes(self, filters: RunFilters, after: str | None) -> AsyncIterator[RunChange]:
        """Follow the runs that pass the filters, from now on or after the id of a change."""
        ...

    async def workers(self) -> Sequence[Worker]:
        """List the processes that work on runs."""
        ...

    async def get(self, run_id: str) -> Run:
        """Get a run as it is now."""
        ...

    async def why(self, run_id: str) -> Why:
        """Tell what holds a run now."""
        ...

    async def timeline(self, run_id: str, lane: str | None, offset: int, limit: int) -> Timeline:
        """Tell what a run did over time; with a lane a page of its bars."""
        ...

    async def state(self, run_id: str, tick: int | None) -> State:
        """Tell what a run does, waits for and keeps: now, or after a tick."""
        ...

    def events(self, run_id: str, after: int, *, internal: bool, follow: bool) -> AsyncIterator[StreamEvent]:
        """Read the stream of a run after a cursor: to the last event of now, or to the end of the run."""
        ...

    def history(self, run_id: str, start: int) -> AsyncIterator[HistoryItem]:
        """Read the ticks of a run from a number on."""
        ...

    async def replay(self, run_id: str) -> Replay:
        """Tell whether the ticks of a run give what is stored."""
        ...

    async def start(self, workflow: str, given: Given, run_id: str | None, tags: Mapping[str, str]) -> str:
        """Start a run with what the options of a command say; return its id."""
        ...

    async def send(self, run_id: str, event: str, value: Any, aim: Mapping[str, str | None]) -> Delivery:
        """Send a run an event by the name of its type. `aim` has `step`, `waiter_id` and `event_id`."""
        ...

    async def ask(self, run_id: str, what: str, **how: Any) -> None:
        """Cancel, pause, resume or retry a run; `how` are the arguments of the call or of the request."""
        ...

    def bulk(self, action: BulkAction, filters: RunFilters, *, dry_run: bool) -> AsyncIterator[Bulk]:
        """Do something with all runs that pass filters, and tell how far it is."""
        ...

    async def deepen(self, run_id: str, max_depth: int) -> None:
        """Resume a run with a higher limit of its depth."""
        ...

    async def heal(self, run_id: str, event: str, value: Any) -> None:
        """Retry a failed run with another event, by the name of its type, in place of the one that failed it."""
        ...

    async def fork(self, run_id: str, request: ForkRequest) -> str:
        """Make a run that goes on from a past tick of another one; its id."""
        ...

    async def export_run(self, run_id: str) -> bytes:
        """Get everything that is stored of a run, as JSON."""
        ...

    async def import_run(self, data: bytes) -> str:
        """Store a run that was exported; its id."""
        ...

    async def skip(self, run_id: str, timer: int | None) -> None:
        """End the delays of a run now, or the one of this timer."""
        ...

    async def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Replace the tags of a run."""
        ...

    async def purge(self, run_id: str | None, ended_before: float | None) -> int:
        """Delete an ended run, or all that ended before a time; how many there were."""
        ...

    async def schedule(self, name: str, workflow: str, given: Given) -> Schedule:
        """Start runs again and again."""
        ...

    async def schedules(self) -> Sequence[Schedule]:
        """List all schedules, by their names."""
        ...

    async def get_schedule(self, name: str) -> Schedule:
        """Get a schedule as it is now."""
        ...

    async def unschedule(self, name: str) -> None:
        """End a schedule."""
        ...

    async def ask_schedule(self, name: str, what: str) -> str:
        """Pause or resume a schedule; the id of the run that it is."""
        ...

    async def flows(self) -> Sequence[Definition]:
        """List the flows, by their names."""
        ...

    async def flow_status(self, name: str) -> FlowStatus:
        """Tell whether a flow is enabled, and what starts its runs."""
        ...

    async def turn_flow(self, name: str, *, enabled: bool) -> FlowStatus:
        """Let the triggers of a flow fire, or fire no more."""
        ...

    async def trigger_history(self, name: str, trigger: str) -> TriggerHistory:
        """Tell what has become of a trigger, latest first."""
        ...

    async def fire_trigger(self, name: str, trigger: str) -> TriggerFired:
        """Fire a trigger by hand."""
        ...

    async def flow_address(self, name: str, url: str | None, *, expires_in: float | None, rotate: bool) -> FlowAddress:
        """Get a signed address of a flow's trigger; in a store `url` says where the server is."""
        ...


def source_options(command: Decorated) -> Decorated:
    """`--store`, `--url` and `--api-key`, which the command gets as one `source`."""

    @functools.wraps(command)
    def merged(*args: Any, store: str, url: str | None, api_key: str | None, **rest: Any) -> Any:
        return command(*args, source=_chosen(store, url, api_key), **rest)

    key = click.option(
        "--api-key",
        metavar="KEY",
        envvar="LOOM_API_KEY",
        show_envvar=True,
        help="A key of the server. Other users of this machine can see arguments: rather set the variable.",
    )
    address = click.option(
        "--url",
        metavar="URL",
        envvar="LOOM_URL",
        show_envvar=True,
        help="Ask a server instead of a store, as in http://127.0.0.1:8080.",
    )
    found: Decorated = store_option(address(key(merged)))  # type: ignore[assignment]
    return found


def _chosen(store: str, url: str | None, api_key: str | None) -> RunSource:
    """What is said on the command line wins over the environment, and there a server over a store."""
    context = click.get_current_context()
    said = {name for name in ("store", "url") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if said == {"store", "url"}:
        raise click.UsageError("--store and --url exclude each other: the runs are in a store, or on a server.")
    if "url" not in said:
        # A variable that is empty says nothing; an option that is, for want of a variable, must not mean the store.
        url = None if "store" in said else url or None
    return RunSource(store, url, api_key or None)


def perform(
    source: RunSource,
    work: Callable[[Runs], Awaitable[T]],
    targets: Sequence[str] = (),
    limits: Limits | None = None,
    *,
    starts: bool = False,
) -> T:
    """Do the work of a command with the runs of its source. What goes wrong there is told in one line.

    Work that starts runs, or is about schedules, has to say so: in a store it needs more than other work does.
    """
    import asyncio

    from loom.cli.problems import WrongUse

    opening: AbstractAsyncContextManager[Runs]
    telling: AbstractContextManager[None]
    if source.url is not None:
        from loom.cli.server_runs import server_runs, told_by_server

        if targets:
            raise WrongUse("A server has the code of its workflows: --target is for stores.")
        opening, telling = server_runs(source.url, source.api_key), told_by_server()
    else:
        from loom.cli.problems import told
        from loom.cli.store_runs import store_runs

        opening, telling = store_runs(source.store, targets, limits, starts=starts), told()

    async def done() -> T:
        async with opening as runs:
            return await work(runs)

    with telling:
        return asyncio.run(done())

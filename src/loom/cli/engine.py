"""`loom worker` and `loom run`: processes that work on runs. Other rooms are imported inside commands."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import Duration, JsonObject, json_option, store_option, tag_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.runtime.durable.runtime import DurableRuntime


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--name", default="", help="What this worker is called among others.")
@click.option(
    "--idle-timeout", metavar="TIME", type=Duration(), default=60.0, help="Release runs idle for so long (60s)."
)
@click.option("--max-in-memory", type=click.IntRange(min=1), help="At most so many runs in memory.")
@click.option("--retention", metavar="TIME", type=Duration(), help="Delete runs so long after their end, as in 30d.")
@store_option
def worker(targets: Sequence[str], store: str, **settings: Any) -> None:
    """Work for workflows until SIGTERM or SIGINT: take up their runs, and those that are started meanwhile.

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one. Its runs are stored
    under that name, or under NAME with NAME=TARGET. Unfinished runs stay in the store and go on with the next worker.
    """
    from loom.cli.session import perform, safe_url, store_at
    from loom.cli.targets import named_workflow
    from loom.runtime.connect import connect

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    named = dict(named_workflow(target) for target in targets)

    async def work() -> None:
        stopped = _stop_on_signals()
        async with connect(store_at(store, upgrade=True), **settings) as runtime:
            await _take_work(runtime, named)
            click.echo(f"Working for {', '.join(named)} on {safe_url(store)}. Stop with Ctrl-C.", err=True)
            await stopped.wait()
        click.echo("Stopped. Unfinished runs are in the store.", err=True)

    perform(work())


@click.command()
@click.argument("target")
@click.option("--input", "inputs", metavar="JSON", type=JsonObject(), help="The inputs of the run; @file reads them.")
@click.option("--run-id", metavar="ID", help="The id of the run. If it exists already, it is gone on with.")
@tag_option("Give the run a tag. May be repeated.")
@store_option
@json_option
def run(
    target: str,
    inputs: dict[str, Any] | None,
    run_id: str | None,
    tags: Sequence[tuple[str, str]],
    store: str,
    as_json: bool,
) -> None:
    """Run a workflow to its end and print its result.

    The run is in the store from its start on: if this process dies, the same command with the same --run-id goes on.
    """
    from loom.cli.outcomes import result_of, tell_outcome
    from loom.cli.session import perform, store_at
    from loom.cli.targets import named_workflow
    from loom.runtime.connect import connect

    name, workflow = named_workflow(target)

    async def work() -> dict[str, Any]:
        stopped = _stop_on_signals()
        async with connect(store_at(store, upgrade=True)) as runtime:
            await _take_work(runtime, {name: workflow})
            handler = await runtime.start(name, inputs or {}, run_id=run_id, tags=dict(tags))
            return await result_of(runtime, handler, stopped)

    tell_outcome(perform(work()), as_json)


async def _take_work(runtime: DurableRuntime, named: dict[str, Any]) -> None:
    """Work for these from now on, or raise why this process cannot."""
    for name, workflow in named.items():
        runtime.register(workflow, name=name)
    await runtime.ready()


def _stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, so that what is under way can be put down in order."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, stopped.set)
        except NotImplementedError:  # event loops on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    return stopped

"""`loom worker` and `loom run`: processes that work on runs. Other rooms are imported inside commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import duration, json_object, json_option, store_option, tag_option

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command()
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@click.option("--name", default="", help="What this worker is called among others.")
@click.option(
    "--idle-timeout",
    metavar="TIME",
    type=duration,
    default="60s",
    show_default=True,
    help="Release runs idle for so long.",
)
@click.option("--max-in-memory", type=click.IntRange(min=1), help="At most so many runs in memory.")
@click.option("--retention", metavar="TIME", type=duration, help="Delete runs so long after their end, as in 30d.")
@store_option
def worker(targets: Sequence[str], store: str, **settings: Any) -> None:
    """Work for workflows until SIGTERM or SIGINT: take up their runs, and those that are started meanwhile.

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one. Its runs are stored
    under that name, or under NAME with NAME=TARGET. Unfinished runs stay in the store and go on with the next worker.
    """
    import logging

    from loom.cli.problems import WrongUse
    from loom.cli.session import perform, safe_url
    from loom.cli.targets import named_workflow
    from loom.cli.working import engine

    named: dict[str, Any] = {}
    for target in targets:
        name, workflow = named_workflow(target)
        if name in named:
            raise WrongUse(f"Two targets are named {name}: give one of them another name with NAME=TARGET.")
        named[name] = workflow

    async def work() -> None:
        async with engine(store, named, logging.INFO, **settings) as (_, stopped):
            click.echo(f"Working for {', '.join(named)} on {safe_url(store)}. Stop with Ctrl-C.", err=True)
            await stopped.wait()
        click.echo("Stopped. Unfinished runs are in the store.", err=True)

    perform(work())


@click.command()
@click.argument("target")
@click.option("--input", "inputs", metavar="JSON", type=json_object, help="The inputs of the run; @file reads them.")
@click.option("--run-id", metavar="ID", help="The id of the run; one that exists goes on.")
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

    The run is in the store from its start on: if this process dies, the same command with the same --run-id goes on,
    with the same --input or without.
    """
    import logging

    from loom.cli.outcomes import begun, result_of, tell_outcome
    from loom.cli.session import perform
    from loom.cli.targets import named_workflow
    from loom.cli.working import engine

    name, workflow = named_workflow(target)

    async def work() -> dict[str, Any]:
        async with engine(store, {name: workflow}, logging.WARNING) as (runtime, stopped):
            handler = await begun(runtime, name, inputs, run_id, dict(tags))
            return await result_of(runtime, handler, stopped)

    tell_outcome(perform(work()), as_json)

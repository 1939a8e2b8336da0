"""`loom workflow start|send|cancel|pause|resume|retry`: telling runs something, beside whoever works on them.

Each returns once what was asked is in the store. Other rooms are imported inside commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import (
    json_object,
    json_option,
    json_value,
    limit_options,
    run_id_argument,
    start_options,
    store_option,
    tag_option,
    target_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def tell(as_json: bool, words: str, **facts: Any) -> None:
    """Say what was done: in words, or as facts."""
    from loom.cli.shown import print_json, print_line

    if as_json:
        print_json(facts)
    else:
        print_line(words)


@click.command()
@click.argument("workflow")
@click.argument("inputs", metavar="[JSON]", type=json_value, required=False)
@click.option("--body", metavar="JSON", type=json_value, help="The same as JSON: the body that a flow begins with.")
@start_options
@click.option("--run-id", metavar="ID", help="The id of the run; the same start again is then the same run.")
@tag_option("Give the run a tag. May be repeated.")
@limit_options
@target_option
@store_option
@json_option
def start(workflow: str, inputs: Any, targets: Sequence[str], store: str, as_json: bool, **given: Any) -> None:
    """Start a run of WORKFLOW with the inputs in JSON, and leave it to whoever works for that name.

    WORKFLOW is the name that its runs go by, or the .json or .yaml file of a flow.
    """
    from loom.cli.flow_files import limits_of
    from loom.cli.session import client, perform
    from loom.cli.starting import begun_by, named_target

    name, targets = named_target(workflow, targets)
    given["body"] = inputs if given["body"] is None else given["body"]
    limits = limits_of(given["max_iterations"], given["max_duration"])

    async def work() -> str:
        async with client(store, targets, limits) as runtime:
            inputs = begun_by(runtime, name, given)
            return (await runtime.start(name, inputs, run_id=given["run_id"], tags=dict(given["tags"]))).run_id

    found = perform(work())
    tell(as_json, f"Run {found} of {name} is stored.", run_id=found, workflow=name)


@click.command()
@run_id_argument
@click.argument("event_type", metavar="TYPE")
@click.argument("fields", metavar="[JSON]", type=json_object, required=False)
@click.option("--data", metavar="JSON", type=json_value, help="The same as JSON, but any value: the data for a flow.")
@click.option("--event-id", metavar="ID", help="The same event with the same id again changes nothing.")
@click.option("--step", metavar="NAME", help="Only this step shall get it.")
@click.option("--waiter-id", metavar="ID", help="Only the waiters of this id shall get it.")
@target_option
@store_option
@json_option
def send(  # noqa: PLR0913, PLR0917 - one per option
    run_id: str,
    event_type: str,
    fields: dict[str, Any] | None,
    data: Any,
    event_id: str | None,
    step: str | None,
    waiter_id: str | None,
    targets: Sequence[str],
    store: str,
    as_json: bool,
) -> None:
    """Send an event of TYPE, with the fields in JSON, to a run.

    TYPE is the name of the event's class, short or in full. Without --target it must be one that the run waits for or
    that one of its steps takes, and the fields are not checked here. To a flow, TYPE is what an action waits for. JSON
    may be @file, or @- for the standard input.
    """
    from loom.cli.sending import awaited_instead, event_for, sent_as
    from loom.cli.session import client, perform

    async def work() -> tuple[str, str]:
        async with client(store, targets) as runtime:
            event = await event_for(runtime, run_id, event_type, fields if data is None else data)
            other = await awaited_instead(runtime, run_id, event)
            await runtime.send_event(run_id, event, step=step, waiter_id=waiter_id, event_id=event_id)
            return sent_as(event), f" Now it waits for {other}." if other else ""

    sent, note = perform(work())
    tell(as_json, f"{sent} is stored for run {run_id}.{note}", run_id=run_id, sent=sent, event_id=event_id)


def _ask(run_id: str, store: str, as_json: bool, what: str) -> None:
    from loom.cli.session import client, perform

    async def work() -> None:
        async with client(store) as runtime:
            await getattr(runtime, what)(run_id)

    perform(work())
    tell(as_json, f"Run {run_id} was asked to {what}.", run_id=run_id, asked=what)


@click.command()
@run_id_argument
@store_option
@json_option
def cancel(run_id: str, store: str, as_json: bool) -> None:
    """Ask a run to stop for good."""
    _ask(run_id, store, as_json, "cancel")


@click.command()
@run_id_argument
@store_option
@json_option
def pause(run_id: str, store: str, as_json: bool) -> None:
    """Let a run start nothing new; it keeps what it is sent."""
    _ask(run_id, store, as_json, "pause")


@click.command()
@run_id_argument
@store_option
@json_option
def resume(run_id: str, store: str, as_json: bool) -> None:
    """Let a paused run go on, or try a parked one again."""
    _ask(run_id, store, as_json, "resume")


@click.command()
@run_id_argument
@store_option
@json_option
def retry(run_id: str, store: str, as_json: bool) -> None:
    """Let a failed run go on from its failed step."""
    _ask(run_id, store, as_json, "retry")

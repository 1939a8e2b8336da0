"""The commands that change runs: start, send, cancel, pause, resume, retry, delete, skip, fork, tag, copy and purge.

Each works beside the engine and returns once what was asked is stored.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from loom.cli.bulk import act_on_many, many_options
from loom.cli.options import (
    json_object,
    json_option,
    json_value,
    limit_options,
    moment,
    run_id_argument,
    start_options,
    store_edit,
    tag,
    tag_option,
    target_option,
)
from loom.cli.sources import perform, source_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.api.bulk import BulkAction
    from loom.api.runs import Delivery, Run
    from loom.cli.sources import Runs, RunSource


_FLOW_FILES = (".json", ".yaml", ".yml")


def tell(as_json: bool, words: str, **facts: Any) -> None:
    """Say what was done: in words, or as facts."""
    from loom.cli.output import print_json, print_line

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
@source_options
@json_option
def start(workflow: str, inputs: Any, targets: Sequence[str], source: RunSource, as_json: bool, **given: Any) -> None:
    """Start a run of WORKFLOW with the inputs in JSON.

    WORKFLOW is the name that its runs go by, or in a store also the .json or .yaml file of a flow. Whoever works for
    that name takes the run up. JSON may be @file, or @- for the standard input.
    """
    name, targets, limits = _named(workflow, targets, source, given)
    given["body"] = inputs if given["body"] is None else given["body"]

    async def work(runs: Runs) -> str:
        return await runs.start(name, given, given["run_id"], dict(given["tags"]))

    found = perform(source, work, targets, limits, starts=True)
    tell(as_json, f"Run {found} of {name} is stored.", run_id=found, workflow=name)


def _named(
    workflow: str, targets: Sequence[str], source: RunSource, given: Mapping[str, Any]
) -> tuple[str, Sequence[str], Any]:
    """The name of the workflow, the code that is to be loaded for it, and what its loops may ask for."""
    if source.url is not None:
        from loom.cli.problems import WrongUse

        if workflow.endswith(_FLOW_FILES):
            raise WrongUse(f"{workflow} is a file: on a server, name a workflow that it has.")
        if given["max_iterations"] is not None or given["max_duration"] is not None:
            raise WrongUse("What loops may ask for is decided where a flow is loaded: by the server.")
        return workflow, targets, None
    from loom.cli.event_inputs import named_target
    from loom.cli.flow_files import limits_of

    name, targets = named_target(workflow, targets)
    return name, targets, limits_of(given["max_iterations"], given["max_duration"])


@click.command()
@run_id_argument
@click.argument("event_type", metavar="TYPE")
@click.argument("fields", metavar="[JSON]", type=json_object, required=False)
@click.option("--data", metavar="JSON", type=json_value, help="The same as JSON, but any value: the data for a flow.")
@click.option("--event-id", metavar="ID", help="The same event with the same id again changes nothing.")
@click.option("--step", metavar="NAME", help="Only this step shall get it.")
@click.option("--waiter-id", metavar="ID", help="Only the waiters of this id shall get it.")
@target_option
@source_options
@json_option
def send(
    run_id: str,
    event_type: str,
    fields: dict[str, Any] | None,
    data: Any,
    targets: Sequence[str],
    source: RunSource,
    as_json: bool,
    **aim: str | None,
) -> None:
    """Send an event of TYPE, with the fields in JSON, to a run.

    TYPE is the name of the event's class, short or in full. A server checks the fields. In a store, without --target,
    it must be one that the run waits for or that one of its steps takes, and the fields are not checked here. To a
    flow, TYPE is what an action waits for. JSON may be @file, or @- for the standard input.
    """

    async def work(runs: Runs) -> tuple[Delivery, str]:
        run = await runs.get(run_id)
        value = fields if data is None else data
        sent = await runs.send(run_id, event_type, value, aim)
        if run.kind == "flow":
            return sent, _awaited_instead(run, event_type)
        # With its code, or on a server, an event has fields that were not given: only the server knows then.
        is_kept = sent.delivered == "kept" or (sent.delivered == "inbox" and source.url is None and not targets)
        return sent, _required(run, event_type, value or {}) if is_kept else ""

    sent, other = perform(source, work, targets)
    note = f" Now it waits for {other}." if other else ""
    facts = {"run_id": run_id, "sent": event_type, "event_id": aim["event_id"]}
    tell(
        as_json,
        f"{event_type} is stored for run {run_id}.{note}",
        **facts,
        delivered=sent.delivered,
        duplicate=sent.duplicate,
    )


def _awaited_instead(run: Run, event_type: str) -> str:
    """What a flow waits for at present, if that is something else: it keeps the event, whose name may be misspelt."""
    waited = {waiter.event_type.rpartition(".")[2] for waiter in run.active_waiters or ()} - {"child run"}
    return "" if event_type.rpartition(".")[2] in waited else ", ".join(sorted(waited))


def _required(run: Run, event_type: str, fields: Mapping[str, Any]) -> str:
    """What the waiters for such an event ask of it, if that is more than any of them gets: the run keeps the event."""
    short = event_type.rpartition(".")[2]
    asked = [
        waiter.requirements or {}
        for waiter in run.active_waiters or ()
        if waiter.event_type.rpartition(".")[2] == short
    ]
    if run.paused or any(all(fields.get(name) == wanted for name, wanted in one.items()) for one in asked):
        return ""
    from loom.cli.describe import json_words

    words = (", ".join(f"{name}={json_words(wanted)}" for name, wanted in one.items()) for one in asked)
    return " or ".join(f"one with {each}" for each in dict.fromkeys(words))


def _ask(
    run_id: str | None, source: RunSource, as_json: bool, what: BulkAction, *, wanted: Any, dry_run: bool, yes: bool
) -> None:
    if run_id is None:
        act_on_many(what, source, wanted, as_json=as_json, dry_run=dry_run, yes=yes)
        return
    perform(source, lambda runs: runs.ask(run_id, what))
    tell(as_json, f"Run {run_id} was asked to {what}.", run_id=run_id, asked=what)


@click.command()
@click.option("--force", is_flag=True, help="End the run at once, without its clean-up step.")
@many_options
def cancel(run_id: str | None, source: RunSource, as_json: bool, *, force: bool, **many: Any) -> None:
    """Ask a run to stop for good.

    With filters in place of a RUN_ID it means all runs that pass them.
    """
    if not force:
        _ask(run_id, source, as_json, "cancel", **many)
        return
    if run_id is None:
        raise click.UsageError("--force is for one run: name its RUN_ID.")
    perform(source, lambda runs: runs.ask(run_id, "cancel", force=True))
    tell(as_json, f"Run {run_id} was asked to cancel at once.", run_id=run_id, asked="cancel", force=True)


@click.command()
@many_options
def pause(run_id: str | None, source: RunSource, as_json: bool, **many: Any) -> None:
    """Let a run start nothing new; it keeps what it is sent.

    With filters in place of a RUN_ID it means all runs that pass them.
    """
    _ask(run_id, source, as_json, "pause", **many)


@click.command()
@many_options
@click.option(
    "--max-depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let chains of its executions be up to N long, if its limit is lower.",
)
def resume(run_id: str | None, max_depth: int | None, source: RunSource, as_json: bool, **many: Any) -> None:
    """Let a paused run go on, or try a parked one again.

    With filters in place of a RUN_ID it means all runs that pass them.
    """
    if max_depth is None:
        _ask(run_id, source, as_json, "resume", **many)
        return
    if run_id is None:
        raise click.UsageError("--max-depth is for one RUN_ID.")
    perform(source, lambda runs: runs.deepen(run_id, max_depth))
    told = f"Run {run_id} was asked to resume with a max_depth of {max_depth}."
    tell(as_json, told, run_id=run_id, asked="resume", max_depth=max_depth)


@click.command()
@many_options
@click.option(
    "--event",
    type=(str, json_object),
    metavar="TYPE JSON",
    help="Go on with an event of TYPE, with the fields in JSON, in place of the one that failed the run.",
)
@target_option
def retry(
    run_id: str | None,
    event: tuple[str, dict[str, Any]] | None,
    targets: Sequence[str],
    source: RunSource,
    as_json: bool,
    **many: Any,
) -> None:
    """Let a failed run go on from its failed step.

    With --event it goes on with another event in place of the one that failed it: the last one of that TYPE that the
    failed step had received, else the one that the step works on. JSON may be @file, or @- for the standard input.
    With filters in place of a RUN_ID it means all runs that pass them.
    """
    if event is None:
        _ask(run_id, source, as_json, "retry", **many)
        return
    if run_id is None:
        raise click.UsageError("--event is for one RUN_ID.")
    name, fields = event
    perform(source, lambda runs: runs.heal(run_id, name, fields), targets)
    tell(as_json, f"Run {run_id} was asked to retry with {name}.", run_id=run_id, asked="retry", event=name)


@click.command()
@many_options
def delete(run_id: str | None, source: RunSource, as_json: bool, **many: Any) -> None:
    """Delete an ended run with its children, or many ended runs.

    Filters say which. Nothing of them is left.
    """
    if run_id is None:
        act_on_many("delete", source, many["wanted"], as_json=as_json, dry_run=many["dry_run"], yes=many["yes"])
        return
    gone = perform(source, lambda runs: runs.purge(run_id, None))
    tell(as_json, f"{gone} {'run was' if gone == 1 else 'runs were'} deleted.", purged=gone)


@click.command()
@run_id_argument
@click.option("--timer", type=click.IntRange(min=1), metavar="N", help="Only this timer, as `status` numbers them.")
@source_options
@json_option
def skip(run_id: str, timer: int | None, source: RunSource, as_json: bool) -> None:
    """End the delays of a run now: retry at once, go on at once.

    Back-offs of steps and actions, sleeps, `wait` actions and the pauses of loops end. Timeouts stay as they are.
    """
    perform(source, lambda runs: runs.skip(run_id, timer))
    what = "its delays" if timer is None else f"timer {timer}"
    tell(as_json, f"Run {run_id} was asked to skip {what}.", run_id=run_id, asked="skip", timer=timer)


@click.command()
@run_id_argument
@click.option("--tick", type=click.IntRange(min=0), required=True, help="The last tick of its history that is kept.")
@click.option("--run-id", "fork_id", metavar="ID", help="The id of the new run.")
@click.option("--input", "inputs", metavar="JSON", type=json_value, help="Begin with this; only at tick 0.")
@click.option(
    "--event", type=(str, json_value), metavar="TYPE JSON", help="Get an event of TYPE first, with the fields in JSON."
)
@click.option(
    "--set", "edits", metavar="PATH=JSON", type=store_edit, multiple=True,
    help="Another value in the store of steps, or of a variable of a flow. May be repeated.",
)  # fmt: skip
@target_option
@source_options
@json_option
def fork(run_id: str, targets: Sequence[str], source: RunSource, as_json: bool, **given: Any) -> None:
    """Make a new run that goes on from a past tick of another one.

    With --input it begins with something else, which needs --tick 0. --set gives a path in the store of steps, or a
    variable of a flow, another value. With --event it gets that event first. JSON may be @file, or @- for the standard
    input.
    """
    from loom.api.requests import BetterEvent, ForkRequest

    event, tick = given["event"], given["tick"]
    request = ForkRequest(
        tick=tick,
        run_id=given["fork_id"],
        input=given["inputs"],
        event=BetterEvent(type=event[0], value=event[1]) if event is not None else None,
        store=dict(given["edits"]) or None,
    )
    made = perform(source, lambda runs: runs.fork(run_id, request), targets)
    words = f"Run {made} goes on from tick {tick} of run {run_id}."
    tell(as_json, words, run_id=made, forked_from=run_id, tick=tick)


@click.command("tag")
@run_id_argument
@click.argument("tags", metavar="[NAME=VALUE]...", type=tag, nargs=-1)
@click.option("--remove", metavar="NAME", multiple=True, help="Take this tag away. May be repeated.")
@source_options
@json_option
def tag_run(
    run_id: str, tags: Sequence[tuple[str, str]], remove: Sequence[str], source: RunSource, as_json: bool
) -> None:
    """Give a run tags, beside or in place of those that it has."""
    if not tags and not remove:
        raise click.UsageError("Name a tag as NAME=VALUE, or one to --remove.")

    from loom.runtime.durable.names import HANDLER_TAGS

    async def work(runs: Runs) -> dict[str, str]:
        known = (await runs.get(run_id)).tags
        wanted = {**{name: value for name, value in known.items() if name not in HANDLER_TAGS}, **dict(tags)}
        wanted = {name: value for name, value in wanted.items() if name not in remove}
        await runs.set_tags(run_id, wanted)
        return wanted

    found = perform(source, work)
    words = ", ".join(f"{name}={value}" for name, value in sorted(found.items())) or "no tags"
    tell(as_json, f"Run {run_id} has {words}.", run_id=run_id, tags=found)


@click.command("export")
@run_id_argument
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, allow_dash=True), default="-",
    help="A file, for your eyes only; else the standard output.",
)  # fmt: skip
@source_options
def export_run(run_id: str, output: str, source: RunSource) -> None:
    """Write everything that is stored of a run, as JSON."""
    from loom.cli.output import write_private
    from loom.cli.problems import Problem

    data = perform(source, lambda runs: runs.export_run(run_id)) + b"\n"
    if output == "-":
        click.echo(data, nl=False)
        return
    try:
        write_private(output, data)
    except OSError as error:
        raise Problem(f"{output} cannot be written: {error.strerror}.") from error


@click.command("import")
@click.argument("file", type=click.File("rb"))
@source_options
@json_option
def import_run(file: IO[bytes], source: RunSource, as_json: bool) -> None:
    """Store a run that was exported to FILE.

    FILE may be - for the standard input. A run that is not over goes on.
    """
    data = file.read()
    found = perform(source, lambda runs: runs.import_run(data))
    tell(as_json, f"Run {found} is stored.", run_id=found)


@click.command()
@click.argument("run_id", required=False)
@click.option("--ended-before", metavar="WHEN", type=moment, help="A date, or an age as in 30d.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting many runs.")
@source_options
@json_option
def purge(run_id: str | None, ended_before: float | None, yes: bool, source: RunSource, as_json: bool) -> None:
    """Delete an ended run, or all that ended before a time. Nothing of them is left."""
    from loom.cli.output import clock

    if (run_id is None) == (ended_before is None):
        raise click.UsageError("Name a RUN_ID, or a time with --ended-before.")
    if ended_before is not None and not yes:
        click.confirm(f"Delete all runs that ended before {clock(ended_before)}?", abort=True, err=True)

    gone = perform(source, lambda runs: runs.purge(run_id, ended_before))
    tell(as_json, f"{gone} {'run was' if gone == 1 else 'runs were'} deleted.", purged=gone)

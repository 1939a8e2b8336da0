"""The `loom` command with its groups. Commands import other packages when they run, so that help is fast."""

from __future__ import annotations

import gc

import click

import loom
from loom.cli import control_commands, inspect_commands
from loom.cli.database import db
from loom.cli.definition_commands import evaluate_command, graph, schema, validate
from loom.cli.keys import keys
from loom.cli.schedule_commands import schedule
from loom.cli.serve_command import serve
from loom.cli.work_commands import run, worker

_CONTAINERS = 50_000
"""New containers until the garbage collector looks at them while a command runs; Python's own number is 700."""


@click.group(name="loom", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(loom.__version__, prog_name="loom")
def main() -> None:
    """Workflows that are not lost."""
    # The imports of a command make containers by the ten thousand, and all of them stay: looking for garbage among them
    # takes a tenth of the time of `loom run flow.json`.
    before = gc.get_threshold()
    gc.set_threshold(_CONTAINERS, *before[1:])
    click.get_current_context().call_on_close(lambda: gc.set_threshold(*before))


@click.group()
def runs() -> None:
    """Look at runs and tell them things, in a store or on a server."""


@click.group(short_help="Another name of `loom runs`.")
def workflow() -> None:
    """Look at runs and tell them things, in a store or on a server."""


_OF_RUNS = (
    inspect_commands.list_runs,
    inspect_commands.counts,
    inspect_commands.workers,
    inspect_commands.status,
    inspect_commands.events,
    inspect_commands.history,
    inspect_commands.replay,
    control_commands.start,
    control_commands.send,
    control_commands.cancel,
    control_commands.pause,
    control_commands.resume,
    control_commands.retry,
    control_commands.fork,
    control_commands.tag_run,
    control_commands.export_run,
    control_commands.import_run,
    control_commands.purge,
)
for _command in _OF_RUNS:
    runs.add_command(_command)
    workflow.add_command(_command)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that lets SHELL complete `loom`.

    For bash, put `eval "$(loom completion bash)"` into ~/.bashrc; zsh likewise; for fish, save the script as
    ~/.config/fish/completions/loom.fish.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    # The script asks the command itself, through this variable, for what could come next.
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "loom", "_LOOM_COMPLETE").source())


for _command in (
    graph,
    run,
    worker,
    serve,
    evaluate_command,
    validate,
    schema,
    runs,
    workflow,
    inspect_commands.why,
    schedule,
    keys,
    db,
    completion,
):
    main.add_command(_command)

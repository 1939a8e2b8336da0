"""The `loom` command with its groups, and where its commands are.

Commands import other packages when they run, so that help is fast.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module

import click
from typing_extensions import override

import loom

_COMMANDS = {
    "db": "database:db",
    "eval": "definition_commands:evaluate_command",
    "flows": "flows_commands:flows",
    "graph": "definition_commands:graph",
    "keys": "keys:keys",
    "run": "work_commands:run",
    "schedule": "schedule_commands:schedule",
    "schema": "definition_commands:schema",
    "serve": "serve_command:serve",
    "ui": "ui_command:ui",
    "validate": "definition_commands:validate",
    "why": "inspect_commands:why",
    "worker": "work_commands:worker",
}
_OF_RUNS = {
    "cancel": "control_commands:cancel",
    "changes": "changes_command:changes",
    "counts": "inspect_commands:counts",
    "delete": "control_commands:delete",
    "events": "inspect_commands:events",
    "export": "control_commands:export_run",
    "fork": "control_commands:fork",
    "history": "inspect_commands:history",
    "import": "control_commands:import_run",
    "list": "inspect_commands:list_runs",
    "pause": "control_commands:pause",
    "purge": "control_commands:purge",
    "replay": "inspect_commands:replay",
    "resume": "control_commands:resume",
    "retry": "control_commands:retry",
    "send": "control_commands:send",
    "skip": "control_commands:skip",
    "start": "control_commands:start",
    "status": "inspect_commands:status",
    "tag": "control_commands:tag_run",
    "timeline": "timeline_command:timeline",
    "workers": "inspect_commands:workers",
}


class _Commands(MutableMapping[str, click.Command]):
    """The commands of a group. The module of one is imported when it is first asked for; the names are known before.

    `--help` asks for all of them. Others ask for one, and eight modules of options and texts take 8 ms.
    """

    def __init__(self, places: dict[str, str]) -> None:
        self._found: dict[str, click.Command | str] = {**places}

    @override
    def __getitem__(self, name: str) -> click.Command:
        found = self._found[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = self._found[name] = getattr(import_module(f"loom.cli.{module}"), attribute)
        return found

    @override
    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    @override
    def __delitem__(self, name: str) -> None:
        del self._found[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    @override
    def __len__(self) -> int:
        return len(self._found)


@click.group(name="loom", commands=_Commands(_COMMANDS), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(loom.__version__, prog_name="loom")
def main() -> None:
    """Workflows that are not lost."""


@main.group(commands=_Commands(_OF_RUNS))
def runs() -> None:
    """Look at runs and tell them things, in a store or on a server."""


@main.group(commands=_Commands(_OF_RUNS), short_help="Another name of `loom runs`.")
def workflow() -> None:
    """Look at runs and tell them things, in a store or on a server."""


@main.command()
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

"""The help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from surface_golden import Compare

from loom.cli import main


def _commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """Walk the tree of commands, each with the words that lead to it."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _commands(found, *words, name)


@pytest.mark.parametrize("name", ["", *sorted(main.commands)])
def test_the_help_of_a_command_is_what_it_was(name: str, golden: Compare, frozen: None) -> None:
    runner = CliRunner(env={"COLUMNS": "100"})
    pages = []
    for words in [()] if not name else _commands(main.commands[name], name):
        result = runner.invoke(main, [*words, "--help"], prog_name="loom", catch_exceptions=False)
        assert result.exit_code == 0, result.output
        pages.append(f"$ {' '.join(('loom', *words, '--help'))}\n{result.output}")
    golden(f"help/{name or 'loom'}.txt", "\n".join(pages))

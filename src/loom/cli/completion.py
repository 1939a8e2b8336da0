"""`loom completion`: what makes a shell complete commands and options. May import click."""

from __future__ import annotations

import click


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

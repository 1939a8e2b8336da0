"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from loom.cli import main
from loomsite.markdown import code, heading, slug, table

Found = tuple[tuple[str, ...], click.Command, click.Context]


def all_commands() -> Iterator[Found]:
    """Walk the tree of commands, each with its words; an alias of a whole group is not walked."""
    yield from _walk(main, _context(main, "loom"), ())


def _walk(command: click.Command, context: click.Context, words: tuple[str, ...]) -> Iterator[Found]:
    yield words, command, context
    if isinstance(command, click.Group):
        for name, found in _visible(command, context):
            if not _is_alias(found, command):
                yield from _walk(found, _context(found, name, context), (*words, name))


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """Make a context as a call does. Commands keep the help option that the first context asks for."""
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


def _visible(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if found is not None and not found.hidden:
            yield name, found


def _is_alias(command: click.Command, parent: click.Group) -> bool:
    """Say whether a group is another name of one before it: it has the same commands."""
    same = [name for name, other in sorted(parent.commands.items()) if _objects(other) == _objects(command)]
    return bool(_objects(command)) and same[0] != command.name


def _objects(command: click.Command) -> set[int]:
    return {id(each) for each in command.commands.values()} if isinstance(command, click.Group) else set()


def commands() -> str:
    """Describe every command: what it does, its arguments and its options."""
    return "\n".join(part for found in all_commands() for part in _described(*found))


def _described(words: tuple[str, ...], command: click.Command, context: click.Context) -> Iterator[str]:
    name = " ".join(("loom", *words))
    yield heading(2 if len(words) < 2 else 3, code(name), slug(name))
    yield _help(command) + "\n"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{name} {pieces}\n```\n"
    options = [found for param in command.params if (found := param.get_help_record(context)) and found[1]]
    if isinstance(command, click.Group):
        yield _subcommands(command, context, words)
    if options:
        yield table(("option", "meaning"), ((code(names), text) for names, text in options))


def _help(command: click.Command) -> str:
    paragraphs = inspect.cleandoc(command.help or "").partition("\f")[0].split("\n\n")
    return "\n\n".join(_paragraph(each) for each in paragraphs)


def _paragraph(text: str) -> str:
    """A paragraph after click's mark keeps its lines."""
    if text.startswith("\b"):
        return "```text\n" + text.removeprefix("\b").strip("\n") + "\n```"
    return " ".join(text.split()).replace("<", "&lt;")


def _subcommands(group: click.Group, context: click.Context, words: tuple[str, ...]) -> str:
    rows = []
    for name, found in _visible(group, context):
        whole = " ".join(("loom", *words, name))
        link = code(name) if _is_alias(found, group) else f"[{code(name)}](#{slug(whole)})"
        rows.append((link, found.get_short_help_str(200)))
    return table(("command", "does"), rows)

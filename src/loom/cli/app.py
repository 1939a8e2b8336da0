"""The `loom` command and its subcommands' options. May import `loom.cli`; other rooms only inside commands."""

from __future__ import annotations

import click

import loom
from loom.cli.completion import completion
from loom.cli.database import db
from loom.cli.drawing import graph
from loom.cli.engine import run, worker
from loom.cli.evaluating import evaluate_command
from loom.cli.keys import keys
from loom.cli.looking import why
from loom.cli.scheduling import schedule
from loom.cli.serving import serve
from loom.cli.validating import schema, validate
from loom.cli.workflow import workflow


@click.group(name="loom", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(loom.__version__, prog_name="loom")
def main() -> None:
    """Workflows that are not lost."""


main.add_command(graph)
main.add_command(run)
main.add_command(worker)
main.add_command(serve)
main.add_command(evaluate_command)
main.add_command(validate)
main.add_command(schema)
main.add_command(workflow)
main.add_command(why)
main.add_command(schedule)
main.add_command(keys)
main.add_command(db)
main.add_command(completion)

"""The `loom` command and its subcommands' options. May import `loom.cli`; other rooms only inside commands."""

from __future__ import annotations

import click

import loom
from loom.cli.database import db
from loom.cli.engine import run, worker
from loom.cli.evaluating import evaluate
from loom.cli.validating import schema, validate
from loom.cli.workflow import workflow


@click.group(name="loom", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(loom.__version__, prog_name="loom")
def main() -> None:
    """Workflows that are not lost."""


@main.command()
@click.argument("target")
@click.option("--json", "as_json", is_flag=True, help="Print the graph as JSON.")
def graph(target: str, as_json: bool) -> None:
    """Print the steps and events of a workflow as a Mermaid flowchart.

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one.
    """
    from loom.cli.targets import load_workflow
    from loom.steps.representation import get_workflow_representation, to_mermaid

    drawn = get_workflow_representation(load_workflow(target))
    if as_json:
        click.echo(drawn.model_dump_json(indent=2))
    else:
        click.echo(to_mermaid(drawn), nl=False)


main.add_command(run)
main.add_command(worker)
main.add_command(evaluate)
main.add_command(validate)
main.add_command(schema)
main.add_command(workflow)
main.add_command(db)

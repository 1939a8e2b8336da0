"""`loom graph`: workflows and flows as pictures. Other rooms are imported inside commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loom.cli.options import files, limit_options

if TYPE_CHECKING:
    from loom.flows.program import Program


@click.command()
@click.argument("target", shell_complete=files)
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "text"]),
    default="mermaid",
    show_default=True,
    help="The language of the picture; text is an outline. A workflow in Python is drawn in Mermaid only.",
)
@limit_options
@click.option("--json", "as_json", is_flag=True, help="Print the graph as JSON.")
def graph(target: str, form: str, max_iterations: int | None, max_duration: float | None, as_json: bool) -> None:
    """Draw a workflow in Mermaid, for Graphviz, or as an outline.

    Of one in Python the steps and events are drawn, of a flow the actions and what runs after what.

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one, or a .json or .yaml
    file of a flow.
    """
    from loom.cli.targets import is_flow_target, named_workflow

    if not is_flow_target(target):
        _draw_workflow(target, form, as_json)
        return
    from loom.cli.flow_files import limits_of
    from loom.runtime.flow import Flow

    _, flow = named_workflow(target, limits_of(max_iterations, max_duration))
    assert isinstance(flow, Flow)
    _draw_flow(flow.program, form, as_json)


def _draw_workflow(target: str, form: str, as_json: bool) -> None:
    from loom.cli.targets import load_workflow
    from loom.steps.representation import get_workflow_representation, to_mermaid

    if form != "mermaid":
        raise click.UsageError(f"--format {form} is for flows: {target} is drawn in Mermaid only.")
    drawn = get_workflow_representation(load_workflow(target))
    if as_json:
        click.echo(drawn.model_dump_json(indent=2))
    else:
        click.echo(to_mermaid(drawn), nl=False)


def _draw_flow(program: Program, form: str, as_json: bool) -> None:
    from loom.cli.shown import print_json
    from loom.flows.drawing import to_dot, to_mermaid
    from loom.flows.graph import to_data, to_outline

    if as_json:
        print_json(to_data(program))
        return
    click.echo({"mermaid": to_mermaid, "dot": to_dot, "text": to_outline}[form](program), nl=False)

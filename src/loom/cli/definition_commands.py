"""The commands for documents and code that run nothing: validate, schema, graph and eval."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import (
    data_file,
    files,
    handlers_option,
    json_option,
    limit_options,
    parameters_of,
    parameters_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.expressions import ExpressionError
    from loom.flows.diagnostics import Problem
    from loom.flows.limits import Limits
    from loom.flows.program import Program
    from loom.runtime.project import FileProblem


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@handlers_option
@parameters_option
@limit_options
@json_option
def validate(
    files: Sequence[Path],
    strict: bool,
    handlers: Sequence[str],
    parameter_file: Any,
    max_iterations: int | None,
    max_duration: float | None,
    as_json: bool,
) -> None:
    """Check definitions of flows. All problems are told, with their places.

    FILE is a JSON or YAML file in Logic Apps' dialect or in Loom's, or a folder that is searched for such. Of a project
    of Logic Apps all files are checked, and what it lacks here: settings, handlers of connections, equals. Exits with 1
    if there are errors; warnings alone are fine.
    """
    from loom.cli.flow_files import limits_of
    from loom.cli.output import print_json
    from loom.cli.targets import load_handlers

    load_handlers(handlers)
    limits, parameters = limits_of(max_iterations, max_duration), parameters_of(parameter_file)
    found: dict[Path, list[Problem]] = {}
    for place in files:
        for path, problems in _checked_place(place, limits, parameters).items():
            found.setdefault(path, []).extend(problems)
    bad = ("error", "warning") if strict else ("error",)
    failed = [path for path, problems in found.items() if any(problem.severity in bad for problem in problems)]
    if as_json:
        print_json([_file_dict(path, problems, path not in failed) for path, problems in found.items()])
    else:
        _tell(found)
    if failed:
        raise SystemExit(1)


def _files(place: Path, found: list[Path]) -> list[Path]:
    if not place.exists():
        raise click.BadParameter(f"{place} is not there.")
    if not found:
        raise click.BadParameter(f"{place} has no .json or .yaml files.")
    return found


def _checked_place(place: Path, limits: Limits, parameters: dict[str, Any] | None) -> dict[Path, list[Problem]]:
    """All problems by file: of a file, of the flows in a folder, or of a project."""
    from loom.cli.flow_files import by_file, files_of, is_project_folder
    from loom.runtime.project_folder import WORKFLOW, project_of

    if (file := place / WORKFLOW).is_file() and project_of(file) is not None:
        place = file
    if is_project_folder(place):
        return _checked_project(place, limits, parameters)
    found: dict[Path, list[Problem]] = {}
    for path in _files(place, files_of(place)):
        found |= {path: []} | by_file(_checked(path, limits, parameters))
    return found


def _checked(path: Path, limits: Limits, parameters: dict[str, Any] | None) -> Sequence[FileProblem]:
    """All problems of a file, and of what its project has for it."""
    from loom.cli.flow_files import name_of
    from loom.runtime.project import FileProblem, ProjectError, load_beside

    try:
        flow = load_beside(path, name_of(path), limits, parameters)
    except ProjectError as error:
        return error.found
    return [FileProblem(path, problem) for problem in flow.warnings]


def _checked_project(folder: Path, limits: Limits, parameters: dict[str, Any] | None) -> dict[Path, list[Problem]]:
    from loom.cli.flow_files import by_file
    from loom.runtime.project import ProjectError, load_project
    from loom.runtime.project_checks import project_problems
    from loom.runtime.project_folder import BESIDE, workflow_files

    try:
        project = load_project(folder, limits=limits, parameters=parameters)
        found = [*project.warnings, *project_problems(project)]
    except ProjectError as error:
        found = list(error.found)
    beside = (folder / name for name in BESIDE)
    files = [*workflow_files(folder), *(path for path in beside if path.exists())]
    return {path: [] for path in files} | by_file(found)


def _tell(found: dict[Path, list[Problem]]) -> None:
    from loom.cli.flow_files import problem_lines
    from loom.cli.output import print_line

    for path, problems in found.items():
        for line in problem_lines(path, problems):
            click.echo(line)
        errors = sum(problem.severity == "error" for problem in problems)
        warnings = len(problems) - errors
        counts = [_count(number, what) for number, what in ((errors, "error"), (warnings, "warning")) if number]
        print_line(f"{path}: {', '.join(counts) or 'no problems'}.")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _file_dict(path: Path, problems: list[Problem], valid: bool) -> dict[str, Any]:
    from loom.cli.flow_files import spots_of

    return {
        "file": str(path),
        "valid": valid,
        "problems": [
            {
                "path": problem.path,
                "line": spot.line if spot is not None else None,
                "column": spot.column if spot is not None else None,
                "severity": problem.severity,
                "message": problem.message,
                "hint": problem.hint or None,
            }
            for problem, spot in spots_of(path, problems)
        ],
    }


@click.command()
@click.argument("dialect", type=click.Choice(["loom", "logicapps"]), required=False)
def schema(dialect: str | None) -> None:
    """Print the JSON Schema of definitions. It is for editors that complete and check, for one dialect or both."""
    from typing import Literal, cast

    from loom.cli.output import print_json
    from loom.flows.schemas import flow_schema

    print_json(flow_schema(cast("Literal['loom', 'logicapps'] | None", dialect)))


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

    TARGET is module:name or file.py:name, where name is a workflow class or an instance of one, a .json or .yaml file
    of a flow, or a folder: then all flows in it are drawn, each below its name.
    """
    from loom.cli.targets import is_flow_target, named_workflows

    if not is_flow_target(target):
        _draw_workflow(target, form, as_json)
        return
    from loom.cli.flow_files import limits_of
    from loom.runtime.flow import Flow

    limits = limits_of(max_iterations, max_duration)
    flows = {name: flow for name, flow in named_workflows([target], limits).items() if isinstance(flow, Flow)}
    if not Path(target).is_dir():
        (flow,) = flows.values()
        _draw_flow(flow.program, form, as_json)
        return
    _draw_flows({name: flow.program for name, flow in flows.items()}, form, as_json)


def _draw_flows(programs: dict[str, Program], form: str, as_json: bool) -> None:
    from loom.cli.output import clean, print_json
    from loom.flows.graph import to_data

    if as_json:
        print_json({name: to_data(program) for name, program in programs.items()})
        return
    for number, (name, program) in enumerate(programs.items()):
        if number:
            click.echo()
        if form != "text":  # an outline begins with the name
            click.echo({"mermaid": "%% ", "dot": "// "}[form] + clean(name))
        _draw_flow(program, form, as_json=False)


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
    from loom.cli.output import print_json
    from loom.flows.graph import to_data, to_dot, to_mermaid, to_outline

    if as_json:
        print_json(to_data(program))
        return
    click.echo({"mermaid": to_mermaid, "dot": to_dot, "text": to_outline}[form](program), nl=False)


@click.command("eval")
@click.argument("expression", metavar="[EXPR]", required=False)
@click.option(
    "--context",
    "context",
    metavar="FILE",
    type=data_file,
    shell_complete=files,
    help="What the expression can ask for.",
)
@click.option("--list", "list_functions", is_flag=True, help="List the functions of the language.")
@json_option
def evaluate_command(expression: str | None, context: Any, list_functions: bool, as_json: bool) -> None:
    """Evaluate a template string such as "@add(1, 2)".

    Or "Hello @{variables('name')}". EXPR may be - for the standard input. The context is a JSON or YAML file with any
    of variables, parameters, actions, trigger, item, items, iterationIndexes, workflow, utcNow and seed. Without utcNow
    it is now, without seed chance is chance. A text is printed as it is, any other value as JSON; with --json all are.
    """
    if list_functions:
        _print_functions(as_json)
        return
    if expression is None:
        raise click.UsageError("Give an expression, or --list.")
    if expression == "-":
        # The line break at the end of a piped line is not part of the expression.
        expression = sys.stdin.read().removesuffix("\n").removesuffix("\r")
    _print_value(expression, _complete(context), as_json)


def _complete(context: Any) -> dict[str, Any]:
    """The context with a clock and with chance."""
    if context is None:
        context = {}
    if not isinstance(context, dict):
        raise click.BadParameter("A context is an object of variables, parameters, actions, …", param_hint="--context")
    import secrets
    import time

    from loom.expressions.dotnet.timestamps import timestamp_text

    return {"utcNow": timestamp_text(time.time()), "seed": secrets.randbits(63), **context}


def _print_value(expression: str, context: dict[str, Any], as_json: bool) -> None:
    from loom.cli.output import print_json
    from loom.expressions import ExpressionError, evaluate

    try:
        value = plain(evaluate(expression, context))
    except ExpressionError as error:
        if as_json:
            print_json({"error": error.message, "position": error.position, "function": error.function or None})
            raise SystemExit(1) from error
        for line in pointed_at(error):
            click.echo(line, err=True)
        raise click.ClickException(error.message) from error
    if as_json:
        print_json({"value": value})
    else:
        click.echo(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON has it: decimals as numbers, and the numbers that JSON lacks as their text."""
    import math
    from decimal import Decimal

    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def pointed_at(error: ExpressionError) -> list[str]:
    """The line of the text that an error is in, and a caret under the place."""
    if error.position is None or not error.text:
        return []
    from loom.cli.output import clean

    start = error.text.rfind("\n", 0, error.position) + 1
    end = error.text.find("\n", start)
    line = error.text[start : end if end >= 0 else None]
    before = line[: error.position - start]
    from_column = max(0, len(before) - _BEFORE)
    shown = clean(line[from_column : from_column + _SHOWN])
    return [f"  {shown}", f"  {' ' * len(clean(before[from_column:]))}^"]


_BEFORE, _SHOWN = 60, 100


def _print_functions(as_json: bool) -> None:
    from loom.cli.output import print_json, print_table
    from loom.expressions.functions import all_names, find

    known = [found for name in all_names() if (found := find(name)) is not None]
    if as_json:
        print_json([{"name": f.name, "min_args": f.min_args, "max_args": f.max_args} for f in known])
    else:
        print_table(("function", "arguments"), ((f.name, _arity(f.min_args, f.max_args)) for f in known))


def _arity(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"

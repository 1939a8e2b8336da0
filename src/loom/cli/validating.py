"""`loom validate` and `loom schema`: documents without running them. Other rooms are imported inside commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import json_option, limit_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.flows.diagnostics import Problem
    from loom.flows.limits import Limits


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@limit_options
@json_option
def validate(
    files: Sequence[Path], strict: bool, max_iterations: int | None, max_duration: float | None, as_json: bool
) -> None:
    """Check definitions of flows. All problems are told, with their places.

    FILE is a JSON or YAML file in Logic Apps' dialect or in Loom's, or a folder that is searched for such. Exits with 1
    if there are errors; warnings alone are fine.
    """
    from loom.cli.flow_files import files_of, limits_of
    from loom.cli.shown import print_json

    limits = limits_of(max_iterations, max_duration)
    found = {path: _checked(path, limits) for place in files for path in _files(place, files_of(place))}
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


def _checked(path: Path, limits: Limits) -> list[Problem]:
    """All problems of a file."""
    from loom.cli.flow_files import name_of, read_definition
    from loom.flows.diagnostics import DefinitionError
    from loom.flows.lower import compile_flow

    try:
        _, problems = compile_flow(read_definition(path), name=name_of(path), limits=limits)
    except DefinitionError as error:
        return list(error.problems)
    return problems


def _tell(found: dict[Path, list[Problem]]) -> None:
    from loom.cli.flow_files import problem_lines
    from loom.cli.shown import print_line

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

    from loom.cli.shown import print_json
    from loom.flows.schemas import flow_schema

    print_json(flow_schema(cast("Literal['loom', 'logicapps'] | None", dialect)))

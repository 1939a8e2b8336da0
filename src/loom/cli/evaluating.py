"""`loom eval`: what a template string gives. Other rooms are imported inside commands."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from loom.cli.options import data_file, files, json_option

if TYPE_CHECKING:
    from loom.expressions import ExpressionError


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
        # Whoever pipes a line does not mean its end.
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
    from loom.cli.shown import print_json
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
    from loom.cli.shown import clean

    start = error.text.rfind("\n", 0, error.position) + 1
    end = error.text.find("\n", start)
    line = error.text[start : end if end >= 0 else None]
    before = line[: error.position - start]
    from_column = max(0, len(before) - _BEFORE)
    shown = clean(line[from_column : from_column + _SHOWN])
    return [f"  {shown}", f"  {' ' * len(clean(before[from_column:]))}^"]


_BEFORE, _SHOWN = 60, 100


def _print_functions(as_json: bool) -> None:
    from loom.cli.shown import print_json, print_table
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

"""The workflow definition language of Azure Logic Apps: parsed and compiled once, to closures. Pure.

    evaluate("@concat('a', variables('b'))", {"variables": {"b": 1}})

Users take `evaluate` and `ExpressionError`. Flows compile with `compile_template` and `compile_value`, and evaluate in
an `Environment` of their own. A template string goes through `parser`, `compiler` and `calls`; its functions are in
`functions`, what they take from .NET is in `dotnet`, and what they cost is counted in `meter`.
"""

from __future__ import annotations

from typing import Any

from loom.expressions.calls import Compiled, Constant, SourceLocation, call_problem, compile_call
from loom.expressions.compiler import CallSite, Template, compile_template, compile_value, join_path, templates_in
from loom.expressions.environment import ContextEnvironment, Environment
from loom.expressions.errors import ExpressionError, FunctionError
from loom.expressions.meter import Meter, metered_by

__all__ = [
    "CallSite",
    "Compiled",
    "Constant",
    "ContextEnvironment",
    "Environment",
    "ExpressionError",
    "FunctionError",
    "SourceLocation",
    "Template",
    "call_problem",
    "compile_call",
    "compile_template",
    "compile_value",
    "evaluate",
    "join_path",
    "templates_in",
]


def evaluate(text: str, context: dict[str, Any] | None = None) -> Any:
    """The value of a template string in a context of plain data; raises `ExpressionError` if it has none.

    The context may have `variables`, `parameters`, `items` and `iterationIndexes` (by name), `actions` (by name, each
    with `status`, `inputs`, `outputs`, `code`, `error`), `trigger` (with `outputs` of `headers` and `body`), `item`,
    `workflow`, `utcNow` (a timestamp) and `seed` (for what is random). The budget is the one of an action.
    """
    evaluate_in = compile_template(text).evaluate
    with metered_by(Meter()):
        return evaluate_in(ContextEnvironment(context or {}))

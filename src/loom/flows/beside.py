"""The names that a definition takes from the project beside it: parameters, app settings and connections.

A project of Logic Apps Standard keeps values beside its definitions: in `parameters.json`, in the settings of the app,
in `connections.json`. A document holds the names that it needs of them, never a value. Values enter a run with its
start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from loom.expressions import ContextEnvironment, ExpressionError, compile_template, compile_value
from loom.expressions import templates_in as texts_in
from loom.expressions.functions import find
from loom.expressions.meter import Meter, metered_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SETTING, PARAMETER = "appsetting", "parameters"
"""The functions, in lower case, that read what stands beside a definition."""


class Beside(Struct, frozen=True, omit_defaults=True):
    """What the project of a definition gives it, by name."""

    parameters: dict[str, str] = {}
    """Types by the names of parameters; `Secure` stands before the type of one that is made of settings."""
    settings: tuple[str, ...] = ()
    """Names of app settings."""


SETTING_NOT_NAMED = "AppSettingNotNamed"
"""Code of an action that asks for a setting that its definition does not name."""


class NamedCall(NamedTuple):
    """A call that reads something by its name."""

    path: str
    """JSON path of the text that has the expression."""
    name: str | None
    """None: it is known only in a run."""


def calls_of(function: str, data: Any, path: str = "") -> list[NamedCall]:
    """List the calls of a function in all expressions of a JSON value. What does not parse is passed over."""
    found = []
    for place, text in texts_in(data, path):
        if function not in text.lower():
            continue
        try:
            calls = compile_template(text, lenient=True).calls
        except ExpressionError:
            continue
        found += [NamedCall(place, call.argument) for call in calls if call.function.lower() == function]
    return found


def names_of(calls: Iterable[NamedCall]) -> tuple[str, ...]:
    """List the names of calls, each once, whatever its case."""
    found: dict[str, str] = {}
    for call in calls:
        if call.name is not None:
            found.setdefault(call.name.lower(), call.name)
    return tuple(sorted(found.values()))


def find_name(names: Iterable[str], wanted: str) -> str | None:
    """Find a name: the exact one, else one that differs only in case, else None."""
    known = tuple(names)
    if wanted in known:
        return wanted
    key = wanted.lower()
    return next((name for name in known if name.lower() == key), None)


def forbidden_calls(data: Any) -> list[NamedCall]:
    """List the calls in a value beside a definition that have no meaning there: they ask for a run."""
    found = []
    for place, text in texts_in(data):
        try:
            calls = compile_template(text).calls
        except ExpressionError:
            continue  # evaluating it says what is wrong
        for call in calls:
            known = find(call.function)
            if known is not None and known.asks and call.function.lower() not in (SETTING, PARAMETER):
                found.append(NamedCall(place, call.function))
    return found


def evaluated(data: Any, settings: Mapping[str, str], parameters: Mapping[str, Any] | None = None) -> Any:
    """Evaluate the expressions of a JSON value beside a definition. Raises `ExpressionError`.

    A setting that there is none of is null, as in a run.
    """
    with metered_by(Meter()):
        return compile_value(data)(ContextEnvironment({"appSettings": settings, "parameters": parameters or {}}))


def connection_name(inputs: Any) -> str | None:
    """Find the name of the connection in the inputs of an action or a trigger; None if they name none."""
    for keys in _CONNECTIONS:
        found = inputs
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str) and found and "@" not in found:
            return found
    return None


_CONNECTIONS = (
    ("host", "connection", "referenceName"),
    ("serviceProviderConfiguration", "connectionName"),
    ("function", "connectionName"),
    ("apiManagement", "connection"),
    ("host", "connectionReferenceName"),
    ("host", "connectionName"),
)
"""Where definitions write the name of a connection, by kind of connector."""

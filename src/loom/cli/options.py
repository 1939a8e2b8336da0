"""Options and argument types that commands share, and what they say about the start of a run."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loom.api.times import seconds_of
from loom.cli.problems import WrongUse

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])
    from collections.abc import Mapping

    from loom.runtime.flow import Flow


DEFAULT_STORE = "sqlite:///loom.db"

_SIZE = re.compile(r"(\d+)\s*([kKmMgG]?)(?:i?[bB])?")
_BYTES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def duration(text: str) -> float:
    """The seconds that `90`, `90s`, `5m`, `2h`, `7d` or `4w` mean."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def size(text: str) -> int:
    """The bytes that `65536`, `64k`, `4M` or `2G` mean."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise click.BadParameter(f"{text!r} is not a size: use bytes, or a unit as in 64k, 4M, 2G.")
    return int(found[1]) * _BYTES[found[2].lower()]


def moment(text: str) -> float:
    """A date, or a length of time before now, as seconds since the epoch."""
    with suppress(ValueError):
        return time.time() - seconds_of(text)
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        wanted = "use an ISO date such as 2026-01-31T12:00, or an age as in 30d"
        raise click.BadParameter(f"{text!r} is not a time: {wanted}.") from error


def instant(text: str) -> datetime:
    """A date, or a length of time before now, with its zone."""
    return datetime.fromtimestamp(moment(text), UTC)


def json_value(text: str) -> Any:
    """Any JSON value; `@file` is read from a file, `@-` from the standard input."""
    try:
        if text.startswith("@"):
            with click.open_file(text[1:], encoding="utf-8-sig") as file:
                text = file.read()
        return json.loads(text)
    except OSError as error:
        raise click.BadParameter(f"{text[1:]} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"This is not JSON: {error}.") from error


def json_object(text: str) -> dict[str, Any]:
    """A JSON object; `@file` is read from a file, `@-` from the standard input."""
    found = json_value(text)
    if not isinstance(found, dict):
        raise click.BadParameter("This is JSON, but no object such as '{\"name\": 1}'.")
    return found


def data_file(path: str) -> Any:
    """The data in a JSON or YAML file; `-` is the standard input."""
    from loom.flows.diagnostics import DefinitionError
    from loom.flows.document import check_plain, parse_text

    try:
        with click.open_file(path, encoding="utf-8-sig") as file:
            found = parse_text(file.read())
        check_plain(found)
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is no text in UTF-8: {error}.") from error
    except DefinitionError as error:
        raise click.BadParameter(f"{path}: {error}.") from error
    return found


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where the value is JSON or else a text; `@file` is read from a file."""
    name, value = named_text(text)
    return name, json_or_text(value)


def json_or_text(text: str) -> Any:
    """A JSON value, or the text itself if it is none; `@file` is read from a file."""
    if text.startswith("@"):
        return json_value(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def named_text(text: str) -> tuple[str, str]:
    """NAME=VALUE, where the value is a text."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.")
    return name, value


def long_time(text: str) -> float:
    """The seconds of an ISO 8601 duration such as `PT90M`, or of `90m`."""
    if not text.lstrip("-+").upper().startswith("P"):
        return duration(text)
    from loom.expressions.dotnet.timestamps import parse_duration
    from loom.expressions.errors import FunctionError

    try:
        return parse_duration(text)
    except FunctionError as error:
        raise click.BadParameter(f"{error}.") from error


def tag(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.BadParameter(f"{text!r} is not a tag: use NAME=VALUE.")
    return name, value


def store_edit(text: str) -> tuple[str, Any]:
    """PATH=JSON."""
    path, found, value = text.partition("=")
    if not found or not path:
        raise click.BadParameter(f"{text!r} is no edit: use PATH=JSON.")
    return path, json_value(value)


def files(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """For the Tab key: the names of files, which the shell knows."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def store_option(command: Decorated) -> Decorated:
    """`--store URL`."""
    return click.option(
        "--store",
        "store",
        metavar="URL",
        default=DEFAULT_STORE,
        envvar="LOOM_STORE",
        show_default=True,
        show_envvar=True,
        help="Where the runs are: sqlite:///path.db, postgresql://user@host/db or temporal://host:7233/namespace.",
    )(command)


def json_option(command: Decorated) -> Decorated:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def target_option(command: Decorated) -> Decorated:
    """`--target TARGET`, for commands that may need the code of a workflow."""
    return click.option(
        "--target",
        "targets",
        metavar="TARGET",
        multiple=True,
        shell_complete=files,
        help="Load a workflow, module:name, file.py:name or flow.json, for its types. May be repeated.",
    )(command)


def tag_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """`--tag NAME=VALUE`."""
    return click.option("--tag", "tags", metavar="NAME=VALUE", type=tag, multiple=True, help=help_text)


def limit_options(command: Decorated) -> Decorated:
    """`--max-iterations N` and `--max-duration TIME`, for commands that load flows."""
    count = click.option(
        "--max-iterations",
        metavar="N",
        type=click.IntRange(min=1),
        help="Let loops of flows ask for so many iterations.",
    )
    time_ = click.option(
        "--max-duration", metavar="TIME", type=long_time, help="Let loops of flows take so long, as in P2D or 48h."
    )
    return count(time_(command))


def handlers_option(command: Decorated) -> Decorated:
    """`--handlers MODULE`, for commands that run flows."""
    return click.option(
        "--handlers",
        "handlers",
        metavar="MODULE",
        multiple=True,
        shell_complete=files,
        help="Import a module or file.py with activities, actors and connectors. May be repeated.",
    )(command)


def allow_host_option(command: Decorated) -> Decorated:
    """`--allow-host HOST`, for commands that run flows."""
    return click.option(
        "--allow-host",
        "allow_hosts",
        metavar="HOST",
        multiple=True,
        help="Let HTTP actions reach a host, host:port or network that is not public. May be repeated.",
    )(command)


def start_options(command: Decorated) -> Decorated:
    """`--parameter`, `--parameters`, `--variable` and `--header`, for commands that start flows."""
    for name, kind, what in (
        ("header", named_text, "A header of the trigger"),
        ("variable", setting, "A variable that a flow begins with"),
        ("parameter", named_text, "A parameter of a flow"),
    ):
        command = click.option(
            f"--{name}",
            f"{name}s",
            metavar="NAME=VALUE",
            type=kind,
            multiple=True,
            help=f"{what}. May be repeated." if name == "header" else f"{what}; JSON, else a text. May be repeated.",
        )(command)
    return parameters_option(command)


def parameters_option(command: Decorated) -> Decorated:
    """`--parameters FILE`, for commands that load flows."""
    return click.option(
        "--parameters",
        "parameter_file",
        metavar="FILE",
        type=data_file,
        shell_complete=files,
        help="Read parameters of a flow from a file, such as parameters.json of Logic Apps.",
    )(command)


def parameters_of(data: Any) -> dict[str, Any] | None:
    """The content of a file of parameters, which is an object; None if there is no file."""
    if data is not None and not isinstance(data, dict):
        raise WrongUse("A file of parameters is an object: values by the names of parameters.")
    return data


run_id_argument = click.argument("run_id")


OF_FLOWS = ("parameters", "variables", "headers")
"""What only flows begin with."""


def given_to_flow(options: Mapping[str, Any], flow: Flow | None = None) -> dict[str, Any]:
    """What a flow begins with, by the names of `FlowStartEvent`. With the flow, values fit what it declares."""
    given: dict[str, Any] = {} if options["body"] is None else {"body": options["body"]}
    given |= {key: dict(options[key]) for key in OF_FLOWS if options[key]}
    if "parameters" in given:
        given["parameters"] = {name: _parameter(flow, name, text) for name, text in given["parameters"].items()}
    if options["parameter_file"] is not None:
        read = _from_file(options["parameter_file"], flow)
        # Names count without case, and what is said beside the file wins.
        beside = {name.lower() for name in given.get("parameters", {})}
        rest = {name: value for name, value in read.items() if name.lower() not in beside}
        given["parameters"] = {**rest, **given.get("parameters", {})}
    return given


def _from_file(data: Any, flow: Flow | None) -> dict[str, Any]:
    """Parameters by name, as values or as `{"value": …}`. A file may serve many flows: each takes what it knows."""
    if isinstance(data, dict) and isinstance(data.get("parameters"), dict):
        data = data["parameters"]  # as files of resource templates have it
    if not isinstance(data, dict):
        raise WrongUse("A file of parameters is an object: values by the names of parameters.")
    values = {name: entry["value"] if _is_entry(entry) else entry for name, entry in data.items()}
    if flow is None:
        return values
    return {name: value for name, value in values.items() if name.lower() in flow.program.parameters}


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and "value" in entry and entry.keys() <= {"value", "type", "metadata", "description"}


def _parameter(flow: Flow | None, name: str, text: str) -> Any:
    """The value of a parameter: JSON, or else a text. Where a text is wanted, 42 is one."""
    declared = flow.program.parameters.get(name.lower()) if flow is not None else None
    value = json_or_text(text)
    wants_text = declared is not None and declared.type.removeprefix("secure") == "string"
    return text if wants_text and not isinstance(value, str) else value

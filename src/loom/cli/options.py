"""Options that many commands share, and the kinds of values that they take. May import click."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_STORE = "sqlite:///loom.db"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)?")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def duration(text: str) -> float:
    """The seconds that `90`, `90s`, `5m`, `2h`, `7d` or `4w` mean."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a length of time: use seconds, or a unit as in 90s, 5m, 2h, 7d.")
    return float(found[1]) * _SECONDS[found[2] or ""]


def moment(text: str) -> float:
    """A date, or a length of time before now, as seconds since the epoch."""
    if _DURATION.fullmatch(text.strip()):
        return time.time() - duration(text)
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        wanted = "use an ISO date such as 2026-01-31T12:00, or an age as in 30d"
        raise click.BadParameter(f"{text!r} is not a time: {wanted}.") from error


def json_object(text: str) -> dict[str, Any]:
    """A JSON object; `@file` is read from a file, `@-` from the standard input."""
    try:
        if text.startswith("@"):
            with click.open_file(text[1:], encoding="utf-8") as file:
                text = file.read()
        found = json.loads(text)
    except OSError as error:
        raise click.BadParameter(f"{text[1:]} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"This is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise click.BadParameter("This is JSON, but no object such as '{\"name\": 1}'.")
    return found


def tag(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.BadParameter(f"{text!r} is not a tag: use NAME=VALUE.")
    return name, value


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
        help="Where the runs are: sqlite:///path.db or postgresql://user@host/database.",
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
        help="Load the code of a workflow, module:name or file.py:name, for its types. May be repeated.",
    )(command)


def tag_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """`--tag NAME=VALUE`."""
    return click.option("--tag", "tags", metavar="NAME=VALUE", type=tag, multiple=True, help=help_text)


run_id_argument = click.argument("run_id")

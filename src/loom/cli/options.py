"""Options that many commands share, and the kinds of values that they take. May import click."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])

DEFAULT_STORE = "sqlite:///loom.db"

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)?")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def duration(text: str) -> float | None:
    """The seconds that `90`, `90s`, `5m`, `2h`, `7d` or `4w` mean; None if it is none of these."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _SECONDS[found[2] or ""] if found else None


class Duration(click.ParamType):
    """A length of time, in seconds or with a unit."""

    name = "duration"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds."""
        if isinstance(value, float):
            return value
        seconds = duration(value)
        if seconds is None:
            self.fail(f"{value!r} is not a length of time: use seconds, or a unit as in 90s, 5m, 2h, 7d.", param, ctx)
        return seconds


class Moment(click.ParamType):
    """A point in time: a date, or a length of time before now."""

    name = "moment"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds since the epoch."""
        if isinstance(value, float):
            return value
        seconds = duration(value)
        if seconds is not None:
            return time.time() - seconds
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time: use an ISO date such as 2026-01-31T12:00, or an age as in 30d.")
        return (found if found.tzinfo else found.astimezone()).astimezone(UTC).timestamp()


class JsonObject(click.ParamType):
    """A JSON object on the command line; `@file` reads it from a file, `@-` from the standard input."""

    name = "json"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The object as a dict."""
        if isinstance(value, dict):
            return value
        text: str = value
        if text.startswith("@"):
            try:
                with click.open_file(text[1:], encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeError) as error:
                self.fail(f"{text[1:]} cannot be read: {error}", param, ctx)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            self.fail(f"This is not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("The fields of an event are a JSON object, such as '{\"name\": 1}'.", param, ctx)
        return found


class Tag(click.ParamType):
    """NAME=VALUE."""

    name = "tag"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Name and value."""
        if isinstance(value, tuple):
            return value
        name, found, rest = value.partition("=")
        if not found or not name:
            self.fail(f"{value!r} is not a tag: use NAME=VALUE.", param, ctx)
        return name, rest


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
    return click.option("--tag", "tags", metavar="NAME=VALUE", type=Tag(), multiple=True, help=help_text)


run_id_argument = click.argument("run_id")

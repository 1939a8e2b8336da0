"""`loom keys …`: who may ask a server for what. Other rooms are imported inside commands.

A server on the same store knows a new key, or that one is gone, within a second.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loom.cli.options import duration, json_option, store_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from loom.server.auth import Keys, StoredKey

    Note = Callable[..., Awaitable[None]]

T = TypeVar("T")

_SCOPES = ("read", "start", "event", "admin")

_id_argument = click.argument("key_id", metavar="ID")


def scopes(text: str) -> tuple[str, ...]:
    """Scopes, separated by commas."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for scope in found:
        if scope not in _SCOPES:
            raise click.BadParameter(f"{scope!r} is no scope: use {', '.join(_SCOPES)}.")
    return found


def until(text: str) -> float:
    """A date, or a length of time from now on, as seconds since the epoch."""
    from datetime import datetime

    try:
        found = datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        found = _from_now(text)
    if found <= time.time():
        raise click.BadParameter(f"{text!r} has passed: use a time to come, as in 90d or 2030-01-31.")
    return found


def _from_now(text: str) -> float:
    try:
        return time.time() + duration(text)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{text!r} is not a time: use a length such as 90d, or a date such as 2030-01-31."
        ) from error


def _scopes_to_come(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For the Tab key: scopes behind the last comma."""
    said, comma, last = begun.rpartition(",")
    return [f"{said}{comma}{scope}" for scope in _SCOPES if scope.startswith(last)]


quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print the key, and nothing else.")


@click.group()
def keys() -> None:
    """Keys that a server asks for."""


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "given_scopes",
    metavar="SCOPE,...",
    type=scopes,
    shell_complete=_scopes_to_come,
    multiple=True,
    required=True,
    help="What it is good for: read, start, event, admin (which is all). May be repeated.",
)
@click.option(
    "--workflow", "workflows", metavar="NAME", multiple=True, help="Only for runs of this one. May be repeated."
)
@click.option("--expires", metavar="TIME", type=until, help="Good until then: 90d from now, or 2030-01-31.")
@quiet_option
@store_option
@json_option
def create(
    name: str, given_scopes: Sequence[Sequence[str]], workflows: Sequence[str], store: str, **given: Any
) -> None:
    """Make a key called NAME and print it. It is shown this once: only its hash is stored."""
    from loom.cli.serve_command import server_extra

    with server_extra():
        from loom.server.auth import new_key

    wanted: Any = tuple(dict.fromkeys(scope for some in given_scopes for scope in some))
    key, stored = new_key(
        wanted, name=name, workflows=tuple(workflows) or None, now=time.time(), expires_at=given["expires"]
    )

    async def work(found: Keys, note: Note) -> None:
        with _lost_if_unknown(stored.id):
            await found.add(stored)
            await note("key.create", stored.id)

    _performed(store, work, upgrade=True)
    _tell_key(key, stored, f"Key {stored.id} ({name}) is good for {_rights(stored)}.", given)


@keys.command("list")
@store_option
@json_option
def list_keys(store: str, as_json: bool) -> None:
    """List keys, also those that are gone, the oldest first."""
    from loom.cli.output import ago, print_json, print_table

    async def work(found: Keys, _: Note) -> list[StoredKey]:
        return sorted([key async for key in found.all()], key=lambda key: (key.created_at, key.id))

    found, now = _performed(store, work), time.time()
    if as_json:
        print_json([_fields(key, now) for key in found])
    elif not found:
        click.echo("No keys.")
    else:
        columns = ("id", "name", "scopes", "workflows", "made", "expires", "status")
        print_table(
            columns,
            [
                (
                    key.id,
                    key.name,
                    ", ".join(key.scopes),
                    "all" if key.workflows is None else ", ".join(key.workflows),
                    ago(key.created_at, now),
                    ago(key.expires_at, now),
                    _status(key, now),
                )
                for key in found
            ],
        )


@keys.command()
@_id_argument
@store_option
@json_option
def revoke(key_id: str, store: str, as_json: bool) -> None:
    """Let a key open nothing any more."""
    from loom.cli.control_commands import tell

    async def work(found: Keys, note: Note) -> StoredKey:
        revoked = await found.revoke(key_id)
        await note("key.revoke", key_id)
        return revoked

    key = _performed(store, work)
    tell(as_json, f"Key {key.id} ({key.name}) is revoked.", **_fields(key, time.time()))


@keys.command()
@_id_argument
@click.option(
    "--grace",
    metavar="TIME",
    type=duration,
    default="24h",
    show_default=True,
    help="So long the old key is good yet.",
)
@quiet_option
@store_option
@json_option
def rotate(key_id: str, grace: float, store: str, **given: Any) -> None:
    """Make a key in the place of another one, and print it. It has the same name and rights."""
    from loom.api.times import span

    async def work(found: Keys, note: Note) -> tuple[str, StoredKey]:
        key, stored = await found.rotate(key_id, grace)
        await note("key.rotate", key_id, stored.id)
        return key, stored

    key, stored = _performed(store, work)
    old = f"good for {span(grace)} yet" if grace else "not good any more"
    _tell_key(key, stored, f"Key {stored.id} ({stored.name}) is in the place of {key_id}, which is {old}.", given)


def _performed(store: str, work: Callable[[Keys, Note], Awaitable[T]], *, upgrade: bool = False) -> T:
    """Do something with the keys of a store; what is noted is in its record of what operators did."""
    from loom.cli.problems import WrongUse
    from loom.cli.serve_command import server_extra
    from loom.cli.session import opened_store, perform, store_at

    with server_extra():
        from loom.runtime.durable.acts import Act, record
        from loom.server.auth import LOCAL, Keys
        from loom.server.settings import ServerSettings
    if store.startswith("memory:"):
        raise WrongUse("memory:// is gone with the process that made it: name the store of your server.")

    async def beside() -> T:
        async with opened_store(store_at(store, upgrade=upgrade)) as found:

            async def note(action: str, target: str, made: str | None = None) -> None:
                act = Act(at=time.time(), actor=LOCAL.id, action=action, target=target, made=made)
                await record(found, act, ServerSettings().audit_retention)

            return await work(Keys(found), note)

    return perform(beside())


@contextmanager
def _lost_if_unknown(key_id: str) -> Iterator[None]:
    """Say what to do about a key that may be stored but was never printed: from then on servers ask for a key."""
    from loom.cli.problems import NoStore
    from loom.store.errors import StoreUnavailable

    try:
        yield
    except StoreUnavailable as error:
        if not error.outcome_unknown:
            raise
        advice = f"The key {key_id} may be stored nevertheless, and is lost: end it with `loom keys revoke {key_id}`"
        raise NoStore(f"{error} {advice} when `loom keys list` shows it, and make another one.") from error


def _tell_key(key: str, stored: StoredKey, words: str, given: dict[str, Any]) -> None:
    """The key alone on the standard output, so that it can be piped to where it is kept."""
    from loom.cli.output import clean, print_json

    if given["as_json"]:
        print_json({**_fields(stored, time.time()), "key": key})
        return
    if not given["quiet"]:
        click.echo(clean(f"{words} It is shown this once:"), err=True)
    click.echo(key)


def _rights(key: StoredKey) -> str:
    of = f" of {', '.join(key.workflows)}" if key.workflows is not None else ""
    return ", ".join(key.scopes) + of


def _status(key: StoredKey, now: float) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "good" if key.is_good(now) else "expired"


def _fields(key: StoredKey, now: float) -> dict[str, Any]:
    """A key for programs, without its hash."""
    from loom.runtime.plain import iso

    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "workflows": list(key.workflows) if key.workflows is not None else None,
        "created_at": iso(key.created_at),
        "expires_at": iso(key.expires_at),
        "revoked_at": iso(key.revoked_at),
        "status": _status(key, now),
    }

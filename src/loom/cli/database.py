"""`loom db`: the tables of a store. Other rooms are imported inside commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loom.cli.options import json_option, store_option

if TYPE_CHECKING:
    from loom.store.migrations import Migration


@click.group()
def db() -> None:
    """The database that runs are stored in."""


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL that is missing, and change nothing.")
@store_option
@json_option
def upgrade(as_sql: bool, store: str, as_json: bool) -> None:
    """Make the database, or bring it up to date with this version of Loom.

    Engines do so themselves when they open a store; the commands of `loom workflow` do not.
    """
    from loom.cli.problems import NoStore
    from loom.cli.session import perform, safe_url, store_at
    from loom.cli.shown import print_json
    from loom.store.errors import StoreError

    async def work() -> tuple[list[Migration], str]:
        try:
            missing, script = await _missing(store)
            if missing and not as_sql:
                found = store_at(store, upgrade=True)
                await found.open()
                await found.close()
        except StoreError as error:
            raise NoStore(str(error)) from error
        return missing, script

    missing, script = perform(work())
    names = [f"{migration.number:04}_{migration.name}" for migration in missing]
    if as_json:
        print_json({"store": safe_url(store), "migrations": names, "applied": not as_sql, "sql": script})
    elif as_sql:
        click.echo(script or "-- The database is up to date.", nl=not script)
    elif names:
        click.echo("\n".join(f"Applied {name}." for name in names))
    else:
        click.echo("The database is up to date.")


async def _missing(url: str) -> tuple[list[Migration], str]:
    """The migrations that a store lacks, and a text that applies them. The store is not changed."""
    from loom.cli.problems import WrongUse
    from loom.cli.session import store_at

    scheme = url.partition("://")[0]
    found = store_at(url, upgrade=False)
    if scheme == "sqlite":
        from loom.store.sqlite import SqliteStore, schema

        assert isinstance(found, SqliteStore)
        missing = schema.missing(found.path)
        return missing, schema.script(missing) if missing else ""
    if scheme in ("postgresql", "postgres"):
        from loom.store.postgres import PostgresStore
        from loom.store.postgres import schema as postgres_schema

        assert isinstance(found, PostgresStore)
        missing = await postgres_schema.missing(found.address)
        return missing, postgres_schema.script(missing, found.address) if missing else ""
    raise WrongUse(f"{url!r} has no tables: use sqlite:///path.db or postgresql://user@host/database.")

"""`loom db`: the tables of a store. Other rooms are imported inside commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loom.cli.options import json_option, store_option

if TYPE_CHECKING:
    from loom.runtime.verifying import Verified
    from loom.store.migrations import Migration


@click.group()
def db() -> None:
    """The database that runs are stored in."""


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL that is missing, and change nothing.")
@store_option
@json_option
def upgrade(as_sql: bool, store: str, as_json: bool) -> None:
    """Make the database, or bring it up to date.

    Engines do so themselves when they open a store; the commands of `loom workflow` do not. A Temporal cluster gets the
    search attributes that lists of runs are filtered by; without them each run is asked.
    """
    from loom.cli.problems import NoStore
    from loom.cli.session import perform, safe_url, store_at
    from loom.cli.shown import print_json
    from loom.store.errors import StoreError

    if _is_cluster(store):
        _upgrade_cluster(store, as_sql, as_json)
        return

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


@db.command()
@click.option("--run", "run_id", metavar="RUN_ID", help="Only this run.")
@store_option
@json_option
def verify(run_id: str | None, store: str, as_json: bool) -> None:
    """Check that the journals of all runs are what was written. Exits with 1 if one is not.

    Each part of a journal is bound to the one before it. If LOOM_JOURNAL_KEYS has the keys that they are signed with,
    nobody without them can have made one. `loom workflow replay` checks what a journal leads to.
    """
    from loom.cli.problems import Problem, WrongUse
    from loom.cli.session import client, perform
    from loom.cli.shown import print_json
    from loom.store.errors import RunNotFound

    if _is_cluster(store):
        raise WrongUse("A Temporal cluster keeps the histories of runs itself: there are no journals to check.")

    async def work() -> list[Verified]:
        from loom.runtime.verifying import verified
        from loom.runtime.verifying import verify as verify_one

        async with client(store) as runtime:
            if run_id is None:
                return [found async for found in verified(runtime.store, runtime.links)]
            found = await verify_one(runtime.store, runtime.links, run_id)
            if found is None:
                raise RunNotFound(run_id)
            return [found]

    found = perform(work())
    broken = [run for run in found if run.verdict == "broken"]
    if as_json:
        problems = [{"run_id": run.run_id, "problem": run.problem} for run in broken]
        print_json({"runs": len(found), **_counted(found), "problems": problems})
    else:
        for run in broken:
            click.echo(run.problem)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in _counted(found).items() if count)
        click.echo(f"Runs: {len(found)}{f' ({counts})' if counts else ''}.")
    if broken:
        raise SystemExit(Problem.exit_code)


def _is_cluster(store: str) -> bool:
    return store.startswith("temporal:")


def _upgrade_cluster(url: str, as_sql: bool, as_json: bool) -> None:
    """Give a cluster what lists of runs are filtered by."""
    from loom.cli.problems import WrongUse
    from loom.cli.session import opened_store, perform, safe_url, store_at
    from loom.cli.shown import print_json

    if as_sql:
        raise WrongUse("A Temporal cluster has no tables, and takes no SQL: leave out --sql.")

    async def work() -> list[str]:
        from loom.temporal.store import TemporalStore

        async with opened_store(store_at(url, upgrade=True)) as found:
            assert isinstance(found, TemporalStore)
            return list(await found.register_attributes())

    names = perform(work())
    if as_json:
        print_json({"store": safe_url(url), "search_attributes": names, "applied": True})
    elif names:
        click.echo("\n".join(f"Added the search attribute {name}." for name in names))
    else:
        click.echo("The cluster is up to date.")


def _counted(found: list[Verified]) -> dict[str, int]:
    """How many runs there are of each verdict."""
    from typing import get_args

    from loom.runtime.verifying import Verdict

    return {verdict: sum(run.verdict == verdict for run in found) for verdict in get_args(Verdict)}


async def _missing(url: str) -> tuple[list[Migration], str]:
    """The migrations that a store lacks, and a text that applies them. The store is not changed."""
    from loom.cli.problems import NoStore, WrongUse
    from loom.runtime.connect import plain_store

    scheme = url.partition("://")[0]
    try:
        found = plain_store(url, upgrade=False)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    except ImportError as error:
        raise NoStore(str(error)) from error
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

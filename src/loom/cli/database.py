"""`loom db`: the tables of a store. Other rooms are imported inside commands."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, NamedTuple

import click

from loom.cli.options import json_option, store_option

if TYPE_CHECKING:
    from loom.runtime.verification import Difference, Signed, Verified
    from loom.store.migrations import Migration

_SHOWN = 20
"""How many ids of runs a line names; `--json` has all of them."""


@click.group()
def db() -> None:
    """The database that runs are stored in."""


@db.command()
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL that is missing, and change nothing.")
@store_option
@json_option
def upgrade(as_sql: bool, store: str, as_json: bool) -> None:
    """Make the database, or bring it up to date.

    Engines do so themselves when they open a store; the commands of `loom workflow` do not. With LOOM_JOURNAL_KEYS it
    also signs the rows of all runs, once: from then on a row without a signature is broken, and who starts runs needs
    the keys. A Temporal cluster gets the search attributes that lists of runs are filtered by; without them each run
    is asked.
    """
    from loom.cli.output import print_json
    from loom.cli.problems import NoStore, Problem
    from loom.cli.session import perform, safe_url, store_at
    from loom.store.errors import StoreError

    if _is_cluster(store):
        _upgrade_cluster(store, as_sql, as_json)
        return

    async def work() -> tuple[list[Migration], str, Signed | None]:
        try:
            missing, script = await _missing(store)
            if missing and not as_sql:
                found = store_at(store, upgrade=True)
                await found.open()
                await found.close()
        except StoreError as error:
            raise NoStore(str(error)) from error
        return missing, script, None if as_sql else await _sign_heads(store)

    missing, script, signed = perform(work())
    names = [f"{migration.number:04}_{migration.name}" for migration in missing]
    if as_json:
        answer = {"store": safe_url(store), "migrations": names, "applied": not as_sql, "sql": script}
        print_json(answer if signed is None else answer | _signed_answer(signed))
    elif as_sql:
        click.echo(script or "-- The database is up to date.", nl=not script)
    else:
        click.echo("\n".join(f"Applied {name}." for name in names) if names else "The database is up to date.")
        if signed is not None:
            _tell_signed(signed)
    if signed is not None and signed.broken:
        raise SystemExit(Problem.exit_code)


async def _sign_heads(store: str) -> Signed | None:
    """Sign the rows of all runs, if there are keys; None if there are none."""
    import time

    from loom.cli.session import client
    from loom.runtime.durable.settings import Settings
    from loom.runtime.verification import sign_heads

    if Settings().keyring is None:
        return None
    async with client(store) as runtime:
        runtime.check_keys()
        return await sign_heads(runtime.store, runtime.links, time.time())


def _signed_answer(signed: Signed) -> dict[str, object]:
    from loom.runtime.plain import iso

    problems = [{"run_id": run.run_id, "problem": run.problem} for run in signed.broken]
    return {"heads_signed": signed.signed, "heads_signed_since": iso(signed.since), "problems": problems}


def _tell_signed(signed: Signed) -> None:
    from loom.runtime.plain import iso

    for run in signed.broken:
        click.echo(run.problem)
    if signed.signed:
        click.echo(f"Signed the rows of {signed.signed} runs.")
    since = iso(signed.since)
    click.echo(f"Every row is signed since {since}: one without a signature is broken, and a start needs the keys.")


@db.command()
@store_option
def anchor(store: str) -> None:
    """Print a signed note of every run, to find put-back ones by.

    It says what the store holds of each run now, signed with LOOM_JOURNAL_KEYS. Keep it where the database is not:
    `loom db verify --anchor FILE` finds with it what was put back to an earlier state since.
    """
    import time

    from loom.cli.problems import WrongUse
    from loom.cli.session import client, perform

    _refuse_cluster(store)

    async def work() -> None:
        from loom.runtime.verification import anchor_lines

        async with client(store) as runtime:
            if runtime.links.ring is None:
                raise WrongUse("An anchor is signed: give the keys of the store in LOOM_JOURNAL_KEYS.")
            runtime.check_keys()
            async for line in anchor_lines(runtime.store, runtime.links, time.time()):
                click.echo(line, nl=False)

    perform(work())


@db.command()
@click.option("--run", "run_id", metavar="RUN_ID", help="Only this run.")
@click.option("--anchor", "file", type=click.File("rb"), help="Compare all runs with what `loom db anchor` printed.")
@click.option("--allow-gone", is_flag=True, help="With --anchor: runs that are not there any more were purged.")
@store_option
@json_option
def verify(run_id: str | None, file: IO[bytes] | None, allow_gone: bool, store: str, as_json: bool) -> None:
    """Check that the journals of all runs are what was written. Exits with 1 if one is not.

    Each part of a journal is bound to the one before it. If LOOM_JOURNAL_KEYS has the keys that they are signed with,
    nobody without them can have made one. That a run was put back to an earlier state, with its signature, only an
    anchor shows. An SQLite file is checked by SQLite too. `loom workflow replay` checks what a journal leads to.
    """
    from loom.cli.output import print_json
    from loom.cli.problems import Problem, WrongUse
    from loom.cli.session import perform

    _refuse_cluster(store)
    if run_id is not None and file is not None:
        raise WrongUse("An anchor is of all runs: leave out --run.")
    checked = perform(_checked(store, run_id, file.read() if file is not None else None))
    broken = [run for run in checked.runs if run.verdict == "broken"]
    differing = [found for found in checked.differences or () if not (found.gone and allow_gone)]
    if as_json:
        print_json(_verified_answer(checked))
    else:
        _tell_verified(checked)
    if broken or differing or checked.damage:
        raise SystemExit(Problem.exit_code)


class _Checked(NamedTuple):
    """What `loom db verify` has found."""

    damage: list[str]
    """What SQLite finds wrong with its file."""
    runs: list[Verified]
    has_keys: bool
    heads_since: float | None
    differences: list[Difference] | None
    """From the anchor; None without one."""


async def _checked(store: str, run_id: str | None, anchor: bytes | None) -> _Checked:
    from loom.cli.session import client, store_beside
    from loom.runtime.verification import differences, read_anchor, verified
    from loom.runtime.verification import verify as verify_one
    from loom.store.errors import RunNotFound

    damage: list[str] = []
    if store.startswith("sqlite:") and run_id is None:
        store_beside(store)  # an address that names no file is told before one is looked for
        damage = _file_damage(store)
    async with client(store) as runtime:
        found_store, links = runtime.store, runtime.links
        read = read_anchor(anchor, links) if anchor is not None else None
        if run_id is None:
            runs = [found async for found in verified(found_store, links)]
        else:
            one = await verify_one(found_store, links, run_id)
            if one is None:
                raise RunNotFound(run_id)
            runs = [one]
        differing = None if read is None else [found async for found in differences(found_store, links, read)]
        return _Checked(damage, runs, links.ring is not None, links.heads_since, differing)


def _file_damage(store: str) -> list[str]:
    import os

    from loom.runtime.connect import plain_store
    from loom.store.sqlite import SqliteStore, schema

    found = plain_store(store, upgrade=False)
    assert isinstance(found, SqliteStore)
    return schema.damage(found.path) if os.path.exists(found.path) else []


def _unsigned(checked: _Checked) -> list[str]:
    """The runs whose rows have no signature, where there are keys to sign them."""
    return [run.run_id for run in checked.runs if checked.has_keys and run.head == "unsigned" and run.problem is None]


def _verified_answer(checked: _Checked) -> dict[str, object]:
    from loom.runtime.plain import iso

    problems = [{"run_id": run.run_id, "problem": run.problem} for run in checked.runs if run.verdict == "broken"]
    differing = checked.differences
    return {
        "runs": len(checked.runs),
        **_counted(checked.runs),
        "problems": problems,
        "damage": checked.damage,
        "unsigned_heads": _unsigned(checked),
        "heads_signed_since": iso(checked.heads_since),
        "anchor": None if differing is None else [found._asdict() for found in differing],
    }


def _tell_verified(checked: _Checked) -> None:
    for text in checked.damage:
        click.echo(f"The file is damaged: {text}")
    for run in checked.runs:
        if run.verdict == "broken":
            click.echo(run.problem)
    for found in checked.differences or ():
        click.echo(found.problem)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in _counted(checked.runs).items() if count)
    click.echo(f"Runs: {len(checked.runs)}{f' ({counts})' if counts else ''}.")
    unsigned = _unsigned(checked)
    if unsigned:
        more = f" and {len(unsigned) - _SHOWN} more" if len(unsigned) > _SHOWN else ""
        click.echo(f"Rows without a signature: {', '.join(map(repr, unsigned[:_SHOWN]))}{more}.")
    if checked.has_keys and checked.heads_since is None:
        click.echo("Rows may be without a signature here: `loom db upgrade` signs them, and then every row needs one.")
    if checked.has_keys and checked.differences is None:
        click.echo("Not looked for: runs that were put back to an earlier state. Only `--anchor FILE` shows them.")


def _refuse_cluster(store: str) -> None:
    from loom.cli.problems import WrongUse

    if _is_cluster(store):
        raise WrongUse("A Temporal cluster keeps the histories of runs itself: there are no journals to check.")


def _is_cluster(store: str) -> bool:
    return store.startswith("temporal:")


def _upgrade_cluster(url: str, as_sql: bool, as_json: bool) -> None:
    """Give a cluster what lists of runs are filtered by."""
    from loom.cli.output import print_json
    from loom.cli.problems import WrongUse
    from loom.cli.session import opened_store, perform, safe_url, store_at

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

    from loom.runtime.verification import Verdict

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

"""Attacks on the rows of signed runs in PostgreSQL: what `test_signed_heads` does to a file, by SQL on a server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import test_signed_heads as attacks
from postgres_server import fresh_database_url
from test_signed_heads import K1, SICK, Database, anchored, compared, cut, go_on, parked, signed
from typing_extensions import override

UntilIdle = attacks.UntilIdle


class ServerDatabase(Database):
    """A schema on a server, and an attacker who writes it with SQL."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = fresh_database_url()

    @override
    def execute(self, sql: str, *values: Any) -> list[Any]:
        for number in range(len(values)):
            sql = sql.replace("?", f"${number + 1}", 1)

        async def run() -> list[Any]:
            connection = await asyncpg.connect(self.url)
            try:
                return [tuple(row) for row in await connection.fetch(sql, *values)]
            finally:
                await connection.close()

        # In a thread: the attacks on a file are not coroutines.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, run()).result()

    def kept(self) -> None:
        """Keep the sick run's row as it is now."""
        self.execute("CREATE TABLE kept AS SELECT * FROM runs WHERE run_id = 'sick'")

    def put_kept_back(self, chunks: int) -> None:
        """Put the kept row in the place of the new one, and take away what came after it."""
        self.execute("DELETE FROM runs WHERE run_id = 'sick'")
        # The database itself makes what is generated.
        [(names,)] = self.execute(
            "SELECT string_agg(column_name, ', ') FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = 'runs' AND is_generated = 'NEVER'"
        )
        self.execute(f"INSERT INTO runs ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM kept")
        newest = f"SELECT id FROM chunks WHERE run = {SICK} ORDER BY id OFFSET {chunks}"
        self.execute(f"DELETE FROM chunks WHERE id IN ({newest})")


@pytest.fixture
async def database(tmp_path: Path, until_idle: UntilIdle) -> ServerDatabase:
    found = ServerDatabase(tmp_path)
    async with found.runtime() as runtime:
        for run_id in ("sick", "sound"):
            await until_idle(await runtime.start("listens", {"greeting": "hello"}, run_id=run_id))
        await until_idle(await runtime.start("flow", run_id="flowing"))
    assert {run.verdict for run in (await found.verdicts()).values()} == {"signed"}
    return found


async def broken(database: Database) -> list[str]:
    return [run.run_id for run in (await database.verdicts()).values() if run.verdict == "broken"]


async def test_what_a_row_says_cannot_be_changed(database: ServerDatabase) -> None:
    await go_on(database)
    database.kept()
    for change in (
        "status = 'completed', ended_at = 1.0",
        "workflow = 'flow'",
        "document = (SELECT document FROM runs WHERE run_id = 'flowing')",
        "mac = (SELECT mac FROM runs WHERE run_id = 'sound')",
        "ticks = ticks - 1",
        "events = events + 1",
        "link = (SELECT link FROM runs WHERE run_id = 'sound')",
    ):
        database.execute(f"UPDATE runs SET {change} WHERE run_id = 'sick'")
        assert await broken(database) == ["sick"], change
        database.put_kept_back(1000)
    # Two runs with each other's rows.
    for before, after in (("sick", "between"), ("sound", "sick"), ("between", "sound")):
        database.execute("UPDATE runs SET run_id = ? WHERE run_id = ?", after, before)
    assert sorted(await broken(database)) == ["sick", "sound"]


async def test_a_run_whose_last_chunks_were_cut_off_is_found_and_not_run(database: ServerDatabase) -> None:
    database.execute("UPDATE runs SET mac = NULL")
    assert {run.verdict for run in (await database.verdicts()).values()} == {"unsigned_head"}
    await go_on(database)
    assert (await signed(database)).signed == 2
    cut(database)
    assert "its row is not what was written" in str((await database.verdicts())["sick"].problem)
    database.execute("UPDATE runs SET mac = NULL WHERE run_id = 'sick'")
    assert "its signature is missing" in str((await database.verdicts())["sick"].problem)
    assert "its signature is missing" in await parked(database, "sick")


async def test_an_old_row_with_its_old_signature_is_found_by_an_anchor_alone(database: ServerDatabase) -> None:
    await signed(database)
    database.kept()
    chunks = database.chunks()
    await go_on(database)
    anchor = await anchored(database, K1)
    assert await compared(database, anchor) == []
    database.put_kept_back(chunks)
    database.execute("DELETE FROM snapshots")
    assert (await database.verdicts())["sick"].verdict == "signed", "the database alone cannot tell"
    [problem] = await compared(database, anchor)
    assert problem.startswith("Run 'sick' was put back: it had ")
    database.execute("DELETE FROM entries WHERE kind = 'keyring' AND key = 'heads.signed'")
    assert "The note that every row" in (await compared(database, anchor))[0]

"""What any engine has to pay for a durable step: bare commits of a row that holds what a step leaves behind."""

import sqlite3
import time

from bench.places import path_of

ROW = b"x" * 700


def sqlite(url: str, rows: int, group: int) -> float:
    """The seconds for so many rows, so many of them in each commit."""
    connection = sqlite3.connect(path_of(url), isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    connection.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    started = time.perf_counter()
    for _ in range(rows // group):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO steps (data) VALUES (?)", [(ROW,)] * group)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


def postgres(url: str, rows: int, group: int) -> float:
    """The same there."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE steps (id bigserial PRIMARY KEY, data bytea NOT NULL)")
        started = time.perf_counter()
        for _ in range(rows // group):
            connection.execute("INSERT INTO steps (data) SELECT unnest(%b::bytea[])", ([ROW] * group,), prepare=True)
        return time.perf_counter() - started

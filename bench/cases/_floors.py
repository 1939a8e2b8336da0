"""What any engine has to pay for a durable step: bare commits of a row that holds what a step leaves behind."""

import asyncio
import queue
import sqlite3
import threading
import time

from bench.places import path_of

ROW = b"x" * 700


def sqlite(url: str, rows: int, group: int) -> float:
    """The seconds for so many rows, so many of them in each commit."""
    connection = _opened(url)
    started = time.perf_counter()
    for _ in range(rows // group):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO steps (data) VALUES (?)", [(ROW,)] * group)
        connection.execute("COMMIT")
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


def sqlite_in_thread(url: str, rows: int) -> float:
    """The seconds for so many commits of one row in a thread, each awaited on an event loop before the next begins.

    An engine that never lets its event loop wait for a disk cannot be faster.
    """
    connection = _opened(url)
    asked: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()

    def write(loop: asyncio.AbstractEventLoop) -> None:
        while (answer := asked.get()) is not None:
            connection.execute("INSERT INTO steps (data) VALUES (?)", (ROW,))
            loop.call_soon_threadsafe(answer.set_result, None)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        writer = threading.Thread(target=write, args=(loop,))
        writer.start()
        started = time.perf_counter()
        for _ in range(rows):
            answer = loop.create_future()
            asked.put(answer)
            await answer
        seconds = time.perf_counter() - started
        asked.put(None)
        writer.join()
        return seconds

    seconds = asyncio.run(main())
    connection.close()
    return seconds


def _opened(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path_of(url), isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    connection.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    return connection


def postgres(url: str, rows: int, group: int) -> float:
    """The same there."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE steps (id bigserial PRIMARY KEY, data bytea NOT NULL)")
        started = time.perf_counter()
        for _ in range(rows // group):
            connection.execute("INSERT INTO steps (data) SELECT unnest(%b::bytea[])", ([ROW] * group,), prepare=True)
        return time.perf_counter() - started

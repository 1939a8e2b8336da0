"""Notice what other processes have written to the same file."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

from loom.store.sqlite.connection import Place
from loom.store.sqlite.forks import lock_against_forks

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.store.sqlite.connection import Connection

INTERVAL = 0.05
"""Seconds between two looks."""

_VERSION = "PRAGMA data_version"
_LATEST = "SELECT COALESCE(MAX(id), 0) FROM news"
_NEWS = """SELECT DISTINCT runs.run_id FROM news JOIN runs ON runs.id = news.run
WHERE news.id > ? AND news.id <= ? AND news.source <> ? ORDER BY news.id"""


class Watcher:
    """A thread that looks whether the file has changed, and tells of which runs there are news.

    A look at an unchanged file reads one number in memory. A look that fails is repeated with a new connection; what
    it would have seen is seen then.
    """

    def __init__(
        self, path: str, open_connection: Callable[[], Connection], source: int, tell: Callable[[list[str]], None]
    ) -> None:
        self._path = path
        self._open_connection = open_connection
        self._source = source
        self._tell = tell
        self._stopped = threading.Event()
        self._ended: Callable[[], object] | None = None
        self._seen = 0
        self._version = -1
        self._thread = threading.Thread(target=self._main, name="loom sqlite news", daemon=True)

    def start(self, connection: Connection) -> None:
        """Begin with what is written from now on."""
        self._seen = connection.query(_LATEST)[0][0]
        self._thread.start()

    def stop(self, ended: Callable[[], object]) -> None:
        """Stop soon; the thread ends by itself, and says so as its last act."""
        self._ended = ended
        self._stopped.set()

    def _main(self) -> None:
        connection: Connection | None = None
        place = Place(self._path)
        in_sqlite = lock_against_forks()
        while not self._stopped.wait(INTERVAL):
            with in_sqlite:
                try:
                    if connection is None:
                        connection, place = self._open_connection(), Place(self._path)
                        self._version = -1
                    place.check()
                    self._look(connection)
                except sqlite3.Error:
                    # Readers and writers of the store meet the same error, and report it to their callers.
                    if connection is not None:
                        connection.close()
                        connection = None
        if connection is not None:
            with in_sqlite:
                connection.close()
        if self._ended is not None:
            self._ended()

    def _look(self, connection: Connection) -> None:
        version = connection.query(_VERSION)[0][0]
        if version == self._version:
            return
        latest = connection.query(_LATEST)[0][0]
        found = connection.query(_NEWS, (self._seen, latest, self._source)) if latest > self._seen else []
        self._seen = latest
        self._version = version
        if found:
            self._tell([run_id for (run_id,) in found])

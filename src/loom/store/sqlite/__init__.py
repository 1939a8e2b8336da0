"""The store in an SQLite file: one process works on runs, any number read and write beside it.

`store` is the way in. `db_threads` runs work on a writer thread and on readers. `transactions` writes groups of
operations, with the statements of `ownership` and `key_values`; `reads` reads.
"""

from loom.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

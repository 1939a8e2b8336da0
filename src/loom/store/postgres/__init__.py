"""The store in PostgreSQL, which any number of processes may share. Needs the extra `postgres`.

`store` is the way in. `connections` opens and heals connections and hears what other processes have written. `plan`
cuts a group into batches and decides what each operation comes to; `transactions` writes that, with the SQL of
`statements`. `reads`, `ownership` and `key_values` do the rest.
"""

from __future__ import annotations

from loom.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

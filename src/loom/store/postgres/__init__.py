"""The store in PostgreSQL, which any number of processes may share. Needs the extra `postgres`.

`connections` opens and heals connections, `listener` hears of what others have written. `store` puts together the
rooms for reading (`reading`), members (`members`) and writing: `batches` cuts a group into operations that can be
written together, `plan` decides what each of them comes to, `writing` does it, with the texts of `statements`.
"""

from __future__ import annotations

from loom.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

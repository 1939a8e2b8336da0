"""The numbered `.sql` files of the SQLite schema: see `loom.store.migrations`."""

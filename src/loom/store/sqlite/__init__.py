"""Runs in an SQLite file: one writer thread with group commit, readers apart. May import the rest of loom.store."""

from loom.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

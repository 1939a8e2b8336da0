"""Numbered `.sql` files that bring a database up to date, and the rules which of them to apply.

Each database folder has a package `migrations` with files like `0001_runs.sql`. A store keeps what it has applied in
the table `loom_schema(version, name, checksum, applied_at)` and writes the row in the transaction of the migration.
"""

from __future__ import annotations

import hashlib
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loom.store.errors import StoreError, StoreTooNew

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Migration(NamedTuple):
    """One step of a schema."""

    number: int
    name: str
    sql: str
    checksum: str
    """SHA-256 of the text, in hexadecimal."""


def available(package: str) -> list[Migration]:
    """Return the migrations in the folder of a package, in order; `StoreError` if numbers are missing or repeated."""
    found: list[Migration] = []
    # By its path: `importlib.resources` takes longer to load than it takes to open a store.
    for entry in Path(import_module(package).__path__[0]).iterdir():
        match = _FILE.fullmatch(entry.name)
        if match is not None:
            # Line ends may differ between a checkout and a wheel; the checksum must not.
            sql = entry.read_text(encoding="utf-8").replace("\r\n", "\n")
            checksum = hashlib.sha256(sql.encode()).hexdigest()
            found.append(Migration(int(match[1]), match[2], sql, checksum))
    found.sort()
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise StoreError(f"The migrations of {package} must be numbered from 1 without gaps, not {numbers}.")
    return found


def pending(applied: Mapping[int, str], available: Sequence[Migration]) -> list[Migration]:
    """Return the migrations that a database lacks, in order; `applied` has its checksums by number.

    `StoreTooNew` if it has migrations that the code does not know, `StoreError` if one of them was another text.
    """
    newest = max(applied, default=0)
    known = len(available)
    if newest > known:
        raise StoreTooNew(
            f"The database has schema version {newest}, but this version of Loom knows only {known}. "
            "Use the version of Loom that wrote it, or a newer one."
        )
    for migration in available:
        checksum = applied.get(migration.number)
        if checksum is not None and checksum != migration.checksum:
            raise StoreError(
                f"Migration {migration.number} ({migration.name}) was applied to this database with another text: "
                f"its checksum is {checksum[:12]}, that of the code is {migration.checksum[:12]}."
            )
    return [migration for migration in available if migration.number not in applied]

"""Which migrations there are, and which of them a database lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom.store.errors import StoreError, StoreTooNew
from loom.store.migrations import Migration, available, pending

FIRST = Migration(1, "first", "CREATE TABLE a (b)", "aaaaaaaaaaaaaaaa")
SECOND = Migration(2, "second", "CREATE TABLE c (d)", "cccccccccccccccc")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an empty package of migrations, which is named like the folder."""
    folder = tmp_path / f"migrations_of_{abs(hash(tmp_path))}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_the_files_of_a_package_come_in_the_order_of_their_numbers(package: Path) -> None:
    for number in (2, 10, 1, 3, 9, 8, 7, 6, 5, 4):
        (package / f"{number:04}_step_{number}.sql").write_text(f"-- {number}")
    (package / "notes.txt").write_text("not a migration")
    found = available(package.name)
    assert [(one.number, one.name, one.sql) for one in found] == [(n, f"step_{n}", f"-- {n}") for n in range(1, 11)]
    assert len({one.checksum for one in found}) == 10


def test_the_ends_of_lines_do_not_change_a_checksum(package: Path) -> None:
    file = package / "0001_a.sql"
    file.write_bytes(b"SELECT 1;\nSELECT 2;\n")
    [unix] = available(package.name)
    file.write_bytes(b"SELECT 1;\r\nSELECT 2;\r\n")
    assert available(package.name) == [unix]


@pytest.mark.parametrize("names", [("0002_a.sql",), ("0001_a.sql", "0003_b.sql"), ("0001_a.sql", "0001_b.sql")])
def test_numbers_must_be_without_gaps_and_repetitions(package: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (package / name).touch()
    with pytest.raises(StoreError, match="without gaps"):
        available(package.name)


def test_a_database_lacks_what_it_has_not_applied() -> None:
    assert pending({}, [FIRST, SECOND]) == [FIRST, SECOND]
    assert pending({1: FIRST.checksum}, [FIRST, SECOND]) == [SECOND]
    assert pending({1: FIRST.checksum, 2: SECOND.checksum}, [FIRST, SECOND]) == []


def test_a_database_that_is_newer_than_the_code_is_refused() -> None:
    with pytest.raises(StoreTooNew, match=r"version 7.* knows only 2"):
        pending({1: FIRST.checksum, 2: SECOND.checksum, 7: "?"}, [FIRST, SECOND])


def test_a_migration_that_was_changed_afterwards_is_refused() -> None:
    with pytest.raises(StoreError, match=r"Migration 2 \(second\)"):
        pending({1: FIRST.checksum, 2: "0000"}, [FIRST, SECOND])

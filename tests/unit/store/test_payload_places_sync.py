"""What is written outlives a power cut on every system, as far as another one can tell."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from loom.store.payload_places import sync_file, sync_folder
from loom.store.sqlite.connection import open_writer

F_FULLFSYNC = 51
"""The number that only macOS knows."""


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that were synced, and really are."""
    found: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        found.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_file_and_its_folder_are_synced(synced: list[int], tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno())
        assert synced == [file.fileno()]
    sync_folder(tmp_path)
    assert len(synced) == 2


def test_macos_is_asked_for_the_drive_too(synced: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    wanted: list[int] = []

    def control(_descriptor: int, number: int) -> int:
        wanted.append(number)
        if len(wanted) > 1:
            raise OSError("not supported")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno())
        assert (wanted, synced) == ([F_FULLFSYNC], [])
        sync_file(file.fileno())
        assert synced == [file.fileno()], "a file system without it gets the plain one"


@pytest.mark.parametrize(("system", "expected"), [("darwin", 1), ("linux", 0)])
def test_macos_lets_sqlite_sync_the_drive(
    system: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connection(sqlite3.Connection):
        def query(self, sql: str) -> list[tuple[int, ...]]:
            return self.execute(sql).fetchall()

    monkeypatch.setattr(sys, "platform", system)
    with closing(open_writer(lambda path: sqlite3.connect(path, factory=Connection), str(tmp_path / "db"))) as writer:
        for name in ("fullfsync", "checkpoint_fullfsync"):
            assert writer.query(f"PRAGMA {name}") == [(expected,)]


def test_windows_opens_no_folder(synced: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    sync_folder(tmp_path / "is not there")
    assert synced == []

"""What is written outlives a power cut on every system, as far as another one can tell."""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from loom.store import disk_sync

F_FULLFSYNC = 51


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """What the system is asked for. It does it: nothing is replaced but the number that only macOS knows."""
    calls: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        calls.append(("fsync", descriptor))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    yield calls
    monkeypatch.undo()
    importlib.reload(disk_sync)


def on(system: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "platform", system)
    return importlib.reload(disk_sync)


def test_a_file_and_its_folder_are_synced(asked: list[tuple[str, int]], tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        disk_sync.sync_file(file.fileno())
        assert asked == [("fsync", file.fileno())]
    disk_sync.sync_folder(tmp_path)
    assert len(asked) == 2


def test_macos_is_asked_for_the_drive_too(
    asked: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    wanted: list[int] = []

    def control(descriptor: int, number: int) -> int:
        wanted.append(number)
        if len(wanted) > 1:
            raise OSError("not supported")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    there = on("darwin", monkeypatch)
    with (tmp_path / "file").open("wb") as file:
        there.sync_file(file.fileno())
        assert (wanted, asked) == ([F_FULLFSYNC], [])
        there.sync_file(file.fileno())
        assert asked == [("fsync", file.fileno())], "a file system without it gets the plain one"


def test_macos_lets_sqlite_sync_the_drive(asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk_sync.SQLITE_PRAGMAS == () or sys.platform == "darwin"
    with closing(sqlite3.connect(":memory:")) as connection:
        for pragma in on("darwin", monkeypatch).SQLITE_PRAGMAS:
            connection.execute(pragma)
        names = ("fullfsync", "checkpoint_fullfsync")
        assert [connection.execute(f"PRAGMA {name}").fetchone() for name in names] == [(1,), (1,)]


def test_windows_opens_no_folder(asked: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on("win32", monkeypatch).sync_folder(tmp_path / "is not there")
    assert asked == []

"""What the tests of the surface share: golden files, the fixed store, and a clock that stands still."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import surface_script
from surface_golden import Compare, comparison
from surface_script import Built

_ENVIRONMENT = (
    "LOOM_STORE",
    "LOOM_URL",
    "LOOM_API_KEY",
    "LOOM_JOURNAL_KEYS",
    "LOOM_ENCRYPTION_KEYS",
    "LOOM_HTTP_ALLOW",
)


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Build the fixed store once; tests work on copies."""
    path = tmp_path_factory.mktemp("surface") / "loom.db"
    kept, logger = _Kept(), logging.getLogger("loom")
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    with pytest.MonkeyPatch.context() as patch:
        _stop_the_clock(patch)
        surface_script.build(path)
    time.tzset()
    logger.removeHandler(kept)
    logger.setLevel(level)
    yield Built(path, kept.records)
    path.unlink()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Compare:
    """Compare a text with the golden file of a name."""
    return comparison(request)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the system's clock stand still after the end of the script, in UTC."""
    _stop_the_clock(monkeypatch)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def place(built: Built, frozen: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory that has a copy of the fixed store, where the command line looks for it."""
    shutil.copyfile(built.path, tmp_path / "loom.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _stop_the_clock(patch: pytest.MonkeyPatch) -> None:
    for name in _ENVIRONMENT:
        patch.delenv(name, raising=False)
    patch.setenv("TZ", "UTC")
    time.tzset()
    patch.setattr(time, "time", lambda: surface_script.AFTER)

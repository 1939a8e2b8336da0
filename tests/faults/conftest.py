"""Lets the tests of this folder import what stands beside them, and the workload and checks of the kill sweep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
for folder in ("", "kill", "faults"):
    if str(TESTS / folder) not in sys.path:
        sys.path.insert(0, str(TESTS / folder))


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Path]:
    """The file in which the bodies of the workload tell what they do."""
    from kill_workload import witness

    path = tmp_path / "witness"
    witness.open(path)
    yield path
    witness.close()

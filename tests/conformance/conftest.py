"""What does not apply to a kind of store or runtime is not collected there: see `applicable.not_on`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# `applicable`, which stands beside this file.
sys.path.insert(0, str(Path(__file__).parent))

from applicable import leave_out, reason_against


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that say that they do not apply."""
    leave_out(config, items, lambda item: reason_against(item) is not None)

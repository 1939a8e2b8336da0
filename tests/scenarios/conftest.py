"""The option that rewrites transcripts. Commit a rewrite only if you can explain each line of it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what happened into tests/scenarios/*.txt")

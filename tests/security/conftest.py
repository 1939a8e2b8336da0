"""Gives the attacks a server: the one that the tests of the server have, on memory and on SQLite."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

# What stands beside the tests here, `postgres_server`, which all tests share, and `server_serving`.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "server"))

from server_serving import Served, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server on memory."""
    async with serving() as found:
        yield found


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody on this machine."""
    async with served.client() as found:
        yield found

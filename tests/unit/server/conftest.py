"""Lets the tests of the server import `server_serving`, which stands beside them, and gives them a server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from server_serving import Served, serving


@pytest.fixture(params=["memory", "sqlite"])
async def served(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Served]:
    """A server on either store."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with serving(url) as found:
        yield found


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody on this machine."""
    async with served.client() as found:
        yield found

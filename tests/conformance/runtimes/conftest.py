"""Every test here runs on every kind of store, with the real runtime, through its public calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

# What stands beside the tests here, and the servers, which all tests share.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from runtime_deployments import KINDS, Deployment, new_deployment
from runtime_watching import Witness
from temporal_exceptions import why_not

from loom.testing.faults import Crash


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What cannot hold on Temporal is skipped there, by name and with the reason."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and "temporal" in call.params.values():
            reason = why_not(f"{item.path.stem}::{item.name}")
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(params=KINDS)
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A new database, on which processes can be opened and crash."""
    asyncio.get_running_loop().set_exception_handler(_tell)
    deployment = new_deployment(request.param, tmp_path)
    try:
        yield deployment
    finally:
        await deployment.dispose()


@pytest.fixture
def witness() -> Witness:
    """What bodies do, in a memory that outlives processes."""
    return Witness()


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody is left in a crashed process to ask what became of its tasks."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)

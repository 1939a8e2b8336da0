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

from applicable import leave_out
from runtime_deployments import KINDS, Deployment, new_deployment
from runtime_watching import Witness
from temporal_exceptions import why_not

from loom.testing.faults import Crash


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what cannot hold on Temporal: `temporal_exceptions` has the names and the reasons."""
    leave_out(config, items, _is_excepted)


def _is_excepted(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    if call is None or "temporal" not in call.params.values() or Path(__file__).parent != item.path.parent:
        return False
    return why_not(f"{item.path.stem}::{item.name}") is not None


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

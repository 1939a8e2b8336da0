"""Lets the tests of the step API import `steps_rig`, which stands beside them; a test that hangs fails."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

_LONGEST_S = 60.0

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No test here waits for long: one that does will wait for ever."""
    for item in items:
        body: Any = getattr(item, "obj", None)
        if Path(__file__).parent in item.path.parents and inspect.iscoroutinefunction(body):
            item.obj = _limited(body)  # type: ignore[attr-defined]


def _limited(body: Any) -> Any:
    @functools.wraps(body)
    async def limited(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(_LONGEST_S):
            await body(*args, **kwargs)

    return limited

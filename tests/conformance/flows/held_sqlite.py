"""A real SQLite store for tests on a virtual clock: time stands still while the database works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from loom.store.ports import Store
from loom.store.sqlite import SqliteStore
from loom.testing import VirtualLoop


def _held(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(self: SqliteStore, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.hold():
            return await method(self, *args, **kwargs)

    return call


class HeldSqliteStore(SqliteStore):
    """Its threads are nothing that a virtual clock could know of."""


for _name, _method in vars(Store).items():
    if asyncio.iscoroutinefunction(_method):
        setattr(HeldSqliteStore, _name, _held(getattr(SqliteStore, _name)))

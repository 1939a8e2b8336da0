"""Fixtures for tests of workflows, which pytest finds by itself where Loom is installed.

`loom_clock` is a virtual clock, `loom_handlers` lets a test mock actions, and `loom_runtime` is a runtime over a store
of its own under that clock. An async test that uses one of the first or the last runs on the clock; it needs no other
plugin. Nothing of `loom` is imported before a fixture is used.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.testing import IsolatedHandlers, VirtualClock

_CLOCK = "loom_clock"


@pytest.fixture
def loom_clock() -> Iterator[VirtualClock]:
    """A virtual clock: days pass at once. An async test runs on it, others call `loom_clock.run(coroutine)`."""
    from loom.testing import VirtualClock

    with VirtualClock() as clock:
        yield clock


@pytest.fixture
def loom_handlers() -> Iterator[IsolatedHandlers]:
    """Handlers that end with the test, and mocks: `loom_handlers.mock_action("http", returns=...)`."""
    from loom.testing import isolated_handlers

    with isolated_handlers() as handlers:
        yield handlers


@pytest.fixture
def loom_options() -> dict[str, Any]:
    """Options of `loom.connect` for `loom_runtime`, `url` among them: define a fixture of this name to give some."""
    return {}


@pytest.fixture
def loom_runtime(
    loom_clock: VirtualClock,
    loom_handlers: IsolatedHandlers,  # noqa: ARG001 - handlers that a test registers end after its runtime
    loom_options: dict[str, Any],
) -> Iterator[WorkerRuntime]:
    """A runtime under `loom_clock`, by default over a new store in memory. Handlers end with the test."""
    from loom import connect

    runtime = connect(**loom_options)
    loom_clock.run(runtime.__aenter__())
    try:
        yield runtime
    finally:
        loom_clock.run(runtime.__aexit__(None, None, None))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run an async test that uses the clock on the clock."""
    if _CLOCK not in pyfuncitem.fixturenames:
        return None
    test = _async_function(pyfuncitem)
    if test is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    clock: Any = pyfuncitem.funcargs[_CLOCK]
    clock.run(test(**arguments))
    return True


def _async_function(item: pytest.Function) -> Callable[..., Any] | None:
    """Find the coroutine function of a test; None for a test that is not async.

    pytest-asyncio puts a function in its place that would run it on a loop of its own.
    """
    found: Any = item.obj
    if type(item).__module__.partition(".")[0] == "pytest_asyncio":
        found = getattr(found, "__wrapped__", found)
    return found if inspect.iscoroutinefunction(found) else None

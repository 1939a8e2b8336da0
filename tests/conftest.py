"""What the whole suite shares. Hypothesis profile: `ci` when CI is set, else `dev`; HYPOTHESIS_PROFILE overrides it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=80, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None)

_DEFAULT = "ci" if os.environ.get("CI", "").lower() in {"1", "true"} else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _DEFAULT))


@pytest.fixture
def until_idle() -> Callable[[Any], Awaitable[None]]:
    """Wait until a run has told that it is idle."""
    from loom.steps.events import WorkflowIdleEvent

    async def wait(handler: Any) -> None:
        async for event in handler.stream_events(expose_internal=True, after=-1):
            if isinstance(event, WorkflowIdleEvent):
                return

    return wait


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show what tests have counted (`record_property` with a number), summed up over all of them."""
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        totals.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    for name, total in totals.items():
        terminalreporter.write_line(f"{name}: {total:,}")

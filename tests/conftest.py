"""What the whole suite shares. Hypothesis profile: `ci` when CI is set, else `dev`; HYPOTHESIS_PROFILE overrides it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
from posix_only import needs_posix

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=80, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None)

_DEFAULT = "ci" if os.environ.get("CI", "").lower() in {"1", "true"} else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _DEFAULT))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites transcripts and golden files. Commit a rewrite only if you can explain each line."""
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into tests/scenarios/*.txt and tests/surface/golden"
    )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not even import what needs POSIX, on a system without it."""
    return True if os.name != "posix" and needs_posix(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs POSIX. Leave out what only the full form has, so that a skip is something to know about."""
    for item in items:
        if needs_posix(item.path):
            item.add_marker("posix")
    if "LOOM_FULL" in os.environ:
        return
    left_out = [item for item in items if item.get_closest_marker("full") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]


_IN_MEMORY, _ROOM = "/dev/shm", 4 * 1024**3


def _work_in_memory() -> None:
    """Let files of tests be in memory, if it has room and nobody has said where else.

    Stores ask the disk to keep what they write, which takes milliseconds each time. Processes are killed here, but no
    power is cut: files in memory survive all that happens to those on a disk.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(_IN_MEMORY) or shutil.disk_usage(_IN_MEMORY).free < _ROOM:
        return
    os.environ["TMPDIR"] = _IN_MEMORY
    tempfile.tempdir = None


_work_in_memory()


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

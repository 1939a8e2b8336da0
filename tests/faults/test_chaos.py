"""PostgreSQL is stopped hard under load, also in its recovery, and workers of one name are paused past their leases.

`make chaos` does it for ten minutes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from chaos import Chaos, Report
from postgres_server import own_server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers are paused by signals")


def enough(report: Report) -> bool:
    return report.outages >= 3 and report.pauses >= 1


def test_nothing_is_stranded_and_nothing_doubled(tmp_path: Path) -> None:
    with own_server() as server:
        report = asyncio.run(Chaos(server, tmp_path, seed=3, at_once=50, enough=enough).run())
    log = (tmp_path / "log").read_text()
    assert report.problems == [], "\n".join([*report.problems, log[-8000:]])
    assert report.runs > 50
    assert report.refusals
    assert report.lost_leases

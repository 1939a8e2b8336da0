"""A server is killed under load: nothing that it acknowledged is lost or done twice. See `make kill-server`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from server_kill import sweep

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    report = await sweep(kills=4, clients=4, seed=0, folder=tmp_path)
    assert report.failures == []
    assert report.kills == 4
    assert report.runs >= 20
    assert report.repeated, "no client has noticed that the server was killed"

"""Processes are killed at every commit point and at random times; others finish what is left. See `make kill`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kill_sweep import Points, Sweep, urls_for

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the sweep forks")


def test_nothing_is_lost_or_doubled_on_sqlite() -> None:
    # What is stored after one commit is stored before the next: every third one is struck, before, inside or after.
    points = Points({"before": 9, "inside": 9, "after": 9, "committed": 27, "statement": 151}, seed=0, count=30)
    report = Sweep(points, urls_for("sqlite", 2)).run()
    assert report.failures == [], "\n".join(report.failures)
    assert report.points >= 30
    assert set(report.places) == {"before", "inside", "after", "committed", "statement", "time"}


def test_nothing_is_lost_or_doubled_on_postgresql() -> None:
    points = Points({"before": 13, "after": 13}, seed=0, count=14)
    report = Sweep(points, urls_for("postgres", 4)).run()
    assert report.failures == [], "\n".join(report.failures)
    assert report.points >= 14


def test_nothing_is_lost_or_doubled_where_texts_are_kept_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_PAYLOADS", (tmp_path / "payloads").as_uri())
    monkeypatch.setenv("LOOM_PAYLOADS_ABOVE", "64")
    points = Points({"before": 27, "inside": 27, "after": 27, "committed": 81, "statement": 401}, seed=0, count=12)
    report = Sweep(points, urls_for("sqlite", 2)).run()
    assert report.failures == [], "\n".join(report.failures)
    assert report.points >= 12
    assert len(list((tmp_path / "payloads").glob("*/*/*/p*"))) > 10

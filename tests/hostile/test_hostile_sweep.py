"""A server takes a few dozen hostile cases, and a body that blocks, and stays well. `make hostile` goes on longer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from hostile_flows import Case, blocking_cases, make_case
from hostile_sweep import Report, Sweep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what a process waits for is read from /proc")

SEED = 13
SIZE = 20_000
LEFT = (
    *(
        "schema",
        "repeated",
        "table",
        "growing",
        "loops",
        "actors",
        "children",
        "itself",
        "terminate",
        "threaded",
        "store",
    ),
    *("waits", "memory", "activity-memory", "huge", "answer-chunks", "answer-keys", "answer-same-keys", "answer-lists"),
    *("answer-text", "answer-xml", "answer-parts", "answer-gzip", "answer-drip", "answer-silent", "answer-endless"),
)
"""Kinds that are left to the long form: they take CPU time, or just time."""


def some_cases(count: int) -> dict[int, Case]:
    cases = ((number, make_case(SEED, number, SIZE)) for number in range(10 * count))
    quick = {number: case for number, case in cases if not case.kind.startswith(LEFT)}
    return dict(list(quick.items())[:count])


def test_a_server_stays_well_under_hostile_cases(tmp_path: Path) -> None:
    report = Report(SEED)
    blocking = [case for case in blocking_cases() if case.kind == "sleep"]
    asyncio.run(Sweep(report).round(tmp_path, some_cases(30), blocking, restarts=False))
    assert report.failures == [], "\n".join(report.failures)
    assert report.cases == 31
    assert {"completed", "failed", "refused"} <= set(report.ends)
    assert len(report.health) > 5
    assert len(report.port) > 5


def test_a_case_follows_from_its_seed_and_number() -> None:
    made = [make_case(SEED, number, SIZE).shown() for number in range(20)]
    assert made == [make_case(SEED, number, SIZE).shown() for number in range(20)]
    assert made != [make_case(SEED + 1, number, SIZE).shown() for number in range(20)]

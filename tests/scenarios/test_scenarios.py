"""Every transcript beside this file tells what really happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom.testing.transcripts import VERBS, run_transcript

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    expected = path.read_text("utf-8")
    actual = run_transcript(expected)
    assert "BROKEN" not in actual
    if request.config.getoption("--rewrite", default=False):
        path.write_text(actual, "utf-8")
    else:
        assert actual == expected


def test_every_scenario_says_why() -> None:
    assert [path.name for path in SCENARIOS if not path.read_text("utf-8").startswith("# ")] == []


def test_every_verb_is_used() -> None:
    lines = [line for path in SCENARIOS for line in path.read_text("utf-8").splitlines()]
    used = {command.split()[0] for line in lines for command in line.split(";") if command.split()}
    assert set(VERBS) - used == set()

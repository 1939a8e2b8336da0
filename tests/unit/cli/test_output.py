from __future__ import annotations

import pytest

from loom.cli.output import ago, clean, print_table, span
from loom.runtime.plain import iso


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m"),
        (185, "3m 5s"),
        (1000, "16m"),
        (7500, "2h 5m"),
        (90000, "1d 1h"),
        (86400 * 20, "2w 6d"),
    ],
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_times_seen_from_now() -> None:
    assert ago(100.0, 280.0) == "3m ago"
    assert ago(105.0, 100.0) == "in 5s"
    assert ago(None, 100.0) == ""


def test_times_for_programs() -> None:
    assert iso(0.5) == "1970-01-01T00:00:00.500000Z"
    assert iso(None) is None


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert clean("Grüße, 世界") == "Grüße, 世界"
    assert clean("a\x1b[31m\nb\ud800") == "a\\x1b[31m\\nb\\ud800"


def test_markup_in_cells_is_text_and_long_cells_are_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(["run"], [["[bold]a[/bold]"], [long]])
    printed = capsys.readouterr().out
    assert "[bold]a[/bold]" in printed
    assert long in printed

"""The recording of the demo is one of this demo, and small; what is recorded is drawn as a terminal shows it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"

pytest.importorskip("pty", reason="a terminal of its own needs POSIX")
sys.path.insert(0, str(ROOT / "tools"))
import recording  # noqa: E402
from recording import Piece, Style, Terminal  # noqa: E402


def _said() -> list[str]:
    """The headings and the first column of the table in the demo, as they are written there."""
    tree = ast.parse((ROOT / "examples" / "demo.py").read_text("utf-8"))
    rules = [
        ast.unparse(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "console.rule"
    ]
    plain = [re.sub(r"\{.*?\}|\[.*?\]|^f?['\"]|['\"]$", "\0", text) for text in rules]
    return [part.strip() for text in plain for part in text.split("\0") if len(part.strip()) > 3]


def test_the_recording_is_of_this_demo() -> None:
    shown = " ".join(" ".join(ElementTree.parse(PICTURE).getroot().itertext()).split())
    said = _said()
    assert len(said) >= 6
    assert [text for text in said if text not in shown] == [], "run `make recording`"
    assert "make demo" in shown


def test_it_is_small_and_needs_nothing() -> None:
    text = PICTURE.read_text("utf-8")
    assert len(text.encode()) < recording.MOST_BYTES
    assert not re.search(r"<script|<image|href=|@import|url\(", text)
    assert "/home/" not in text
    assert str(ROOT) not in text
    frames = set(re.findall(r"@keyframes (k\d+)", text))
    assert frames == set(re.findall(r"animation:(k\d+) ", text))
    assert "prefers-reduced-motion" in text


def test_a_program_is_recorded_with_its_times() -> None:
    program = "import time; print('\\x1b[1;31mone\\x1b[0m', flush=True); time.sleep(0.3); print('zwölf')"
    chunks = recording.record([sys.executable, "-c", program])
    terminal = Terminal()
    for at, text in chunks:
        terminal.write(at, text)
    first, second = terminal.pieces
    assert (first.text, first.style) == ("one", Style("#ff7b72", bold=True))
    assert (second.text, second.row, second.style) == ("zwölf", 1, Style())
    assert second.at - first.at >= 0.29


def test_a_program_that_fails_gives_no_recording() -> None:
    with pytest.raises(SystemExit, match="ended with 3"):
        recording.record([sys.executable, "-c", "raise SystemExit(3)"])


def test_long_lines_break_and_colors_end() -> None:
    terminal = Terminal(columns=4)
    terminal.write(0.0, "abcdef\r\n\x1b[2;32mg\x1b[22mh\x1b[39mi")
    texts = [(piece.row, piece.column, piece.text) for piece in terminal.pieces]
    assert texts == [(0, 0, "abcd"), (1, 0, "ef"), (2, 0, "g"), (2, 1, "h"), (2, 2, "i")]
    looks = [piece.style for piece in terminal.pieces[2:]]
    assert looks == [Style("#3fb950", dim=True), Style("#3fb950"), Style()]


def test_a_sign_that_is_cut_waits_for_its_rest() -> None:
    whole, rest = recording._whole("aé".encode()[:-1])
    assert (whole, rest) == ("a", "é".encode()[:1])


def test_each_moment_is_a_group() -> None:
    pieces = [Piece(0.0, 0, 0, "now", Style()), Piece(2.0, 1, 2, " <then>", Style("#ff7b72", bold=True))]
    root = ElementTree.fromstring(recording.drawn(pieces, 2, "a title"))
    groups = root.findall("{http://www.w3.org/2000/svg}g")
    assert ["".join(group.itertext()) for group in groups] == ["now", "<then>"]
    assert "28.57%{opacity:1}" in ElementTree.tostring(root, encoding="unicode")

"""Record the demo in a terminal, and write it as an animated SVG without a script.

`make recording` runs `examples/demo.py` on a terminal of its own, notes what appears when, and writes
docs/images/demo.svg. Nothing is invented: texts, colors and times are those of the run. Paths begin at the repository.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "images" / "demo.svg"
COLUMNS = 80
PROMPT_S, TYPED_S, REST_S = 0.6, 1.2, 5.0
"""When the command is typed, when it begins, and how long the end stays; in seconds."""
MOST_BYTES = 300_000

_CELL, _ROW, _SIZE = 8.4, 18.0, 14
_LEFT, _TOP = 18.0, 52.0
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*(?:\x07|\x1b\\)|\r\n|[\r\n]")
_COLORS = {
    30: "#484f58", 31: "#ff7b72", 32: "#3fb950", 33: "#d29922", 34: "#58a6ff", 35: "#bc8cff", 36: "#39c5cf",
    37: "#e6edf3", 90: "#6e7681", 91: "#ffa198", 92: "#56d364", 93: "#e3b341", 94: "#79c0ff", 95: "#d2a8ff",
    96: "#56d4dd", 97: "#ffffff",
}  # fmt: skip
_BOLD, _DIM, _NEITHER, _USUAL_COLOR = 1, 2, 22, 39
_STYLE = """
  .screen { fill: #0d1117; stroke: #30363d; }
  text { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 14px;
    fill: #e6edf3; white-space: pre; }
  .title { fill: #9da7b1; font-size: 12px; }
  .b { font-weight: 700; } .d { opacity: .65; }
  @media (prefers-reduced-motion: reduce) { g { animation: none !important; } }
"""


@dataclass(frozen=True)
class Style:
    """How a text looks."""

    color: str = ""
    bold: bool = False
    dim: bool = False


@dataclass(frozen=True)
class Piece:
    """Texts of one style in one row, and when they appear."""

    at: float
    row: int
    column: int
    text: str
    style: Style


def record(command: list[str], columns: int = COLUMNS, rows: int = 50) -> list[tuple[float, str]]:
    """Run a command on a terminal of its own; return what it writes, with seconds since its start."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "CI")}
    environment = {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    began = time.monotonic()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:  # noqa: S603 - the demo
        os.close(theirs)
        found, rest = [], b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the terminal is gone when all its processes are
                break
            if not data:
                break
            whole, rest = _whole(rest + data)
            found.append((time.monotonic() - began, whole))
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return found


def _whole(data: bytes) -> tuple[str, bytes]:
    """Decode what is complete; a sign may be cut in the middle."""
    for cut in range(4):
        try:
            end = len(data) - cut
            return data[:end].decode("utf-8"), data[end:]
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace"), b""


class Terminal:
    """As much of a terminal as the demo needs: rows that grow, colors, and breaks of long lines."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self.pieces: list[Piece] = []
        self.row = 0
        self._column = 0
        self._columns = columns
        self._style = Style()

    def write(self, at: float, text: str) -> None:
        """Take in what was written at a time."""
        place = 0
        for found in _CONTROL.finditer(text):
            self._put(at, text[place : found.start()])
            place = found.end()
            if found[0] == "\r":
                self._column = 0
            elif found[0] in ("\n", "\r\n"):
                self.row, self._column = self.row + 1, 0
            elif found[2] == "m":
                self._style = styled(self._style, [int(code or 0) for code in found[1].split(";")])
        self._put(at, text[place:])

    def _put(self, at: float, text: str) -> None:
        while text:
            room = self._columns - self._column
            if room == 0:
                self.row, self._column, room = self.row + 1, 0, self._columns
            part, text = text[:room], text[room:]
            if part.strip():
                self.pieces.append(Piece(at, self.row, self._column, part, self._style))
            self._column += len(part)


def styled(style: Style, codes: list[int]) -> Style:
    """Return the style after codes of a terminal; those that are not known change nothing."""
    for code in codes:
        if code == 0:
            style = Style()
        elif code == _BOLD:
            style = replace(style, bold=True)
        elif code == _DIM:
            style = replace(style, dim=True)
        elif code == _NEITHER:
            style = replace(style, bold=False, dim=False)
        elif code in _COLORS:
            style = replace(style, color=_COLORS[code])
        elif code == _USUAL_COLOR:
            style = replace(style, color="")
    return style


def drawn(pieces: list[Piece], rows: int, title: str) -> str:
    """Write the animation. Where nothing moves, all of it is shown."""
    width = COLUMNS * _CELL + 2 * _LEFT
    height = rows * _ROW + _TOP + 14
    whole = max(piece.at for piece in pieces) + REST_S
    moments = sorted({round(piece.at, 2) for piece in pieces})
    frames, groups = [], []
    for number, moment in enumerate(moments):
        frames.append(f"@keyframes k{number}{{0%{{opacity:0}}{moment / whole * 100:.2f}%{{opacity:1}}}}")
        inside = "".join(_text(piece) for piece in pieces if round(piece.at, 2) == moment)
        groups.append(f'<g style="animation:k{number} {whole:.2f}s step-end infinite">{inside}</g>')
    dots = "".join(
        f'<circle cx="{22 + 20 * number}" cy="20" r="6" fill="{color}"/>'
        for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-labelledby="title text">'
    )
    says = "A terminal: a process that works on a run is killed, another one goes on, and a person answers a question."
    return "\n".join(
        [
            head,
            f'<title id="title">{escape(title)}</title><desc id="text">{says}</desc>',
            f"<style>{_STYLE}{''.join(frames)}</style>",
            f'<rect class="screen" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="10"/>{dots}',
            f'<text class="title" x="{width / 2:g}" y="24" text-anchor="middle">{escape(title)}</text>',
            *groups,
            "</svg>",
            "",
        ]
    )


def _text(piece: Piece) -> str:
    """One text, stretched to its cells, so that columns stand below each other in every font."""
    text = piece.text.rstrip()
    lead = len(text) - len(text.lstrip())
    text = text.lstrip()
    x, y = _LEFT + (piece.column + lead) * _CELL, _TOP + piece.row * _ROW
    classes = " ".join(name for name, is_set in (("b", piece.style.bold), ("d", piece.style.dim)) if is_set)
    look = f' class="{classes}"' if classes else ""
    fill = f' style="fill:{piece.style.color}"' if piece.style.color else ""
    size = f'textLength="{len(text) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:.1f}" y="{y:g}" {size}{look}{fill}>{escape(text)}</text>'


def demo_pieces(chunks: list[tuple[float, str]]) -> tuple[list[Piece], int]:
    """Put a prompt before what the demo has written; return all pieces and the number of rows."""
    terminal = Terminal()
    terminal.write(0.0, "\x1b[32m$\x1b[0m ")
    for number, sign in enumerate("make demo"):
        terminal.write(PROMPT_S + (TYPED_S - PROMPT_S) * number / 12, sign)
    terminal.write(TYPED_S, "\r\n")
    for at, text in chunks:
        terminal.write(TYPED_S + at, text.replace(f"{ROOT}{os.sep}", ""))
    return terminal.pieces, terminal.row + 1


def main(arguments: list[str] | None = None) -> int:
    """Record the demo and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=TARGET, help="where the picture is written")
    options = parser.parse_args(arguments)
    chunks = record([sys.executable, str(ROOT / "examples" / "demo.py")])
    pieces, rows = demo_pieces(chunks)
    text = drawn(pieces, rows, "make demo")
    if len(text.encode()) > MOST_BYTES:
        sys.stderr.write(f"{options.to} would have {len(text.encode()):,} bytes, and may have {MOST_BYTES:,}\n")
        return 1
    options.to.write_text(text, "utf-8")
    sys.stdout.write(f"{options.to}: {len(text.encode()):,} bytes, {chunks[-1][0]:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

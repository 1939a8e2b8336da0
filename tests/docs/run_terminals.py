"""Runs the ```sh blocks of one Markdown file as in a few terminals: `python run_terminals.py FILE`.

A block that begins with `loom serve` is a terminal of its own: it runs in the background, on a free port, until the
next one of its kind or the end. So are `loom worker` and `temporal server`. All others are the last terminal, in order.
A ```text block right behind one is what it prints, but for times and ids; with `--rewrite` the file gets what was
really printed. The folder has `examples`, the files that docs/start.md shows under their names (`shop.py`:), and those
of the page, each from where it is shown: a file that is shown again is replaced there.
`--own-curl` uses the small one beside this file, as on a machine that has none. `--programs FOLDER` types `loom`,
`python` and all else of an environment in that folder, in place of those that run this; then there is nothing in the
folder but what the page shows.
A block after the line `<!-- no-run -->` is not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

_FILE = re.compile(
    r"`([\w./-]+\.(?:json|py|yaml))`:\n\n(?:<!-- no-run -->\n)?```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_FENCE = re.compile(r"^```sh\n(.*?)^```$(?:\n\n^```(?:text|json)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_NO_RUN = re.compile(r"<!-- no-run -->\s*\Z")
_PORTS = {"loom serve": 8080, "temporal server": 7233}
_ATTEMPTS = 5
_REMEMBERED = """terminal="$PWD/.terminal"
[ ! -f "$terminal" ] || . "$terminal"
{commands}
{{ export -p; printf 'cd %q\\n' "$PWD"; }} > "$terminal"
"""
"""What one block exports, and the folder that it goes to, the next one finds."""
_BACKGROUND = (*_PORTS, "loom worker")
_ROOT = Path(__file__).resolve().parents[2]
_START = _ROOT / "docs" / "start.md"
_TIMES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?"), "<time>"),
    (re.compile(r"\bin \d+[mhd]( \d+[smh])?\b"), "<age>"),  # until a time of the day
    (re.compile(r"\b\d+(\.\d+)? ?m?s( ago)?\b"), "<age>"),
    (re.compile(r"\b(just now|now)\b"), "<age>"),
    (re.compile(r"\b[0-9a-f]{12,64}(-[0-9a-f]+)?\b"), "<id>"),
    (re.compile(r"loom_[\w-]{8,}"), "<key>"),
    (re.compile(r"[ \t─━]+"), " "),
)


class Terminals:
    """Servers and workers, and a shell beside them, in a folder of their own."""

    def __init__(self, folder: Path, *, own_curl: bool, programs: Path | None = None) -> None:
        self.folder = folder
        self._ports = {usual: _free_port() for usual in _PORTS.values()}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        binaries = folder / ".bin"
        binaries.mkdir()
        if programs is None:
            self._program(binaries / "loom", f'exec "{sys.executable}" -W error -m loom "$@"')
            self._program(binaries / "python", f'exec "{sys.executable}" -W error "$@"')
            self._program(binaries / "temporal", f'exec "{Path(sys.executable).with_name("temporal")}" "$@"')
        if (
            own_curl or shutil.which("curl") is None
        ):  # a machine need not have it: this one knows the options that the docs use
            self._program(binaries / "curl", f'exec "{sys.executable}" "{Path(__file__).with_name("curl.py")}" "$@"')
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
        path = [binaries, *([programs] if programs is not None else []), os.environ["PATH"]]
        terminal = {
            "PATH": os.pathsep.join(map(str, path)),
            "COLUMNS": "140",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONUNBUFFERED": "1",
        }
        self._env = {**kept, **terminal}

    def _program(self, path: Path, command: str) -> None:
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)

    def run(self, commands: str) -> str:
        """What a block prints; one that goes on in the background prints nothing that is compared."""
        for usual, port in self._ports.items():
            commands = commands.replace(str(usual), str(port))
        kind = background(commands)
        if kind is not None:
            self._begin(kind, commands)
            return ""
        done = subprocess.run(
            ["bash", "-c", _REMEMBERED.format(commands=commands)],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        printed = done.stdout.replace(str(self.folder), "/home/ada")
        for usual, port in self._ports.items():
            printed = printed.replace(str(port), str(usual))
        return printed

    def _begin(self, kind: str, command: str) -> None:
        """Run it in the background, in the place of what is there of its kind, and wait until it is ready."""
        self._end(kind)
        for attempt in range(_ATTEMPTS):
            server = self._start(kind, command)
            if self._is_ready(kind, server):
                return
            del self._running[kind]
            log = self._log(kind).read_text()
            if server.poll() is None or kind != "temporal server" or attempt == _ATTEMPTS - 1:
                raise AssertionError(log)
            # Somebody else has taken one of its ports since they were found to be free.
            self._ports[_PORTS[kind]] = _free_port()

    def _start(self, kind: str, command: str) -> subprocess.Popen[bytes]:
        port = self._ports[_PORTS[kind]] if kind in _PORTS else None
        options = "" if port is None or "--port" in command else f" --port {port}"
        with self._log(kind).open("wb") as output:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command.strip()}{options}"],
                cwd=self.folder,
                env=self._env,
                stdout=output,
                stderr=output,
            )
        self._running[kind] = server
        return server

    def _is_ready(self, kind: str, server: subprocess.Popen[bytes]) -> bool:
        port = self._ports[_PORTS[kind]] if kind in _PORTS else None
        due = time.monotonic() + 60
        while not (self._log(kind).read_text() and (port is None or _answers(port))):
            if server.poll() is not None or time.monotonic() > due:
                return False
            time.sleep(0.05)
        return True

    def _log(self, kind: str) -> Path:
        return self.folder / f".{kind.replace(' ', '-')}.log"

    def _end(self, kind: str) -> None:
        """End what is there of a kind; it must end well."""
        server = self._running.pop(kind, None)
        if server is not None:
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
            assert code == 0, self._log(kind).read_text()

    def stop(self) -> None:
        """End everything, the last first: what uses a server ends before it."""
        for kind in reversed(list(self._running)):
            self._end(kind)


def background(commands: str) -> str | None:
    """What kind of terminal a block is that runs in the background; None if it is the one that is typed into."""
    return next((kind for kind in _BACKGROUND if commands.startswith(kind)), None)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for times, ids and the width of columns."""
    for pattern, word in _TIMES:
        shown, printed = pattern.sub(word, shown), pattern.sub(word, printed)
    return [line.strip() for line in shown.splitlines()] == [line.strip() for line in printed.splitlines()]


def _write(folder: Path, files: Iterable[re.Match[str]]) -> None:
    """Put files that a page shows into the folder, under their names."""
    for file in files:
        path = folder / file[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file[2], "utf-8")


def main(page: Path, *, rewrite: bool, own_curl: bool, programs: Path | None = None) -> None:
    """Run all blocks of a page."""
    text = page.read_text("utf-8")
    found: list[tuple[int, int, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        if programs is None:
            _write(Path(folder), _FILE.finditer(_START.read_text("utf-8")))
            (Path(folder) / "examples").symlink_to(_ROOT / "examples")
        terminals = Terminals(Path(folder), own_curl=own_curl, programs=programs)
        typed = 0
        try:
            for match in _FENCE.finditer(text):
                if _NO_RUN.search(text, 0, match.start()):
                    continue
                _write(Path(folder), _FILE.finditer(text, typed, match.start()))
                typed = match.end()
                printed = terminals.run(match[1])
                if match[2] is None or background(match[1]) is not None:
                    continue
                if rewrite:
                    found.append((*match.span(2), printed))
                elif not same(match[2], printed):
                    line = text.count("\n", 0, match.start(1))
                    raise AssertionError(f"{page}, line {line}: it prints\n{printed}\nbut the page shows\n{match[2]}")
        finally:
            terminals.stop()
    for start, end, printed in reversed(found):
        text = text[:start] + printed + text[end:]
    if rewrite:
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--rewrite", action="store_true")
    parser.add_argument("--own-curl", action="store_true")
    parser.add_argument("--programs", type=Path)
    main(**vars(parser.parse_args()))

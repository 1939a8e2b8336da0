"""Runs the ```sh blocks of one Markdown file as in two terminals: `python run_terminals.py FILE`.

A block that begins with `loom serve` is the first terminal: it runs in the background, on a free port, until the end.
All others are the second one, in order. A ```text block right behind one is what it prints, but for times and ids; with
`--rewrite` the file gets what was really printed. Files that it, or the README, shows under their names (`shop.py`:)
are there.
`--own-curl` uses the small one beside this file, as on a machine that has none.
A block after the line `<!-- no-run -->` is not run.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_FILE = re.compile(r"`([\w-]+\.(?:json|py))`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```sh\n(.*?)^```$(?:\n\n^```(?:text|json)\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_NO_RUN = re.compile(r"<!-- no-run -->\s*\Z")
_PORT = 8080
_README = Path(__file__).resolve().parents[2] / "README.md"
_TIMES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\bin \d+[mhd]( \d+[smh])?\b"), "<age>"),  # until a time of the day
    (re.compile(r"\b\d+(\.\d+)? ?m?s( ago)?\b"), "<age>"),
    (re.compile(r"\b(just now|now)\b"), "<age>"),
    (re.compile(r"\b[0-9a-f]{12,64}(-[0-9a-f]+)?\b"), "<id>"),
    (re.compile(r"loom_[\w-]{8,}"), "<key>"),
    (re.compile(r"[ \t─━]+"), " "),
)


class Terminals:
    """A server, and a shell beside it, in a folder of their own."""

    def __init__(self, folder: Path, *, own_curl: bool) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._server: subprocess.Popen[bytes] | None = None
        binaries = folder / ".bin"
        binaries.mkdir()
        self._program(binaries / "loom", f'exec "{sys.executable}" -W error -m loom "$@"')
        if (
            own_curl or shutil.which("curl") is None
        ):  # a machine need not have it: this one knows the options that the docs use
            self._program(binaries / "curl", f'exec "{sys.executable}" "{Path(__file__).with_name("curl.py")}" "$@"')
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_")}
        self._env = {**kept, "PATH": f"{binaries}:{os.environ['PATH']}", "COLUMNS": "140", "PYTHONIOENCODING": "utf-8"}

    def _program(self, path: Path, command: str) -> None:
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)

    def run(self, commands: str) -> str:
        """What a block prints; a server's block prints nothing that is compared."""
        commands = commands.replace(str(_PORT), str(self._port))
        if commands.startswith("loom serve"):
            self._serve(commands)
            return ""
        done = subprocess.run(
            ["bash", "-c", commands],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout.replace(str(self._port), str(_PORT))

    def _serve(self, command: str) -> None:
        self.stop()
        options = "" if "--port" in command else f" --port {self._port}"
        log = (self.folder / ".server.log").open("ab")
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command.strip()}{options}"], cwd=self.folder, env=self._env, stdout=log, stderr=log
        )
        due = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            except OSError:
                if self._server.poll() is not None or time.monotonic() > due:
                    raise AssertionError((self.folder / ".server.log").read_text()) from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End the server, which must end well."""
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            code = self._server.wait(30)
            assert code == 0, (self.folder / ".server.log").read_text()
            self._server = None


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for times, ids and the width of columns."""
    for pattern, word in _TIMES:
        shown, printed = pattern.sub(word, shown), pattern.sub(word, printed)
    return [line.strip() for line in shown.splitlines()] == [line.strip() for line in printed.splitlines()]


def main(page: Path, *, rewrite: bool, own_curl: bool) -> None:
    """Run all blocks of a page."""
    text = page.read_text("utf-8")
    found: list[tuple[int, int, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, content in _FILE.findall(_README.read_text("utf-8") + text):
            (Path(folder) / name).write_text(content)
        terminals = Terminals(Path(folder), own_curl=own_curl)
        try:
            for match in _FENCE.finditer(text):
                if _NO_RUN.search(text, 0, match.start()):
                    continue
                printed = terminals.run(match[1])
                if match[2] is None or match[1].startswith("loom serve"):
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
    *given, wanted = sys.argv[1:]
    main(Path(wanted), rewrite="--rewrite" in given, own_curl="--own-curl" in given)

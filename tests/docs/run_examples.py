"""Runs the ```python blocks of one Markdown file, in order, in one namespace: `python run_examples.py FILE`.

A block may use `await` at its top level. A ```text block right behind one is what it prints, to the letter; with
`--rewrite` the file gets what was really printed. A block after the line `<!-- no-run -->` is compiled, not run. Where
blocks name Temporal's usual address they get a server of their own there.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_NO_RUN = re.compile(r"<!-- no-run -->\s*\Z")
_TEMPORAL = "localhost:7233"


class WrongOutputError(AssertionError):
    """A page shows something else than its example prints."""


@dataclass(frozen=True)
class Block:
    """One example: its code object, which reports the line numbers of the Markdown file, and what it says it prints."""

    code: types.CodeType
    runs: bool
    line: int
    shown: str | None
    shown_at: tuple[int, int]


def blocks(path: Path, temporal: str = _TEMPORAL) -> list[Block]:
    """Compile every python block of a file; a syntax error names the file and the line."""
    text = path.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start(1))
        source = "\n" * line + match[1].replace(_TEMPORAL, temporal)
        code = compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        runs = not _NO_RUN.search(text, 0, match.start())
        found.append(Block(code, runs, line, match[2] if runs else None, match.span(2)))
    return found


def run(path: Path) -> list[tuple[Block, str]]:
    """Run the blocks as the body of a module that can be found in `sys.modules`, as a user's module would be."""
    module = types.ModuleType(re.sub(r"\W", "_", path.stem).lower() + "_examples")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    done = []
    with _temporal(path) as temporal, asyncio.Runner() as runner:
        for block in blocks(path, temporal):
            if not block.runs:
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                outcome = eval(block.code, module.__dict__)
                if inspect.iscoroutine(outcome):
                    runner.run(outcome)
            done.append((block, printed.getvalue().replace(temporal, _TEMPORAL)))
    return done


@contextlib.contextmanager
def _temporal(path: Path) -> Iterator[str]:
    """Where Temporal's server is while a page runs: one in memory, if a block of the page needs it."""
    if not any(_TEMPORAL in match[1] for match in _FENCE.finditer(path.read_text("utf-8"))):
        yield _TEMPORAL
        return
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from temporal_server import own_server

    with own_server() as server:
        yield server.target


def check(path: Path, done: list[tuple[Block, str]]) -> None:
    """Compare what the page shows with what was printed."""
    for block, printed in done:
        if block.shown is not None and block.shown != printed:
            raise WrongOutputError(
                f"{path}, line {block.line}: the example prints\n{printed}\nbut the page shows\n{block.shown}"
            )


def rewrite(path: Path, done: list[tuple[Block, str]]) -> None:
    """Let the page show what was printed."""
    text = path.read_text("utf-8")
    for block, printed in reversed(done):
        if block.shown is not None:
            start, end = block.shown_at
            text = text[:start] + printed + text[end:]
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    *options, page = sys.argv[1:]
    (rewrite if "--rewrite" in options else check)(Path(page), run(Path(page)))

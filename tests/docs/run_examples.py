"""Runs the ```python blocks of one Markdown file, in order, in one namespace: `python run_examples.py FILE`.

A block may use `await` at its top level. A block after the line `<!-- no-run -->` is compiled, not run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NO_RUN = re.compile(r"<!-- no-run -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One example: its code object, which reports the line numbers of the Markdown file."""

    code: types.CodeType
    runs: bool


def blocks(path: Path) -> list[Block]:
    """Compile every python block of a file; a syntax error names the file and the line."""
    text = path.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        padding = "\n" * text.count("\n", 0, match.start(1))
        code = compile(padding + match[1], str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        found.append(Block(code, runs=not _NO_RUN.search(text, 0, match.start())))
    return found


def run(path: Path) -> None:
    """Run the blocks as the body of a module that can be found in `sys.modules`, as a user's module would be."""
    module = types.ModuleType(re.sub(r"\W", "_", path.stem).lower() + "_examples")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    with asyncio.Runner() as runner:
        for block in blocks(path):
            if not block.runs:
                continue
            outcome = eval(block.code, module.__dict__)
            if inspect.iscoroutine(outcome):
                runner.run(outcome)


if __name__ == "__main__":
    run(Path(sys.argv[1]))

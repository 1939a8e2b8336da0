"""Only one module of Loom imports what is private in Temporal's SDK.

import-linter knows an external package as a whole, so it cannot tell `temporalio.bridge` from `temporalio.client`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "loom"
BRIDGE = "temporal/bridge.py"


def imported(path: Path) -> Iterator[str]:
    """The full names of all that a module imports, also for type checkers and within functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def is_private(name: str) -> bool:
    """Whether a name is in `temporalio.bridge`, or begins with an underscore anywhere in temporalio."""
    top, *rest = name.split(".")
    return top == "temporalio" and (rest[:1] == ["bridge"] or any(part.startswith("_") for part in rest))


def test_one_module_imports_the_private_part_of_the_sdk() -> None:
    found = {path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py") if any(map(is_private, imported(path)))}
    assert found == {BRIDGE}

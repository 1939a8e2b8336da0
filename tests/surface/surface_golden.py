"""Golden files: what they hold is compared byte for byte, and written anew with `pytest tests/surface --rewrite`.

Masks are here and nowhere else. A mask replaces what no refactoring decides: where the repository lies, and what chance
has drawn. Times are not masked, for the clock is fixed.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RECORDED_ROOT = "/srv/loom"
"""Where the repository lay when the databases in `stores` were recorded: their tracebacks name it."""

Compare = Callable[[str, str], None]
"""Compares a text with the golden file of a name, or writes it."""

_MAX_LINES = 80
_LOOM_FRAME = re.compile(r'(File "<root>/src/loom/)[^"]*", line \d+, in \S+')
_KEY = re.compile(r"\bloom_[0-9a-f]{12}_[\w-]{43}")
_KEY_ID = re.compile(r"\b[0-9a-f]{12}\b")
_AUDIT_CURSOR = re.compile(r"\b(\d{18})-[0-9a-f]{16}\b")


_PROCESS = re.compile(r'("host": )"[^"]*"(,\s+"pid": )\d+')
"""Which machine answers, and as which process."""


def masked(text: str) -> str:
    """Replace the place of the repository, and frames inside of `src/loom`, which a refactoring moves."""
    for root in (str(ROOT), RECORDED_ROOT):
        text = text.replace(root, "<root>")
    text = _PROCESS.sub(r'\1"<host>"\2"<pid>"', text)
    return _LOOM_FRAME.sub(r'\1..."', text)


def without_keys(text: str) -> str:
    """Replace API keys, and the ids of keys, which chance draws. The mask of an id is as long as an id."""
    return _KEY_ID.sub("<the key id>", _KEY.sub("<key>", text))


def without_chance(text: str) -> str:
    """Replace the drawn part of cursors of the audit record; the other part is a time."""
    return _AUDIT_CURSOR.sub(r"\1-<drawn>", text)


def without_margins(value: Any) -> Any:
    """Take the margins off descriptions in a JSON document: they are docstrings, which Python dedents since 3.13."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(each) if key == "description" and isinstance(each, str) else without_margins(each)
            for key, each in value.items()
        }
    return [without_margins(each) for each in value] if isinstance(value, list) else value


def _difference(name: str, expected: str, actual: str) -> str:
    """Say where two texts differ, in as many lines as a reader can bear."""
    found = list(difflib.unified_diff(expected.splitlines(), actual.splitlines(), name, "now", lineterm="", n=2))
    more = [f"... and {len(found) - _MAX_LINES} lines more"] if len(found) > _MAX_LINES else []
    lines = found[:_MAX_LINES] + more or ["Only ends of lines differ."]
    return "\n".join([f"{name} is not what it was. If that is meant: pytest tests/surface --rewrite.", *lines])


def comparison(request: pytest.FixtureRequest) -> Compare:
    """Make the function that compares with golden files, or writes them if the option says so."""
    rewrites = request.config.getoption("--rewrite")

    def compare(name: str, actual: str) -> None:
        path = FOLDER / "golden" / name
        actual = masked(actual)
        if rewrites:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, "utf-8", newline="\n")
            return
        assert path.exists(), f"{path} is missing: `pytest tests/surface --rewrite` writes it."
        expected = path.read_bytes().decode()
        if actual != expected:
            pytest.fail(_difference(name, expected, actual), pytrace=False)

    return compare

"""Say of a test where it does not apply. It is not collected there, so that a skip is something to know about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

KINDS = ("memory", "sqlite", "postgres", "encrypted", "temporal")
"""The kinds of stores and runtimes on which one test may run."""
_FIXTURES = ("deployment", "database")
"""The fixtures whose parameter is a kind."""


def not_on(*kinds: str, reason: str, when: Callable[[Mapping[str, Any]], bool] | None = None) -> pytest.MarkDecorator:
    """Keep a test from some kinds, always or for those of its parameters for which `when` holds."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"not_on() needs kinds out of {KINDS}, not {kinds}.")
    return pytest.mark.not_on(*kinds, reason=reason, when=when)


def reason_against(item: pytest.Item) -> str | None:
    """Return why a test with its parameters is not collected; None if it is."""
    parameters: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    at_hand = {parameters[name] for name in _FIXTURES if name in parameters}
    for mark in item.iter_markers("not_on"):
        when = mark.kwargs["when"]
        if at_hand.intersection(mark.args) and (when is None or when(parameters)):
            return str(mark.kwargs["reason"])
    return None


def leave_out(config: pytest.Config, items: list[pytest.Item], which: Callable[[pytest.Item], bool]) -> None:
    """Take tests out of a collection."""
    left_out = [item for item in items if which(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]

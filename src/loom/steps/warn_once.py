"""Deprecation warnings that a process shows once each. May import the standard library."""

from __future__ import annotations

import warnings

_shown: set[str] = set()


def warn_once(message: str, category: type[Warning] = DeprecationWarning) -> None:
    """Warn, unless this very warning was given before in this process."""
    if message not in _shown:
        _shown.add(message)
        warnings.warn(message, category, stacklevel=3)

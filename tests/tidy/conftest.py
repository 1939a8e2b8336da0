"""Puts the maker of the site on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "site"))

"""Puts what tests of the pages share on the path: the maker of the site, and how a browser is found."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "docs" / "site"), str(ROOT / "tests" / "browser")]

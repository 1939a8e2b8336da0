"""Lets the hostile tests import the programs that stand beside them, and what all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

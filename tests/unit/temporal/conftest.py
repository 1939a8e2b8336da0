"""Lets the tests of this folder import what stands beside them, and the Temporal server of the suite."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[2]):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

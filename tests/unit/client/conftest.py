"""Lets the tests of the client import `client_rig`, which stands beside them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

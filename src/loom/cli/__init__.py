"""The command line, `loom`: where all parts are put together.

Commands import what they need when they run, so that `loom --help` answers at once.
"""

from __future__ import annotations

from loom.cli.app import main

__all__ = ["main"]

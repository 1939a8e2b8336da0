"""The command line, `loom`. The composition root: may import every room.

Commands import what they need when they run, so that `loom --help` answers at once.
"""

from __future__ import annotations

from loom.cli.app import main

__all__ = ["main"]

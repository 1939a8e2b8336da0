"""`python -m loom`: the command line."""

from __future__ import annotations

from loom.cli import main

if __name__ == "__main__":
    main(prog_name="loom")

"""`python -m loom`: the command line. May import `loom.cli`."""

from __future__ import annotations

from loom.cli import main

if __name__ == "__main__":
    main(prog_name="loom")

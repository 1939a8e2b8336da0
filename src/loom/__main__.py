"""`python -m loom` and the program `loom`: the command line in a process of its own."""

from __future__ import annotations

import atexit
import gc

_CONTAINERS = 100_000
"""New containers until the garbage collector looks at them while a command runs; Python's own number is 700."""


def start() -> None:
    """Run the command that the process was started with, and end the process.

    The imports of a command make containers by the ten thousand, and all of them stay. Looking for garbage among them
    takes a tenth of the time of a short command: half of it while it runs, half when Python ends.
    """
    gc.set_threshold(_CONTAINERS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)  # `loom.cli.targets` takes this back where code of authors is loaded
    from loom.cli import main

    main(prog_name="loom")


if __name__ == "__main__":
    start()

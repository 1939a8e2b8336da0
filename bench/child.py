"""One sample in a process of its own: `python -m bench.child CASE PEER SIZE` prints the figures as a line of JSON."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys

from bench.cases import all_cases


def main(arguments: list[str]) -> None:
    """Measure and print."""
    case, peer, size = arguments
    # A sample that is cut ends as others do: with its temporary files and servers gone.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Peers that log every step would measure the terminal.
    logging.disable(logging.WARNING)
    measured = all_cases()[case]
    if measured.warm_up:
        # What a package does once, at its first run, is not what a run costs.
        measured.peers[peer](min(measured.warm_up, int(size)))
        gc.collect()
    print(json.dumps(measured.peers[peer](int(size))), flush=True)
    if "temporalio" in sys.modules:
        # A process that has used it may crash when the interpreter ends (temporalio/sdk-python#300).
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

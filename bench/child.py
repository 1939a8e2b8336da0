"""One sample in a process of its own: `python -m bench.child CASE PEER SIZE` prints the figures as a line of JSON."""

from __future__ import annotations

import json
import logging
import sys

from bench.cases import all_cases


def main(arguments: list[str]) -> None:
    """Measure and print."""
    case, peer, size = arguments
    # Peers that log every step would measure the terminal.
    logging.disable(logging.WARNING)
    print(json.dumps(all_cases()[case].peers[peer](int(size))))


if __name__ == "__main__":
    main(sys.argv[1:])

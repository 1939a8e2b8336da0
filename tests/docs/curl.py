"""As much of curl as the examples of the docs use, for machines that have none: -s -N -X -H -d -o -w, and one URL."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import httpx2


def main() -> None:
    """Make the request and print the answer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", "-N", action="store_true")
    parser.add_argument("-o", dest="output")
    parser.add_argument("-w", dest="words", default="")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", "--data-binary", dest="data")
    parser.add_argument("--json", dest="json")
    given = parser.parse_args()
    headers = dict(header.split(": ", 1) for header in given.headers)
    data = given.json if given.json is not None else given.data
    if given.json is not None:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    if data is not None and data.startswith("@"):
        data = sys.stdin.buffer.read() if data == "@-" else Path(data[1:]).read_bytes()
    method = given.method or ("POST" if data is not None else "GET")
    with httpx2.stream(method, given.url, headers=headers, content=data, timeout=60) as answer:
        for part in answer.iter_text():
            if given.output is None:
                sys.stdout.write(part)
                sys.stdout.flush()
    sys.stdout.write(given.words.replace("%{http_code}", str(answer.status_code)).replace("\\n", "\n"))


if __name__ == "__main__":
    main()

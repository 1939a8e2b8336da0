"""The command line of the benchmark: `python -m bench --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import all_cases
from bench.harness import Settings, measure
from bench.plot import draw
from bench.report import Result, as_data, table, write_json
from bench.spec import Case

RESULTS = Path(__file__).resolve().parent / "results"


def _arguments(cases: dict[str, Case], given: Sequence[str] | None) -> argparse.Namespace:
    peers = sorted({peer for case in cases.values() for peer in case.peers})
    parser = argparse.ArgumentParser(prog="python -m bench", description="Loom side by side with its peers.")
    parser.add_argument("--repeat", type=int, default=5, help="samples per case and peer (default: 5)")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds until a sample is cut (default: 30)")
    parser.add_argument("--case", action="append", choices=list(cases), help="only this case; may be repeated")
    parser.add_argument("--peer", action="append", choices=peers, help="only this peer; may be repeated")
    parser.add_argument("--full", action="store_true", help="long cases at their full size (see bench/README.md)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the directory for latest.json and latest.png")
    chosen = parser.parse_args(given)
    if chosen.repeat < 1 or chosen.limit <= 0:
        parser.error("--repeat and --limit must be positive")
    return chosen


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the files."""
    cases = all_cases()
    chosen = _arguments(cases, given)
    results: list[Result] = []
    with TemporaryDirectory(prefix="bench-") as bytecode:
        settings = Settings(chosen.repeat, chosen.limit, bytecode, _say)
        for name in chosen.case or cases:
            case = cases[name].whole() if chosen.full else cases[name]
            peers = [peer for peer in case.peers if not chosen.peer or peer in chosen.peer]
            if peers:
                results.append(Result(case, measure(case, peers, settings)))
    print("\n" + "\n".join(table(result) for result in results))
    write_json(as_data(results, chosen.repeat), chosen.results / "latest.json")
    if not draw(results, chosen.results / "latest.png"):
        print("matplotlib is not installed: no plot")
    return 0


if __name__ == "__main__":
    sys.exit(main())

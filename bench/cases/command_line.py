"""The CPU time of commands of `loom`, from the start of the process to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases._fresh import PREPARATION_S, cpu_ms, once
from bench.spec import Case, Figures, Metric, absolute

_FLOW = {"actions": {"Add": {"type": "compose", "inputs": "@add(1, 2)"}}}

COMMANDS = {
    "loom": ("--help",),
    "loom status": ("workflow", "status", "ended"),
    "loom run flow": ("run", "flow.json"),
}


def _command(arguments: tuple[str, ...]) -> Callable[[int], Figures]:
    def measured(_: int) -> Figures:
        with TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "flow.json").write_text(json.dumps(_FLOW), encoding="utf-8")
            once("-m", "loom", "run", "flow.json", "--run-id", "ended", place=place)  # a run to ask for
            return {"ms": cpu_ms("-m", "loom", *arguments, place=place)}

    return measured


CASE = Case(
    name="command-line",
    title="commands in a fresh process, CPU time (loom: --help)",
    order=62,
    size=1,
    metrics=(Metric("ms", "ms"),),
    peers={peer: _command(arguments) for peer, arguments in COMMANDS.items()},
    warm_up=0,
    preparation_s=PREPARATION_S,
    targets=(
        absolute("loom --help", "ms", at_most=70),
        absolute("loom workflow status", "ms", at_most=110, peer="loom status"),
        absolute("loom run flow.json", "ms", at_most=190, peer="loom run flow"),
    ),
)

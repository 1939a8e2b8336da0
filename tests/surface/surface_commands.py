"""Runs commands of `loom` in this process, and writes down what they print."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from click.testing import CliRunner
from surface_script import RUNS

from loom.cli import main

EVERY_RUN = (*RUNS, "parent-1:2", "parent-2:2", "nightly:20231115T003000Z", "schedule:nightly", "schedule:rarely")
"""Every run of the fixed store, those that others have started among them."""


def shown(commands: Iterable[str], *, forms: tuple[str, ...] = ("", " --json")) -> str:
    """Run commands one after the other, each in every form, and write down what they print."""
    return "\n".join(_run(f"{command}{form}") for command in commands for form in forms)


def _run(command: str) -> str:
    runner = CliRunner(env={"COLUMNS": "120"})
    result = runner.invoke(main, shlex.split(command), prog_name="loom", catch_exceptions=False)
    lines = [f"$ loom {command}", result.stdout.removesuffix("\n")]
    lines += [f"stderr: {line}" for line in result.stderr.splitlines()]
    if result.exit_code:
        lines.append(f"exit code {result.exit_code}")
    return "\n".join([*filter(None, lines), ""])

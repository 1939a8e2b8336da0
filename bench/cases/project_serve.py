"""A project of Logic Apps is served: from the start of the process until it says where it serves."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cases._mixed_flow import mixed
from bench.measure import Stopwatch
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

ACTIONS = 20
"""Actions of each definition, about as many as exported ones have."""


def project(folder: Path, size: int) -> None:
    """Write a project whose definitions all name a parameter and a setting of it."""
    values = {"IsEncrypted": False, "Values": {"KEY": "secret"}}
    beside: dict[str, Any] = {
        "host.json": {"version": "2.0"},
        "parameters.json": {"region": {"type": "String", "value": "north-@{appsetting('KEY')}"}},
        "local.settings.json": values,
    }
    for name, data in beside.items():
        (folder / name).write_text(json.dumps(data), encoding="utf-8")
    for number in range(size):
        definition = mixed(ACTIONS)
        inputs = f"@concat(parameters('region'), appsetting('KEY'), '{number}')"
        definition["definition"]["actions"]["Read"] = {"type": "Compose", "inputs": inputs, "runAfter": {}}
        place = folder / f"Flow{number}" / "workflow.json"
        place.parent.mkdir()
        place.write_text(json.dumps(definition), encoding="utf-8")


def loom(size: int) -> Figures:
    """Serve the project on a new database."""
    with TemporaryDirectory() as folder, sqlite_url() as url:
        project(Path(folder), size)
        command = [sys.executable, "-m", "loom", "serve", folder, "--store", url, "--port", "0"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        watch = Stopwatch()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("Serving "):
                    break
            else:
                raise RuntimeError("The server has ended.")
            seconds, _ = watch.read()
        finally:
            process.terminate()
            process.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return {"ready": seconds, "cpu": cpu}


CASE = Case(
    name="project-serve",
    title="a project of 100 definitions is served by a new process",
    order=75,
    size=100,
    metrics=(Metric("ready", "s"), Metric("cpu", "CPU s")),
    peers={"loom": loom},
    targets=(absolute("ready in at most 2 s", "ready", at_most=2),),
    warm_up=0,
)

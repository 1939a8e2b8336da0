"""The files for deployment, as far as they can be checked without what they deploy to."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _entrypoint() -> list[str]:
    [entry] = [json.loads(rest) for word, rest in _instructions() if word == "ENTRYPOINT"]
    return list(entry)


def _compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def _unit(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", (DEPLOY / "loom.service").read_text("utf-8"), re.MULTILINE)
    return str(value)


@pytest.mark.parametrize("command", [_entrypoint(), shlex.split(_unit("ExecStart"))], ids=["image", "unit"])
def test_the_command_is_one_that_loom_knows(command: list[str]) -> None:
    assert command[0].rpartition("/")[2] == "loom"
    options = [word for word in command[1:] if not word.startswith("/")]
    done = subprocess.run(
        [sys.executable, "-m", "loom", *options, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "loom serve" in done.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "loom", *options, "--no-such-option"], capture_output=True, text=True, check=False
    )
    assert "No such option '--no-such-option'" in wrong.stderr, "an option before it is not known"


def test_what_the_image_copies_is_there() -> None:
    for word, rest in _instructions():
        if word == "COPY" and not rest.startswith("--from"):
            *sources, _ = rest.split()
            assert [name for name in sources if not (ROOT / name).exists()] == []


def test_the_image_asks_for_a_key_and_runs_as_nobody_special() -> None:
    assert "--require-key" in _entrypoint()
    users = [rest for word, rest in _instructions() if word == "USER"]
    assert users
    assert "root" not in users


def test_the_services_fit_the_image() -> None:
    server = _compose()["services"]["server"]
    folder = DEPLOY / server["volumes"][0].partition(":")[0]
    assert list(folder.glob("*.json"))
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).exists()
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])


def test_the_bill_of_materials_has_every_pin() -> None:
    done = subprocess.run([sys.executable, str(DEPLOY / "sbom.py")], capture_output=True, text=True, check=True)
    bill = json.loads(done.stdout)
    named = {component["name"]: component for component in bill["components"]}
    pins = (ROOT / "requirements" / "deploy.txt").read_text("utf-8")
    assert sorted(named) == sorted(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", pins, re.MULTILINE))
    hashes = [each for component in named.values() for each in component["properties"] if each["name"] == "loom:sha256"]
    assert len(hashes) == pins.count("--hash=sha256:")
    assert named["starlette"]["purl"] == f"pkg:pypi/starlette@{named['starlette']['version']}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "loom.service"
    text = (DEPLOY / "loom.service").read_text("utf-8")
    unit.write_text(text.replace("/opt/loom/bin/loom", sys.executable))  # it checks that the program is there
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

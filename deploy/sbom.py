"""Writes a bill of materials of the container image, in CycloneDX's JSON, from the pins that it installs.

`python deploy/sbom.py [PINS] > sbom.json`. Nothing is looked up: the pins have all names, versions and hashes.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+) (?:; (.+) )?\\$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


def components(pins: str) -> list[dict[str, Any]]:
    """The packages of a file of pins. One package has a hash for each of its files, so they stand as properties."""
    found: list[dict[str, Any]] = []
    for line in pins.splitlines():
        if pin := _PIN.match(line):
            name, version, condition = pin.groups()
            purl = f"pkg:pypi/{name}@{version}"
            component = {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}
            found.append({**component, "properties": []})
            if condition:
                found[-1]["properties"].append({"name": "loom:condition", "value": condition})
        elif found:
            found[-1]["properties"] += [{"name": "loom:sha256", "value": value} for value in _HASH.findall(line)]
    return found


def project() -> tuple[str, str]:
    """Read the name and the version of Loom itself."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    [version] = _VERSION.findall((ROOT / table["tool"]["hatch"]["version"]["path"]).read_text("utf-8"))
    return table["project"]["name"], version


def bill(pins: str) -> dict[str, Any]:
    """The whole document."""
    name, version = project()
    purl = f"pkg:pypi/{name}@{version}"
    found = components(pins)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": name,
                "version": version,
                "purl": purl,
                "bom-ref": purl,
            }
        },
        "components": found,
        "dependencies": [{"ref": purl, "dependsOn": [component["bom-ref"] for component in found]}],
    }


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "requirements" / "deploy.txt"
    json.dump(bill(path.read_text("utf-8")), sys.stdout, indent=2)
    sys.stdout.write("\n")

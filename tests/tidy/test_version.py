"""The version is written once, in `loom/__init__.py`: whatever tells it tells the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from click.testing import CliRunner
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import loom
from loom.cli import main
from loom.server.app import ROUTES
from loom.server.openapi import document

ROOT = Path(__file__).resolve().parents[2]


def test_the_package_takes_its_version_from_the_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "version" not in project
    assert ProjectMetadata(str(ROOT), PluginManager()).version == loom.__version__


def test_it_is_written_in_one_module() -> None:
    sources = [path for top in ("src", "deploy") for path in (ROOT / top).rglob("*.py")]
    written = [path for path in sources if re.search(r"^__version__ *=", path.read_text("utf-8"), re.MULTILINE)]
    assert written == [ROOT / "src" / "loom" / "__init__.py"]


def test_commands_server_and_bill_of_materials_tell_it() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"loom, version {loom.__version__}\n"
    assert document(ROUTES)["info"]["version"] == loom.__version__
    bill = subprocess.run([sys.executable, str(ROOT / "deploy" / "sbom.py")], capture_output=True, check=True).stdout
    assert json.loads(bill)["metadata"]["component"]["version"] == loom.__version__

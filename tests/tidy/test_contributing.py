"""CONTRIBUTING.md and what stands beside it are true: paths, commands, packages, hooks and editor settings."""

from __future__ import annotations

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
CODE = re.findall(r"`([^`\n]+)`", PAGE)
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_paths_exist() -> None:
    words = [
        word
        for code in CODE
        for word in code.split()
        if re.match(r"(\.ci|docs|requirements|src|tests)/|\w+\.\w+$", word)
    ]
    paths = [word for word in words if "/" in word or (word.endswith((".md", ".toml")) and not word.startswith("NNNN"))]
    assert len(paths) > 50
    assert [path for path in paths if not list(ROOT.glob(path))] == []


def test_links_lead_somewhere() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGE) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_targets_exist() -> None:
    named = set(re.findall(r"`make ([a-z-]+)", PAGE))
    assert named - set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) == set()


def test_every_package_is_listed() -> None:
    listed = re.findall(r"^\| `src/loom/(\w+)` \|", PAGE, re.MULTILINE)
    packages = {path.parent.name for path in (ROOT / "src" / "loom").glob("*/__init__.py")}
    assert sorted(listed) == sorted(packages)


@pytest.mark.parametrize("recipe", re.findall(r"^\d\. `(src/[\w/.]+)`(?: and `[^`]+`)?: (.+)$", PAGE, re.MULTILINE))
def test_names_stand_in_the_files_that_recipes_send_to(recipe: tuple[str, str]) -> None:
    path, text = recipe
    if path.endswith(".py"):
        source = (ROOT / path).read_text("utf-8")
        names = [name for name in re.findall(r"`(_?\w+)`", text) if name.isidentifier()]
        assert [name for name in names if name not in source] == []


def _hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    return [hook for repo in config["repos"] for hook in repo["hooks"]]


def test_hooks_run_what_lint_runs() -> None:
    recipe = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0]
    lint = [line.removeprefix("\t@$(BIN)/") for line in recipe.splitlines()[1:]]
    hooks = [hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for hook in _hooks()]
    assert hooks == [command.removesuffix(" .") for command in lint]


def test_slow_hooks_wait_for_the_push() -> None:
    stages = {hook["id"]: hook.get("stages", ["pre-commit"]) for hook in _hooks()}
    fast, slow = ["pre-commit"], ["pre-push"]
    assert stages == {"ruff-check": fast, "ruff-format": fast, "mypy": slow, "lint-imports": slow}


def test_editors_are_told_what_ruff_is_told() -> None:
    settings = ConfigParser()
    settings.read_string("[top]\n" + (ROOT / ".editorconfig").read_text("utf-8"))
    ruff = PROJECT["tool"]["ruff"]
    assert settings.getint("*.py", "max_line_length") == ruff["line-length"]
    assert settings.getint("*", "indent_size") == ruff.get("indent-width", 4)
    formatting = ruff.get("format", {})
    assert settings["*"]["indent_style"] == formatting.get("indent-style", "space")
    assert settings["*"]["end_of_line"] == formatting.get("line-ending", "lf")


def test_coverage_has_a_floor_for_each_package_that_it_measures() -> None:
    measured = [name.removeprefix("loom.") for name in PROJECT["tool"]["coverage"]["run"]["source_pkgs"]]
    floors = dict(re.findall(r"--include='src/loom/(\w+)/\*' --fail-under=\$\((\w+)\)", MAKEFILE))
    assert sorted(floors) == sorted(measured)
    assert all(re.search(rf"^{name} := \d+$", MAKEFILE, re.MULTILINE) for name in floors.values())

"""The files for a forge are well formed, and the commands, files and versions that they name exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    return found


def _steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in _jobs(path).values() for step in job["steps"]]


def test_there_are_workflows() -> None:
    assert WORKFLOWS
    assert FORMS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    lines = [line.strip() for line in path.read_text("utf-8").splitlines() if "uses:" in line]
    assert [line for line in lines if not re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_ends(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in workflow["jobs"].items() if "timeout-minutes" not in job] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_commands_exist(path: Path) -> None:
    commands = [shlex.split(step["run"]) for step in _steps(path) if "run" in step]
    assert commands
    for words in commands:
        if words[0] == "make":
            assert words[1] in TARGETS, words
        else:
            assert words[0] == "python"
            assert (ROOT / words[1]).exists(), words


def test_every_version_of_python_is_tested() -> None:
    versions = [line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert _jobs(GITHUB / "workflows" / "ci.yml")["tests"]["strategy"]["matrix"]["python"] == versions


def test_every_system_is_tested_and_named() -> None:
    path = GITHUB / "workflows" / "ci.yml"
    jobs = _jobs(path)
    systems = {job["runs-on"] for job in jobs.values()} | {*jobs["portable"]["strategy"]["matrix"]["os"]}
    assert {name.partition("-")[0] for name in systems if "{" not in name} == {"ubuntu", "macos", "windows"}
    head = path.read_text("utf-8").partition("\nname:")[0]
    assert re.findall(r"^#   (\w+) ", head, re.MULTILINE) == list(jobs), "the head says what runs where"


def test_all_that_ci_runs_here_runs_there() -> None:
    local = set(re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE))
    there = {words[1] for step in _steps(GITHUB / "workflows" / "ci.yml") if (words := step.get("run", "").split())}
    assert local - there == set()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_forms_ask_for_something(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in fields}) == len(fields)
    assert all(each["attributes"]["label"] for each in fields)
    assert any(each.get("validations", {}).get("required") for each in fields)


def test_links_lead_somewhere() -> None:
    template = GITHUB / "pull_request_template.md"
    pages = [template, ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md", ROOT / "changelog.d" / "README.md"]
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
        assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == [], page.name
    assert "blob/main/SECURITY.md" in (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text("utf-8")


def test_the_container_of_developers_makes_what_make_makes() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    version = re.search(r"python:(3\.\d+)", container["image"])
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]
    for command in container["postCreateCommand"].split(" && "):
        words = command.split()
        assert words[0] == "make"
        assert words[1] in TARGETS | {".venv/.ready"}
    for schema in container["customizations"]["vscode"]["settings"]["json.schemas"]:
        assert (ROOT / schema["url"]).exists()

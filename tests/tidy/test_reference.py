"""Every command, setting, metric, event, error, code, route and public name is on exactly one page of the reference."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

import loom
from loom.cli import main
from loom.server import page
from loom.server.app import ROUTES
from loom.server.problems import PROBLEMS
from loomsite.errors import action_codes
from loomsite.names import PACKAGES
from loomsite.pages import pages
from loomsite.settings import CLASSES, settings

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "loom"

PROGRAMS = {"LOOM_RELOADED"}
"""What a process of Loom's tells another one of its own by a variable of the environment."""


@cache
def _reference() -> dict[str, str]:
    return {place: text for place, text in pages().items() if place.startswith("reference/")}


@cache
def _described() -> dict[str, Counter[str]]:
    """What each page describes: headings and first cells of tables, in code, and names with docstrings."""
    heading = re.compile(r"^#{2,3} `([^`]+)`", re.MULTILINE)
    row = re.compile(r"^\| `((?:[^`|]|\\\|)+)` \|", re.MULTILINE)
    asked = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
    return {
        place: Counter(name for pattern in (heading, row, asked) for name in pattern.findall(text))
        for place, text in _reference().items()
    }


def _not_once(wanted: set[str], only: str = "") -> dict[str, list[str]]:
    """The names that are not described on exactly one page, with the pages that describe each."""
    assert wanted
    places = {
        name: [place for place, found in _described().items() if found[name] and place.startswith(only or "reference/")]
        for name in wanted
    }
    return {name: found for name, found in places.items() if len(found) != 1}


def _strings(pattern: str) -> set[str]:
    """The texts in the source that are like a pattern as a whole."""
    like = re.compile(pattern)
    trees = (ast.parse(path.read_text("utf-8")) for path in SRC.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value for node in nodes if isinstance(node.value, str) and like.fullmatch(node.value)}


def _commands(group: click.Group, words: tuple[str, ...] = ("loom",)) -> set[str]:
    found = set()
    for name, command in group.commands.items():
        if not command.hidden:
            found.add(" ".join((*words, name)))
            found |= _commands(command, (*words, name)) if isinstance(command, click.Group) else set()
    return found


def test_every_command_is_described_once() -> None:
    aliases = {name for name in _commands(main) if name.startswith("loom workflow")}
    assert "Another name of `loom runs`" in _reference()["reference/commands.md"]
    assert _not_once(_commands(main) - aliases) == {}


def test_every_route_is_described_once() -> None:
    routes = {f"{each.method} {each.path.replace(':path}', '}')}" for each in (*ROUTES, *page.route)}
    assert _not_once(routes) == {}


def test_every_option_is_described_once_and_in_words() -> None:
    text = _reference()["reference/settings.md"]
    for name, (home, cls) in CLASSES.items():
        tree = ast.parse((ROOT / "src" / Path(*home.split("."))).with_suffix(".py").read_text("utf-8"))
        body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls).body
        fields = [ast.unparse(node.target) for node in body if isinstance(node, ast.AnnAssign)]
        section = settings(name)
        assert fields == re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        assert not re.search(r"\|  \|$", section, re.MULTILINE), f"an option of {cls} has no text below it"
        assert section in text


def test_every_variable_of_the_environment_is_described_once() -> None:
    assert _not_once(_strings(r"(?:LOOM|TEMPORAL)_[A-Z_]+") - PROGRAMS) == {}


def test_every_metric_is_described_once() -> None:
    named = set()
    for path in ("metrics.py", "exposition.py"):
        tree = ast.parse((SRC / "server" / path).read_text("utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        first = [node.args[0] for node in calls if isinstance(node.args[0], ast.Constant)]
        named |= {arg.value for arg in first if isinstance(arg.value, str) and arg.value.startswith("loom_")}
    assert len(named) > 30
    assert _not_once(named | {f"loom_runs_{word}_total" for word in ("started", "completed", "failed")}) == {}


def test_every_event_is_described_once() -> None:
    bases: dict[str, set[str]] = {}
    for path in SRC.rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    events = {"Event"}
    while found := {name for name, above in bases.items() if above & events} - events:
        events |= found
    assert len(events) > 20
    assert _not_once(events) == {}


def test_every_problem_and_every_code_of_an_action_is_described_once() -> None:
    assert _not_once(set(PROBLEMS), "reference/errors") == {}
    assert len(action_codes()) > 25
    assert _not_once(action_codes()) == {}


def test_codes_that_are_described_are_in_the_source() -> None:
    listed = _reference()["reference/errors.md"].partition("## Codes of actions")[2]
    codes = set(re.findall(r"^\| `(\w+)` \|", listed, re.MULTILINE))
    assert codes - _strings(r"\w+") == set()


@pytest.mark.parametrize("package", ["loom", *PACKAGES])
def test_every_public_name_is_described_once(package: str) -> None:
    """A class that two packages offer is described where the first of them is."""
    module = import_module(package)
    own = {name for name in module.__all__ if package == "loom" or not _is_offered_by_loom(getattr(module, name))}
    missed = {}
    for name in own:
        places = [place for place, found in _described().items() if found[f"{package}.{name}"]]
        if f"### `{name}`" in _reference()["reference/events.md"]:
            places.append("reference/events.md")
        if len(places) != 1:
            missed[name] = places
    assert missed == {}


def _is_offered_by_loom(value: object) -> bool:
    return any(getattr(loom, name) is value for name in loom.__all__)

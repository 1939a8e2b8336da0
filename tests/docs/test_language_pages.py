"""The pages about the language list what the language has: all functions with their arguments, and the JSON Schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import jsonschema_rs
import pytest

import loom
from loom.expressions.functions import all_names, find
from loom.flows.document import parse_text
from loom.flows.schemas import flow_schema

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {"loom": "loom-flow.schema.json", "logicapps": "logic-apps.schema.json"}
FLOWS = sorted((ROOT / "examples" / "flows").iterdir())


def _signatures() -> dict[str, tuple[int, int | None]]:
    """What the tables of functions say: the names, and how many arguments each takes."""
    page = (ROOT / "docs" / "expressions.md").read_text("utf-8")
    tables = page.partition("## Functions")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in tables.splitlines() if line.startswith("| `")]
    found = [signature for cell in cells for signature in re.findall(r"`(\w+)\((.*?)\)`", cell)]
    assert len(found) == len({name for name, _ in found}), "a function is listed twice"
    return {name: _arity([part.strip() for part in inner.split(",") if part.strip()]) for name, inner in found}


def _arity(arguments: list[str]) -> tuple[int, int | None]:
    least = sum(not argument.endswith("?") and argument != "..." for argument in arguments)
    return least, None if "..." in arguments else len(arguments)


def test_every_function_is_listed_with_its_arguments() -> None:
    known = {name: (found.min_args, found.max_args) for name in all_names() if (found := find(name)) is not None}
    assert len(known) == 139
    assert _signatures() == known


@pytest.mark.parametrize("dialect", SCHEMAS)
def test_published_schemas_are_those_that_the_language_has(dialect: Literal["loom", "logicapps"]) -> None:
    published = json.loads((ROOT / "docs" / "schemas" / SCHEMAS[dialect]).read_text("utf-8"))
    assert published == flow_schema(dialect), f"write it anew: loom schema {dialect} > docs/schemas/{SCHEMAS[dialect]}"


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_example_flows_have_no_problems(path: Path) -> None:
    assert loom.load(path).warnings == []


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.name)
def test_example_flows_keep_to_the_published_schemas(path: Path) -> None:
    document = parse_text(path.read_text("utf-8"))
    definition = document.get("definition", document)
    dialect = "logicapps" if "Microsoft.Logic" in definition.get("$schema", "") else "loom"
    schema = json.loads((ROOT / "docs" / "schemas" / SCHEMAS[dialect]).read_text("utf-8"))
    assert [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(document)] == []


@pytest.mark.parametrize("dialect", SCHEMAS)
def test_schemas_object_to_what_loading_refuses(dialect: str) -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / SCHEMAS[dialect]).read_text("utf-8"))
    wrong = {"actions": {"a": {"type": "Compose", "inputs": 1, "runAfter": ["b"]}}}
    assert not jsonschema_rs.validator_for(schema).is_valid(wrong)

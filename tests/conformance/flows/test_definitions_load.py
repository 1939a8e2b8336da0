"""Published definitions load: those beside the repository, where they are, and our own of each shape.

`LOOM_DEFINITIONS` names another folder with definitions.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import jsonschema_rs
import pytest

from loom.effects.actions.binding import BUILT_IN_ACTIONS
from loom.flows.action_types import spelt
from loom.flows.compiler import compile_flow, program_of
from loom.flows.document import document_text, read_document
from loom.flows.nodes.external import ExternalCall
from loom.flows.schemas import flow_schema

OWN = Path(__file__).parent / "definitions"
REPOSITORY = Path(__file__).parents[3]
SHARED = Path(os.environ.get("LOOM_DEFINITIONS", REPOSITORY.parent / "shared" / "logicapps" / "definitions"))

PUBLISHED = sorted(SHARED.glob("*.json"))
MISSING = f"no published definitions in {SHARED}"
if not PUBLISHED:
    PUBLISHED = [pytest.param(None, id="none", marks=pytest.mark.skip(reason=MISSING))]

SCHEMA = jsonschema_rs.validator_for(flow_schema())


def shape_of(program):
    """What a run's state depends on."""
    nodes = [
        (node.index, node.name, node.type, node.path, node.block, node.after, node.followers, node.loops, node.blocks)
        for node in program.nodes
    ]
    blocks = [(block.owner, block.nodes, block.roots, block.leaves) for block in program.blocks]
    return program.digest, nodes, blocks


def check(path: Path) -> list[str]:
    """Load a definition; the problems that it has."""
    text = path.read_text(encoding="utf-8")
    program, problems = compile_flow(text, name=path.stem)
    assert program is not None, "\n".join(map(str, problems))
    assert shape_of(program_of(document_text(read_document(text, name=path.stem)))) == shape_of(program)
    for node in program.nodes:
        assert program.find(node.name) is node
        assert all(node.index in program.nodes[after].followers for after, _ in node.after)
    if path.suffix == ".json":
        SCHEMA.validate(json.loads(text.removeprefix("\ufeff")))
    return [str(problem) for problem in problems]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: getattr(path, "stem", "none"))
def test_published_definitions_load(path):
    check(path)


@pytest.mark.skipif(os.environ.get("LOOM_DEFINITIONS") is not None, reason="the page counts the definitions beside us")
@pytest.mark.skipif(not isinstance(PUBLISHED[0], Path), reason=MISSING)
def test_the_page_counts_what_runs_as_it_is():
    wants: Counter[str] = Counter()
    actions = 0
    for path in PUBLISHED:
        program, _ = compile_flow(path.read_text(encoding="utf-8"), name=path.stem)
        assert program is not None
        actions += len(program.nodes)
        calls = [node.type for node in program.nodes if isinstance(node.operation, ExternalCall)]
        wants.update(spelt(kind) for kind in calls if kind not in BUILT_IN_ACTIONS)
    page = (REPOSITORY / "docs" / "logic-apps.md").read_text(encoding="utf-8")
    asis = actions - wants.total()
    said = f"over {len(PUBLISHED)} published definitions, which the tests load and run: all of them load. Of their "
    said += f"{actions:,} actions {asis:,} run as they are, and {wants.total()} want a "
    assert said in page
    rows = "".join(f"| `{kind}` | {count} |\n" for kind, count in wants.most_common())
    assert f"| type | actions |\n|---|---|\n{rows}\n" in page


@pytest.mark.parametrize("path", sorted(OWN.iterdir()), ids=lambda path: path.name)
def test_own_definitions_load_without_a_word(path):
    assert check(path) == []


def test_each_shape_has_an_own_definition():
    shapes = {read_document(path.read_text(encoding="utf-8")).path for path in OWN.iterdir()}
    assert shapes == {"", "definition", "properties.definition", "resources[1].properties.definition"}


def test_the_workflow_cases_keep_to_the_schema():
    data = json.loads(Path(__file__).with_name("workflow_cases.json").read_text(encoding="utf-8"))
    for case in data if isinstance(data, list) else data["cases"]:
        refused = case["expect"].get("definitionError", False)
        assert (compile_flow(case["definition"])[0] is None) is refused, case["id"]
        assert SCHEMA.is_valid(case["definition"]) is not refused, case["id"]

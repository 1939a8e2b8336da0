from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_rig import data, failure, good, loom

BRANCHES = {
    "triggers": {"manual": {"type": "Request"}},
    "actions": {
        "Get": {"type": "Http", "inputs": {"method": "GET", "uri": "https://example.com"}},
        "If_ok": {
            "type": "If",
            "expression": "@equals(1, 1)",
            "actions": {"Yes": {"type": "Compose", "inputs": 'a "quoted" text'}},
            "else": {"actions": {"No": {"type": "Compose", "inputs": 2}}},
            "runAfter": {"Get": ["Succeeded"]},
        },
        "Choose": {
            "type": "Switch",
            "expression": "@triggerBody()",
            "cases": {"one": {"case": 1, "actions": {"First": {"type": "Compose", "inputs": 1}}}},
            "default": {"actions": {"Other": {"type": "Compose", "inputs": 1}}},
            "runAfter": {"Get": ["Failed", "TimedOut"]},
        },
        "End": {
            "type": "Compose",
            "inputs": 1,
            "runAfter": {"If_ok": ["Succeeded"], "Choose": ["Succeeded", "Skipped"]},
        },
    },
}


@pytest.fixture(autouse=True)
def place(flows: Path) -> Path:
    (flows / "branches.json").write_text(json.dumps(BRANCHES))
    return flows


def test_an_outline_has_branches_loops_and_what_runs_after_what() -> None:
    assert good("graph", "branches.json", "--format", "text") == (
        "branches\n"
        "  on manual (request)\n"
        "  Get (http)\n"
        "  If_ok (if), after Get\n"
        "    true:\n"
        "      Yes (compose)\n"
        "    false:\n"
        "      No (compose)\n"
        "  Choose (switch), after Get [Failed, TimedOut]\n"
        "    case 1:\n"
        "      First (compose)\n"
        "    default:\n"
        "      Other (compose)\n"
        "  End (compose), after If_ok, Choose [Succeeded, Skipped]\n"
    )
    assert "    each (foreach) ↻ for each item\n" in good("graph", "nested.json", "--format", "text")


def test_mermaid_has_boxes_for_containers_and_labels_for_statuses() -> None:
    lines = [line.strip() for line in good("graph", "branches.json").splitlines()]
    assert lines[0] == "flowchart TD"
    assert 't0(["manual (request)"]):::trigger' in lines
    start = lines.index('subgraph n1["If_ok (if)"]')
    assert lines[start : start + 8] == [
        'subgraph n1["If_ok (if)"]',
        'subgraph n1b0["true"]',
        'n2["Yes (compose)"]:::action',
        "end",
        'subgraph n1b1["false"]',
        'n3["No (compose)"]:::action',
        "end",
        "end",
    ]
    for arrow in ("t0 --> n0", "n0 --> n1", 'n0 -->|"Failed, TimedOut"| n4', 'n4 -->|"Succeeded, Skipped"| n7'):
        assert arrow in lines
    nested = good("graph", "nested.json")
    assert "class n0 loop" in nested
    assert "↻ until @greaterOrEquals(variables(#39;loopIndex#39;), 2)" in nested


def test_dot_lets_arrows_end_at_boxes() -> None:
    drawn = good("graph", "branches.json", "--format", "dot")
    assert drawn.startswith("digraph flow {\n")
    assert drawn.count("{") == drawn.count("}")
    assert "    n0 -> n2 [lhead=cluster_n1];\n" in drawn
    assert '    n5 -> n7 [label="Succeeded, Skipped", ltail=cluster_n4];\n' in drawn


def test_json_has_nodes_and_edges() -> None:
    drawn = data("graph", "branches.json")
    nodes = {node["name"]: node for node in drawn["nodes"]}
    assert (nodes["No"]["parent"], nodes["No"]["branch"], nodes["Get"]["parent"]) == ("If_ok", "false", None)
    assert {"source": "Get", "target": "Choose", "statuses": ["Failed", "TimedOut"]} in drawn["edges"]
    assert drawn["triggers"] == [{"name": "manual", "type": "request"}]


def test_python_workflows_are_drawn_in_mermaid_only() -> None:
    result = loom("graph", "shop.py:Double", "--format", "dot")
    assert result.exit_code == 2
    assert "is drawn in Mermaid only" in result.stderr
    assert failure(2, "graph", "nowhere.json") == "File not found: nowhere.json"


def test_a_folder_is_drawn_flow_by_flow() -> None:
    folder = str(Path.cwd())
    outlines = good("graph", folder, "--format", "text")
    assert "branches\n  on manual (request)\n" in outlines
    assert "\nnested\n" in f"\n{outlines}"
    assert "%% branches\nflowchart" in good("graph", folder)
    assert "// branches\ndigraph" in good("graph", folder, "--format", "dot")
    assert set(json.loads(good("graph", folder, "--json"))) >= {"branches", "nested"}

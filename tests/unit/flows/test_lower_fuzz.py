"""Whatever a document holds, compiling it gives a program or problems, never anything else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.flows.document import document_text, read_document
from loom.flows.lower import compile_flow, program_of

FOLDER = Path(__file__).parents[2] / "conformance" / "flows" / "definitions"
DOCUMENTS = [json.loads(path.read_text(encoding="utf-8-sig")) for path in sorted(FOLDER.glob("*.json"))]
DOCUMENTS.append(read_document((FOLDER / "loom_flow.yaml").read_text(encoding="utf-8")).definition)

WORDS = [
    *("@", "@{", "@@x", "@body('x')", "@{variables('n')}", "@item()", "PT5S", "Succeeded", "until", "Foreach", "If"),
    *(
        "Switch",
        "retry",
        "parallel",
        "",
        "[parameters('x')]",
        "true",
        "@nope(",
        "@equals(1)",
        "name",
        "actions",
        "type",
    ),
]
SCALARS = st.none() | st.booleans() | st.integers(-5, 10_000) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
KEYS = st.sampled_from(
    ["type", "actions", "inputs", "condition", "expression", "runAfter", "limit", "cases", "else", "x"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every container in the data with each of its keys."""
    found = []
    stack = [data]
    while stack:
        value = stack.pop()
        keys = value.keys() if isinstance(value, dict) else range(len(value))
        found.extend((value, key) for key in keys)
        stack.extend(value[key] for key in keys if isinstance(value[key], dict | list))
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_document_is_compiled_or_refused(data):
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 3))):
        around = places(document)
        if not around:
            break
        container, key = around[data.draw(st.integers(0, len(around) - 1))]
        if isinstance(container, dict) and data.draw(st.booleans()):
            container[data.draw(KEYS | st.sampled_from(WORDS))] = data.draw(VALUES)
        else:
            container[key] = data.draw(VALUES)
    program, problems = compile_flow(document)
    assert (program is None) == any(problem.severity == "error" for problem in problems)
    assert all(isinstance(str(problem), str) for problem in problems)
    if program is not None:
        again = program_of(document_text(read_document(document)))
        assert [node.name for node in again.nodes] == [node.name for node in program.nodes]
        assert again.digest == program.digest


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('{}[]:,"\n -&*!|>#@%x1'), max_size=60))
def test_any_text_is_read_or_refused(text):
    compile_flow(text)

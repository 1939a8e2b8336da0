"""From the path of a problem to a JSON Pointer. Positions in a text are tested with `loom validate`."""

from __future__ import annotations

import pytest

from loom.flows.diagnostics import at
from loom.flows.source_map import pointer_of


@pytest.mark.parametrize(
    ("keys", "pointer"),
    [
        ([], ""),
        (["actions", "a", "inputs"], "/actions/a/inputs"),
        (["resources", 0, "properties"], "/resources/0/properties"),
        (["actions", "it's a.b[0]", 12, "ü_1"], "/actions/it's a.b[0]/12/ü_1"),
        (["actions", "a/b~c", ""], "/actions/a~1b~0c/"),
        (["1", "$schema", "x y"], "/1/$schema/x y"),
    ],
)
def test_pointers(keys: list[str | int], pointer: str) -> None:
    path = ""
    for key in keys:
        path = at(path, key)
    assert pointer_of(path) == pointer

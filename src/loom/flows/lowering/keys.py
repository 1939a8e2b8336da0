"""Keys that nobody reads, because they are misspelt. Pure; may import the table of action types.

A key that means nothing is kept and ignored: real documents have many. One that is nearly the name of a field that is
missing is worth a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.flows.diagnostics import at
from loom.flows.lowering.sources import EVERYWHERE
from loom.flows.schemas_table import ACTION_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.flows.lowering.context import Lowering
    from loom.flows.lowering.sources import Source

_BODIES = frozenset({"then", "do", "steps"})
"""What other languages call the actions inside."""


_POLICY = {"type", "count", "interval", "minimumInterval", "maximumInterval", "maxInterval", "on"}
_INSIDE = {"limit": {"count", "timeout"}, "retry": _POLICY, "retryPolicy": _POLICY}
"""What objects have in them that any action may have."""


def check_keys(low: Lowering, source: Source) -> None:
    """Warn of keys of an action, and of its inputs, that look like the misspelt name of a field."""
    kind = ACTION_TYPES[source.type]
    own = {field.name for field in kind.fields}
    in_action = own if kind.home == "action" or source.loom else set()
    _check(low, source.path, source.data, {*EVERYWHERE, *in_action})
    for name, known in _INSIDE.items():
        if isinstance(inside := source.data.get(name), dict):
            _check(low, at(source.path, name), inside, known)
    inputs = source.data.get("inputs")
    if isinstance(inputs, dict) and own:
        _check(low, at(source.path, "inputs"), inputs, own)


def _check(low: Lowering, path: str, keys: Iterable[str], known: set[str]) -> None:
    missing = known.difference(keys)
    for key in keys:
        if key in known:
            continue
        hint = "did you mean 'actions'?" if key in _BODIES and "actions" in missing else low.problems.near(key, missing)
        if hint:
            low.problems.warn(at(path, key), f"'{key}' means nothing here", hint)

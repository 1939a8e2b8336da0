"""JSON Patches between JSON trees: the differences as operations, and their application.

Knows nothing of states. May import the standard library.
"""

from __future__ import annotations

from copy import copy
from typing import Any

Operation = dict[str, Any]

# Below this many operations a container keeps them without weighing them against one replacement of it.
_FEW = 8


def diff_trees(old: Any, new: Any, path: str = "") -> list[Operation]:
    """List the operations (`add`, `remove`, `replace`) that turn `old` into `new`.

    A container whose operations are longer than itself is replaced whole.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        operations = diff_members(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        operations = _diff_lists(old, new, path)
    else:
        return [] if same_tree(old, new) else [_operation("replace", path, new)]
    if len(operations) > _FEW:
        whole = _operation("replace", path, new)
        if _size(operations) > _size(whole):
            return [whole]
    return operations


def diff_members(old: dict[str, Any], new: dict[str, Any], path: str) -> list[Operation]:
    """List the operations between two dicts, which themselves stay in place whatever that costs."""
    operations: list[Operation] = []
    for key, value in new.items():
        below = member_path(path, key)
        if key in old:
            operations += diff_trees(old[key], value, below)
        else:
            operations.append(_operation("add", below, value))
    operations += [_operation("remove", member_path(path, key)) for key in old if key not in new]
    return operations


def member_path(path: str, key: str | int) -> str:
    """Extend a JSON Pointer by one segment."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def same_tree(old: Any, new: Any) -> bool:
    """Whether two trees are written alike: 1, 1.0 and True are three different things, and NaN is like NaN."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(same_tree(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(same_tree, old, new))
    return repr(old) == repr(new) if isinstance(old, float) else bool(old == new)


def apply_state_patch(state: dict[str, Any], patch: list[Operation]) -> dict[str, Any]:
    """Apply a patch to a payload; the payload stays as it is and shares what the patch does not touch."""
    root: Any = copy(state)
    ours = {id(root): root}  # containers that are already copies; holding them keeps their ids from being reused
    for operation in patch:
        kind, path = operation["op"], operation["path"]
        if kind not in ("add", "remove", "replace"):
            raise ValueError(f"Unsupported state patch op {kind!r}")
        segments = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        try:
            if segments:
                _change(_container(root, segments[:-1], ours), kind, segments[-1], operation.get("value"))
            else:
                root = copy(operation["value"])
                ours[id(root)] = root
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"State patch op {kind!r} does not fit the state at {path!r}: {error!r}") from error
    patched: dict[str, Any] = root
    return patched


def _container(root: Any, segments: list[str], ours: dict[int, Any]) -> Any:
    parent = root
    for segment in segments:
        key = int(segment) if isinstance(parent, list) else segment
        child = parent[key]
        if id(child) not in ours:
            child = parent[key] = copy(child)
            ours[id(child)] = child
        parent = child
    return parent


def _change(parent: Any, kind: str, segment: str, value: Any) -> None:
    if not isinstance(parent, (dict, list)):
        raise TypeError(f"{type(parent).__name__} has no members")
    if isinstance(parent, list):
        index = len(parent) if segment == "-" else int(segment)
        if not 0 <= index < len(parent) + (kind == "add"):
            raise IndexError(index)
        if kind == "add":
            parent.insert(index, value)
        elif kind == "remove":
            del parent[index]
        else:
            parent[index] = value
    elif kind == "remove":
        del parent[segment]
    else:
        parent[segment] = value


def _diff_lists(old: list[Any], new: list[Any], path: str) -> list[Operation]:
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and same_tree(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same_tree(old[-1 - tail], new[-1 - tail]):
        tail += 1
    if len(old) == len(new):
        middle = range(head, len(new) - tail)
        return [operation for i in middle for operation in diff_trees(old[i], new[i], member_path(path, i))]
    gone = len(old) - head - tail
    operations = [_operation("remove", member_path(path, head))] * gone
    return operations + [_operation("add", member_path(path, i), new[i]) for i in range(head, len(new) - tail)]


def _operation(kind: str, path: str, *value: Any) -> Operation:
    return {"op": kind, "path": path, "value": value[0]} if value else {"op": kind, "path": path}


def _size(tree: Any) -> int:
    import json

    return len(json.dumps(tree))

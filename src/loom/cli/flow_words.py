"""What a flow does, in words: as `loom workflow status` prints it and as `loom run` shows it. May import loom.flows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loom.api.attempts import numbered
from loom.api.lengths import span
from loom.cli.shown import ago, clean, clean_lines
from loom.flows.graph import type_words
from loom.flows.progress import LoopProgress, preview
from loom.flows.records import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.flows.program import Program
    from loom.flows.progress import ActionProgress

    Entry = LoopProgress | ActionProgress

MAX_RESULT = 200
"""How many characters of a result are shown to people."""
_MAX_SIDE_BY_SIDE = 10
_NAME = re.compile(r"[A-Za-z_$][\w$]*")


def value_words(value: Any, size: int = MAX_RESULT) -> str:
    """A value in one short line, such as `{ synced: 150, remaining: 50 }`."""
    if value == MASK:
        return MASK
    cut = preview(value, size * 4)
    return _cut(cut if isinstance(value, dict | list) and isinstance(cut, str) else _words(cut), size)


def _cut(words: str, size: int) -> str:
    return clean(words if len(words) <= size else f"{words[: size - 1]}…")


def result_words(result: Any) -> str:
    """What actions gave, by their names; of those that were answers of servers, only what they said."""
    if isinstance(result, str):
        return _cut(result, MAX_RESULT)  # a preview, or a mask
    if not isinstance(result, dict):
        return value_words(result)
    return value_words({name: _said(outputs) for name, outputs in result.items()})


def _said(outputs: Any) -> Any:
    is_answer = isinstance(outputs, dict) and "body" in outputs and "headers" in outputs
    return outputs["body"] if is_answer else outputs


def _words(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_key(key)}: {_words(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_words(item) for item in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if _NAME.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def tree(loops: Sequence[LoopProgress], actions: Sequence[ActionProgress]) -> Iterator[tuple[int, Entry | str]]:
    """What is under way, each with its depth: what a loop does stands below it. Of a great many, the first ones."""
    inside: dict[str, list[Entry]] = {}
    under_way: list[Entry] = [*loops, *actions]
    for each in under_way:
        inside.setdefault(_owner(each.parent), []).append(each)
    # Explicit, for loops may nest as deep as they like.
    left: list[tuple[int, Entry | str]] = [(0, entry) for entry in reversed(inside.pop("", []))]
    while left:
        depth, entry = left.pop()
        yield depth, entry
        if isinstance(entry, LoopProgress):
            below: list[Entry | str] = list(inside.pop(_owner(entry.path), []))
            more = len(below) - _MAX_SIDE_BY_SIDE
            if more > 0:
                below = [*below[:_MAX_SIDE_BY_SIDE], f"and {more} more"]
            left += [(depth + 1, inner) for inner in reversed(below)]


def _owner(path: str | None) -> str:
    """A loop without the number of its iteration."""
    return path.rpartition("[")[0] if path is not None else ""


def status_lines(
    loops: Sequence[LoopProgress], actions: Sequence[ActionProgress], awaited: dict[str, list[str]], now: float
) -> Iterator[str]:
    """What is under way, as `loom workflow status` prints it. `awaited` says which events actions wait for, by name."""
    for depth, entry in tree(loops, actions):
        margin = "  " * depth
        if isinstance(entry, str):
            yield f"{margin}({entry})"
            continue
        yield f"{margin}Current Action: {entry.name} ({type_words(entry.type)})"
        facts = _loop_facts(entry, now) if isinstance(entry, LoopProgress) else _action_facts(entry, now)
        for name, value in (*facts, *(("Waits For", event) for event in awaited.get(entry.name, ()))):
            yield clean_lines(f"{margin}  {name}: {value}")


def _loop_facts(loop: LoopProgress, now: float) -> Iterator[tuple[str, str]]:
    yield "Iteration", f"{loop.iteration}/{loop.max_iterations}"
    if loop.condition is not None:
        yield "Condition", loop.condition
    yield "Duration", span(loop.duration)
    if loop.last_result is not None:
        yield "Last Result", result_words(loop.last_result)
    if loop.next_iteration_at is not None:
        yield "Next Iteration", due_words(loop.next_iteration_at, now)


def _action_facts(action: ActionProgress, now: float) -> Iterator[tuple[str, str]]:
    yield "Duration", span(max(0.0, now - action.since))
    if action.attempt > 1:
        number = numbered(action.attempt, action.max_attempts)
        yield "Attempt", f"{number}, {due_words(action.due, now)}" if action.due is not None else number
    elif action.due is not None:
        yield "Waits Until", due_words(action.due, now)
    if action.error:
        code = action.code or ""
        yield "Last Error", action.error if action.error.startswith(code) else f"{code}: {action.error}"


def due_words(due: float, now: float) -> str:
    """When something goes on: `in 5s`, or that its time has come."""
    return ago(due, now) if due > now else "due now"


def live_words(entry: Entry | str, now: float) -> str:
    """What is under way in one line, as `loom run` shows it."""
    if isinstance(entry, str):
        return entry
    words = f"{entry.name} ({type_words(entry.type)})"
    if isinstance(entry, LoopProgress):
        words += f"  {entry.iteration}/{entry.max_iterations}  {span(entry.duration)}"
        return words if entry.next_iteration_at is None else f"{words}  next {due_words(entry.next_iteration_at, now)}"
    words += f"  {span(max(0.0, now - entry.since))}"
    if entry.status == "retrying" or entry.attempt > 1:
        words += f"  attempt {entry.attempt}"
    if entry.due is not None:
        words += f" {due_words(entry.due, now)}" if entry.attempt > 1 else f"  goes on {due_words(entry.due, now)}"
    return words


def repetition_path(program: Program, name: str, repetition: Sequence[int]) -> str:
    """An action within the iterations around it, such as `outer[2]/check`."""
    node = program.find(name)
    loops = [program.nodes[loop].name for loop in node.loops] if node is not None else []
    around = [f"{loop}[{index}]" for loop, index in zip(loops, repetition, strict=False)]
    return "/".join([*around, name])

"""Describe flows in words: progress for `status` and `run`, and records for histories and streams."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from loom.api.attempts import numbered
from loom.api.times import span
from loom.cli.output import ago, clean, clean_lines
from loom.flows.action_types import type_words
from loom.flows.calls import MASK
from loom.flows.progress import ActionProgress, LoopProgress, preview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loom.flows.program import Program

    Entry = LoopProgress | ActionProgress
    Data = Mapping[str, Any]


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
    """Describe what actions gave, by their names; of an answer of a server only its body."""
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


def flow_record_words(name: str, fields: Any) -> str | None:
    """A record of a flow in words, by the short name of its type; None for anything else."""
    words = _WORDS.get(name)
    return words(fields) if words is not None and isinstance(fields, dict) else None


def _start(start: Data) -> str:
    given = [
        f"{name}={value_words(value)}"
        for name in ("trigger", "body", "parameters", "variables", "headers", "outputs")
        if (value := start[name]) not in (None, "", {})
    ]
    return ", ".join(given) or "nothing"


def _outcome(outcome: Data) -> str:
    code = f" ({outcome['code']})" if outcome["code"] and outcome["code"] != "OK" else ""
    told = outcome["message"] if outcome["status"] != "Succeeded" else ""
    if not told and outcome["outputs"] is not None:
        told = value_words(outcome["outputs"])
    return f"{outcome['status']}{code}" + (f": {told}" if told else "")


def _call(call: Data) -> str:
    return f"call of {call['action']} ({type_words(call['type'])})"


def _report(report: Data) -> str:
    where = f" {list(report['repetition'])}" if report["repetition"] else ""
    words = f"{report['name']}{where} ({type_words(report['type'])}) {report['status']}"
    if report["attempt"]:
        words += f" for attempt {report['attempt'] + 1}"
    elif report["status"] not in ("Running", "Waiting", "Skipped"):
        words += f", {span(report['duration'])}"
    return f"{words}: {report['message']}" if report["message"] else words


def _iteration(iteration: Data) -> str:
    number = f"{iteration['iteration'] + 1}/{iteration['max_iterations']}"
    met = iteration["condition_result"]
    tested = "" if met is None else f", condition {str(met).lower()}"
    name = iteration["path"].rpartition("[")[0] or iteration["action_name"]
    result = f": {value_words(iteration['result'])}" if iteration["result"] is not None else ""
    warned = f" (warning: {iteration['warning']})" if iteration.get("warning") else ""
    return f"{name} iteration {number} {iteration['status']}, {span(iteration['duration'])}{tested}{result}{warned}"


def _response(response: Data) -> str:
    body = "" if response["body"] is None else f" {value_words(response['body'])}"
    return f"response {response['status_code']}{body}"


def _end(end: Data) -> str:
    reason = f": {end['error'].get('message', '')}" if end["error"] else ""
    outputs = f", outputs {value_words(end['outputs'])}" if end["outputs"] else ""
    return f"ended {end['status']}{reason}{outputs}"


_WORDS: dict[str, Callable[[Data], str]] = {
    "FlowStart": _start,
    "ActionOutcome": _outcome,
    "ActionCall": _call,
    "ActionEvent": _report,
    "LoopIterationEvent": _iteration,
    "ResponseEvent": _response,
    "FlowEnd": _end,
}

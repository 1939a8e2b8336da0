"""The records of flows in one line each, for histories and streams: from plain data. May import loom.flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.api.lengths import span
from loom.cli.flow_words import value_words
from loom.flows.graph import type_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Data = Mapping[str, Any]


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
    return f"{name} iteration {number} {iteration['status']}, {span(iteration['duration'])}{tested}{result}"


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

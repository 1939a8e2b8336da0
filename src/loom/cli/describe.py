"""Describe ticks and stream entries in one line for people, from the plain data that the HTTP API has of them.

The words of flows are imported only where a record of a flow is met.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom.api.attempts import numbered, place_of
from loom.api.times import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loom.api.runs import StreamEvent

    Data = Mapping[str, Any]

_MAX_FIELDS = 200


def short(name: str) -> str:
    """The last part of a type's name, also where it is written as Python writes classes."""
    return name.removeprefix("<class '").removesuffix("'>").rpartition(".")[2]


def event_words(event: Data | None) -> str:
    """An event in a few words: `Approval(amount=5)`."""
    if event is None:
        return "nothing"
    name, fields = event["type"], event["fields"]
    if name.startswith("loom.flows."):
        from loom.cli.flow_words import flow_record_words

        of_flow = flow_record_words(short(name), fields)
        if of_flow is not None:
            return of_flow
    return named_fields(short(name), fields)


def named_fields(name: str, fields: Any) -> str:
    """The name of a type with what it holds."""
    if isinstance(fields, dict):
        inside = ", ".join(f"{key}={json.dumps(item, ensure_ascii=False)}" for key, item in fields.items())
    else:
        inside = str(fields)
    return f"{name}({_cut(inside)})"


def json_words(value: Any) -> str:
    """A value in one line: a text as it is, anything else as JSON."""
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_FIELDS else f"{text[: _MAX_FIELDS - 1]}…"


def failure_words(failure: Data | None) -> str:
    """What a failure was, in one line."""
    if failure is None:
        return "unknown"
    message = " ".join(failure["message"].split())
    name = failure["type"].removeprefix("builtins.")
    return f"{name}: {message}" if message else name


def place_lines(tick: Data) -> tuple[str, ...]:
    """Tell where an attempt failed: the file, the function and the line of the author's code."""
    if tick["type"] not in ("TickStepResult", "TickChildEnded"):
        return ()
    told = [tick["failure"], *(event["fields"] for event in tick.get("returned") or ())]
    text = next((each["traceback"] for each in told if isinstance(each, dict) and each.get("traceback")), None)
    place = place_of(str(text)) if text else None
    if place is None:
        return ()
    where = f'File "{place.file}", line {place.line}, in {place.function}'
    return (where, f"  {place.source}") if place.source else (where,)


# -- ticks ------------------------------------------------------------------------------------------------------------


def tick_words(tick: Data) -> str:
    """What happened, in one line. A kind of tick that only a newer server knows goes by its name."""
    words = _TICKS.get(tick["type"])
    return words(tick) if words is not None else str(tick["type"])


def _by(source: Data | None) -> str:
    return f"{source['step']}#{source['item']}" if source is not None else "outside"


def _cancel_words(tick: Data) -> str:
    reason = f": {tick['reason']}" if tick["reason"] else ""
    return f"cancel was asked for{', at once' if tick.get('force') else ''}{reason}"


def _added(tick: Data) -> str:
    to = f" for {tick['step']}" if tick["step"] else ""
    to += f" for waiter {tick['waiter_id']}" if tick["waiter_id"] else ""
    return f"event {event_words(tick['event'])}{to} from {_by(tick['source'])}"


def _result(tick: Data) -> str:
    who, returned = f"{tick['step']}#{tick['item']}", tick["returned"]
    if tick["failure"] is None:
        if len(returned) == 1 and returned[0]["type"] == "loom.flows.ActionOutcome":
            return f"{who} {event_words(returned[0])}"
        words = ", ".join(event_words(event) for event in returned) or "nothing"
        return f"{who} returned {f'[{words}]' if tick['fanned_out'] else words}"
    again = tick["retry_delay_s"]
    after = "" if again is None else f", again in {span(again)}" if again else ", again at once"
    number = tick.get("attempt")
    which = f" in attempt {numbered(number, tick.get('max_attempts'))}" if number else ""
    return f"{who} failed{which}: {failure_words(tick['failure'])}{after}"


def _awaits(tick: Data) -> str:
    asked = f", asking {event_words(tick['waiter_event'])}" if tick["waiter_event"] is not None else ""
    until = f", for {span(tick['timeout_s'])} at most" if tick["timeout_s"] is not None else ""
    return f"{_by(tick['source'])} waits for {tick['event_type']}{asked}{until}"


def _edited(tick: Data) -> str:
    parts = [*tick["changed"], *(f"-{key}" for key in tick["removed"])]
    return f"store edited by {_by(tick['source'])}: {', '.join(parts) or 'nothing'}"


def _ended(tick: Data) -> str:
    with_ = f" with {event_words(tick['event'])}" if tick["event"] is not None else ""
    with_ += f": {failure_words(tick['failure'])}" if tick["failure"] is not None else ""
    return f"child run {tick['child']} {tick['status'].replace('_', ' ')}{with_}"


def _resumed(tick: Data) -> str:
    changed = ", with other code" if tick["config"] is not None else ""
    away = tick["away_s"]
    return f"taken up after {span(away)} without a worker{changed}" if away else f"taken up{changed}"


_TICKS: dict[str, Callable[[Data], str]] = {
    "TickStartRun": lambda tick: f"started with {event_words(tick['event'])}",
    "TickResume": _resumed,
    "TickAddEvent": _added,
    "TickStepResult": _result,
    "TickPublishEvent": lambda tick: f"{_by(tick['source'])} published {event_words(tick['event'])}",
    "TickAwaitEvent": _awaits,
    "TickSleep": lambda tick: f"{_by(tick['source'])} sleeps for {span(tick['delay_s'])}",
    "TickEndWait": lambda tick: f"{tick['step']}#{tick['item']} stopped waiting ({tick['key']})",
    "TickLeaveStep": lambda tick: f"{tick['step']}#{tick['item']} left its worker to wait",
    "TickRefuseEvent": lambda tick: f"{tick['step']}#{tick['item']} refused {tick['event_type']}: {tick['reason']}",
    "TickEditStore": _edited,
    "TickTimerFired": lambda tick: f"timer {tick['timer']} fired",
    "TickTimeout": lambda _tick: "the run's time is over",
    "TickCancelRun": _cancel_words,
    "TickPauseRun": lambda _tick: "pause was asked for",
    "TickContinueRun": lambda tick: (
        "resume was asked for" + (f", with a max_depth of {tick['max_depth']}" if tick.get("max_depth") else "")
    ),
    "TickSkip": lambda tick: (
        "the delays were skipped" if tick.get("timer") is None else f"timer {tick['timer']} was skipped"
    ),
    "TickParkRun": lambda tick: f"parked: {tick['reason']}",
    "TickRetryRun": lambda tick: (
        "retry was asked for" + (f", with {event_words(tick['event'])}" if tick.get("event") is not None else "")
    ),
    "TickRecordResult": lambda tick: f"{_by(tick['source'])} recorded the result of {tick['name']}",
    "TickStartChild": lambda tick: f"{_by(tick['source'])} started a child run of {tick['workflow']}",
    "TickChildEnded": _ended,
}


# -- the stream -------------------------------------------------------------------------------------------------------


def entry_words(entry: StreamEvent) -> str:
    """Describe an event of the stream in one line."""
    name, value = entry.type, entry.value
    words = _REPORTS.get(name)
    if words is not None and entry.types in (["InternalDispatchEvent"], ["StopEvent"]):
        return words(value)
    if name == "AnswerRefusedEvent" and "reason" in value:
        return _refused(value)
    if name in ("ActionEvent", "LoopIterationEvent", "ResponseEvent") or _is_end_of_flow(name, value):
        from loom.cli.flow_words import flow_record_words

        end = value["result"] if name == "StopEvent" else value
        return flow_record_words("FlowEnd" if name == "StopEvent" else name, end) or named_fields(name, value)
    return named_fields(name, value)


def _is_end_of_flow(name: str, value: Any) -> bool:
    result = value.get("result") if name == "StopEvent" and isinstance(value, dict) else None
    return isinstance(result, dict) and result.keys() == {"status", "outputs", "response", "error"}


def _step(value: Data) -> str:
    output = f", returned {short(value['output_event_name'])}" if value.get("output_event_name") else ""
    phase = str(value["step_state"]).replace("_", " ")
    return f"step {value['name']} {phase} ({short(value['input_event_name'])}{output})"


def _idle(value: Data) -> str:
    waited = ", ".join(dict.fromkeys(str(waiter["event_type"]) for waiter in value["waiters"]))
    return f"idle, waiting for {waited or 'anything'}"


def _failed(value: Data) -> str:
    error = value.get("exception") or {}
    failure = {"type": error.get("exception_type", ""), "message": error.get("exception_message", "")}
    return f"failed in {value['step_name']}: {failure_words(failure)}"


def _rows(cursors: list[list[int]]) -> str:
    """Cursors as people read them: `3-5, 9`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in cursors)


def _refused(value: Data) -> str:
    what, whom = value.get("event_type") or "an answer", value.get("step") or value.get("action")
    return f"{what} for {whom} was refused: {value['reason']}"


_REPORTS: dict[str, Callable[[Data], str]] = {
    "StepStateChanged": _step,
    "WorkflowIdleEvent": _idle,
    "StreamSupersededEvent": lambda value: f"{value['step_name']} ran again: {_rows(value['cursors'])} superseded",
    "UnhandledEvent": lambda value: f"nobody took {value['event_type']}",
    "WorkflowTimedOutEvent": lambda value: (
        f"timed out after {span(value['timeout'])}, in {', '.join(value['active_steps']) or 'no step'}"
    ),
    "WorkflowFailedEvent": _failed,
    "WorkflowCancelledEvent": lambda _value: "cancelled",
}

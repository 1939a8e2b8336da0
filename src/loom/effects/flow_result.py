"""How a flow ended, as its caller gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.expressions.dotnet.timestamps import epoch_seconds
from loom.flows.plain import copy_of

if TYPE_CHECKING:
    from typing import Self

    from loom.flows.calls import FlowEnd


class FlowFailed(Exception):
    """A flow did not succeed; raised by `FlowResult.raise_for_status()`. `result` is the whole result."""

    def __init__(self, result: FlowResult) -> None:
        self.result = result
        super().__init__(f"The flow ended {ending_words(result)}")


class ActionResult(msgspec.Struct, frozen=True):
    """An action of a flow as it ended; of the last repetition, if it ran several times."""

    name: str
    status: str
    inputs: Any = None
    outputs: Any = None
    code: str = ""
    error: dict[str, Any] | None = None
    iterations: int | None = None
    """Of a loop: how often its body ran."""
    started_at: float | None = None
    """Seconds since 1970, as all times here."""
    ended_at: float | None = None
    tracked_properties: Any = None
    retry_history: Any = None
    """The attempts that failed before the last one: `started_at`, `ended_at`, `code`, `error`. None without them."""


class FlowResult(msgspec.Struct, frozen=True):
    """How a flow ended. A flow that fails has a result too: ask `status`, or call `raise_for_status()`."""

    status: str
    """Succeeded, Failed, Cancelled or TimedOut."""
    outputs: dict[str, Any] = {}
    response: dict[str, Any] | None = None
    """What its Response action answered: statusCode, headers, body."""
    actions: dict[str, ActionResult] = {}
    variables: dict[str, Any] = {}
    error: dict[str, Any] | None = None
    """`{code, message}` of what made it fail."""

    @property
    def failed_action(self) -> ActionResult | None:
        """The action that made the flow fail: the innermost, because containers take over the errors in them."""
        said = self.error.get("message") if self.error is not None else None
        found = [action for action in self.actions.values() if action.error and said and _is_told(action.error, said)]
        return min(reversed(found), key=lambda action: action.ended_at or 0.0, default=None)

    def raise_for_status(self) -> Self:
        """Raise `FlowFailed` unless the flow succeeded."""
        if self.status != "Succeeded":
            raise FlowFailed(self)
        return self


def ending_words(result: FlowResult) -> str:
    """The status, and for a failure the action, unless the message names it, and the reason."""
    said = (result.error or {}).get("message") or ""
    blamed = result.failed_action
    where = f" in '{blamed.name}'" if blamed is not None and f"'{blamed.name}'" not in said else ""
    return f"{result.status}{where}: {said}" if said else f"{result.status}{where}"


def _is_told(error: dict[str, Any], said: str) -> bool:
    message = error.get("message")
    return isinstance(message, str) and message != "" and said.endswith(message)


def flow_result(end: FlowEnd) -> FlowResult:
    """Make the result of a flow's end."""
    actions = {name: _action(name, record) for name, record in end.actions.items()}
    # In memory the end is made of what the program and the run are made of, and the result is its reader's own.
    outputs, response, variables = copy_of(end.outputs), copy_of(end.response), copy_of(end.variables)
    return FlowResult(end.status, outputs, response, actions, variables, end.error)


def _action(name: str, record: dict[str, Any]) -> ActionResult:
    return ActionResult(
        name,
        record["status"],
        copy_of(record.get("inputs")),
        copy_of(record.get("outputs")),
        record.get("code", ""),
        record.get("error"),
        record.get("iterations"),
        epoch_seconds(record["startTime"]),
        epoch_seconds(record["endTime"]),
        record.get("trackedProperties"),
        _retries(record.get("retryHistory")),
    )


def _retries(history: Any) -> Any:
    """Give the failed attempts times of the same form as those of their action. A secure history is a mask."""
    if not isinstance(history, list):
        return history
    return [
        {
            "started_at": epoch_seconds(entry["startTime"]),
            "ended_at": epoch_seconds(entry["endTime"]),
            **{name: copy_of(value) for name, value in entry.items() if name not in ("startTime", "endTime")},
        }
        for entry in history
    ]

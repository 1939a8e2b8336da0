"""What became of a trigger's firings: records that its listener keeps in its state, the latest ones only.

A firing that is like the one before is counted with it: a service that has nothing new for a week is one record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

KEPT = 50
"""How many firings are kept."""
_LONGEST = 1000
"""How many characters of a message are kept: a service may say anything."""
_SAME = ("status", "code", "message", "by_hand")


def firing(
    at: float,
    status: str,
    code: str = "",
    message: str = "",
    by_hand: bool = False,
    *,
    runs: int = 0,
    run_id: str = "",
) -> dict[str, Any]:
    """Make the record of a firing. Its status is `data`, `nothing` or `failed`."""
    message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
    return {
        "at": at,
        "status": status,
        "code": code,
        "message": message,
        "by_hand": by_hand,
        "runs": runs,
        "run_id": run_id,
    }


def noted(state: Any, happened: dict[str, Any]) -> dict[str, Any]:
    """Return what changes in a listener's state by a firing, by key."""
    number: int = state.get("firings", 0)
    last = state.get(_key(number))
    is_same = last is not None and not happened["runs"] and all(last[name] == happened[name] for name in _SAME)
    if is_same:
        repeated = {**last, "repeats": last.get("repeats", 0) + 1, "until": happened["at"]}
        changes: dict[str, Any] = {_key(number): repeated}
    else:
        changes = {"firings": number + 1, _key(number + 1): {**happened, "number": number + 1}}
    if happened["status"] == "failed":
        return {**changes, "last_error": happened["message"] or happened["code"]}
    return {**changes, "last_error": None}


def firings_in(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the firings that a listener's state has, latest first."""
    number = state.get("firings", 0)
    found = [state[_key(each)] for each in range(number, max(0, number - KEPT), -1) if _key(each) in state]
    return [each for each in found if number - KEPT < each["number"] <= number]


def _key(number: int) -> str:
    """Name the place of a firing: a later one takes it over."""
    return f"firing {number % KEPT}"

"""The public names, their kinds and their signatures."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import pytest
from surface_golden import Compare
from surface_names import described, described_members

import loom
import loom.client
import loom.expressions
import loom.server
import loom.testing

NAMES: dict[ModuleType, Iterable[str]] = {
    loom: loom.__all__,
    loom.client: loom.client.__all__,
    loom.expressions: ("ExpressionError", "evaluate"),
    loom.server: loom.server.__all__,
    loom.testing: loom.testing.__all__,
}
RUNTIME = (
    "__aenter__", "__aexit__", "attempts", "cancel", "close", "export_run", "figures", "fork", "get",
    "get_schedule", "handler", "history", "import_run", "list", "pause", "purge", "read_store", "register",
    "resume", "retry", "schedule", "schedules", "send_event", "start", "start_with_event", "state_at", "unschedule",
    "waiters", "why",
)  # fmt: skip
"""What programs use of a runtime; its other methods are for the server and the command line."""
OPTIONS: dict[str, Any] = {
    "clock": lambda: 0.0,
    "callback_url": "https://loom.example.com",
    "definitions": True,
    "encryption_keys": None,
    "http_allow": "example.com",
    "idle_timeout": None,
    "journal_keys": None,
    "lease": 15.0,
    "max_history": 1000,
    "max_in_memory": 10,
    "max_memory": 2**30,
    "max_response": 2**20,
    "max_response_values": 1000,
    "max_state": 2**20,
    "max_suspended": 10,
    "name": "a",
    "on_problem": print,
    "poll_interval": 1.0,
    "probation": 2.0,
    "problem_interval": 10.0,
    "problem_secret": "a secret for tests",
    "problem_webhook": "https://example.com/hook",
    "prune": True,
    "retention": 60.0,
    "safe": True,
    "schedules": False,
    "tracing": False,
    "watchdog": None,
}
"""Every option of `loom.connect`."""


@pytest.mark.parametrize("module", NAMES, ids=lambda module: module.__name__)
def test_public_names_are_what_they_were(module: ModuleType, golden: Compare) -> None:
    values = {name: getattr(module, name) for name in NAMES[module]}
    golden(f"names/{module.__name__}.txt", described(module.__name__, values))


async def test_what_connecting_gives_is_what_it_was(golden: Compare) -> None:
    async with loom.connect("memory://") as runtime:
        schedule = await runtime.schedule("daily", "nothing", cron="0 0 * * *")
        values = {"ScheduleInfo": type(schedule)}
        text = (
            described("what a connection gives", values) + "\n" + described_members("runtime", type(runtime), RUNTIME)
        )
    golden("names/connected.txt", text)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_connect_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_PROBLEM_SECRET", "a secret for tests")
    loom.connect("memory://", **{name: OPTIONS[name]})


def test_no_other_option_is_taken() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        loom.connect("memory://", nonsense=1)

"""What `from loom import ...` offers: retry policies, resources, failed steps and errors, each from its one home."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import loom
from loom.steps import retry

PAGES = Path(__file__).resolve().parents[2] / "docs"


def test_the_parts_of_a_retry_policy_come_from_loom() -> None:
    parts = [name for name in retry.__all__ if re.match(r"(retry|stop|wait)_", name)]
    assert len(parts) == 28
    assert [name for name in parts if getattr(loom, name, None) is not getattr(retry, name)] == []
    assert inspect.isfunction(loom.retry_policy)
    policy = loom.retry_policy(
        retry=loom.retry_if_exception_type(ConnectionError), wait=loom.wait_fixed(1), stop=loom.stop_after_attempt(3)
    )
    assert isinstance(policy, loom.RetryPolicy)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("Resource", "loom.steps.resources"),
        ("StepFailedEvent", "loom.steps.events"),
        ("WorkflowValidationError", "loom.steps.errors"),
        ("WorkflowTimeoutError", "loom.steps.errors"),
        ("ChildRunFailed", "loom.steps.errors"),
        ("StoreError", "loom.store.errors"),
        ("RunActive", "loom.store.errors"),
        ("RunBusy", "loom.store.errors"),
        ("ScheduleNotFound", "loom.runtime.durable.schedules"),
        ("CannotHeal", "loom.runtime.durable.healing"),
        ("DefinitionNotFound", "loom.runtime.durable.stored_definitions"),
        ("WrongKeys", "loom.store.errors"),
        ("BadKeys", "loom.store.errors"),
        ("AnswerRefusedEvent", "loom.steps.events"),
        ("Problem", "loom.api.problems"),
        ("Why", "loom.api.why"),
    ],
)
def test_a_name_is_the_one_of_its_home(name: str, home: str) -> None:
    assert getattr(loom, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("page", ["errors.md", "durable-runs.md"])
def test_every_error_in_the_tables_of_the_pages_comes_from_loom(page: str) -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", (PAGES / page).read_text("utf-8"), re.MULTILINE)
    listed = {name.removeprefix("loom.") for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    errors = {name for name in listed if re.fullmatch(r"[A-Z]\w+", name)}
    assert errors
    assert sorted(name for name in errors if not _is_error(name)) == []


def _is_error(name: str) -> bool:
    found = getattr(loom, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


def test_a_retry_policy_loads_neither_runtime_nor_store() -> None:
    code = (
        "import sys; from loom import StepFailedEvent, Resource, StoreError, WorkflowTimeoutError, retry_policy;"
        "rooms = {'.'.join(name.split('.')[:2]) for name in sys.modules if name.startswith('loom.')};"
        "print(*sorted(rooms - {'loom.steps', 'loom.core', 'loom.store'}),"
        " *sorted(name for name in sys.modules if name.startswith('loom.store.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["loom.store.errors"]

"""House rules as tests: sizes, docstrings, honest suppressions, pinned requirements, frozen public names.

Layers and purity are checked by import-linter, style by ruff, types by mypy.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import loom

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "loom"
MODULES = sorted(SRC.rglob("*.py"))
CHECKED = sorted(path for top in ("src", "tests", "tools", "bench", "examples") for path in (ROOT / top).rglob("*.py"))

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# What is over a limit today. These lists may only shrink: an entry that is back under the limit must go.
LONG_FILES: frozenset[str] = frozenset()
LONG_FUNCTIONS: frozenset[str] = frozenset()

_BARE_SUPPRESSION = re.compile(r"type:\s*ignore(?!\[)|noqa(?!:\s*[A-Z]+\d)")
_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+) (?:; .+ )?\\$")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{_name(path)}:{node.name}", node.end_lineno - node.lineno + 1


def test_files_stay_short() -> None:
    long = {_name(path) for path in MODULES if len(path.read_text("utf-8").splitlines()) > MAX_FILE_LINES}
    assert long == LONG_FILES


def test_functions_stay_short() -> None:
    long = {name for path in MODULES for name, lines in _functions(path) if lines > MAX_FUNCTION_LINES}
    assert long == LONG_FUNCTIONS


def test_every_module_says_what_lives_there() -> None:
    silent = [_name(path) for path in MODULES if not ast.get_docstring(_tree(path))]
    assert silent == []


def test_every_package_has_an_init_file() -> None:
    packages = {path.parent for path in MODULES}
    assert [_name(package) for package in sorted(packages) if not (package / "__init__.py").exists()] == []


def test_suppressions_name_what_they_suppress() -> None:
    bare = []
    for path in CHECKED:
        text = path.read_text("utf-8")
        if not _BARE_SUPPRESSION.search(text):
            continue
        for token in tokenize.generate_tokens(io.StringIO(text).readline):  # texts may show what comments may not say
            if token.type == tokenize.COMMENT and _BARE_SUPPRESSION.search(token.string):
                bare.append(f"{_name(path)}:{token.start[0]} {token.string}")
    assert bare == []


def test_unit_tests_mirror_the_source() -> None:
    unit = ROOT / "tests" / "unit"
    rooms = {path.relative_to(SRC) for path in SRC.rglob("*") if path.is_dir()} | {Path()}
    strays = [_name(path) for path in unit.rglob("test_*.py") if path.parent.relative_to(unit) not in rooms]
    assert strays == []


@pytest.mark.parametrize("name", ["run", "dev", "deploy", "bench", "temporal-oldest"])
def test_requirements_are_pinned_by_hash_and_name_no_place(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8").splitlines()
    heads = [index for index, line in enumerate(lines) if line and not line.startswith((" ", "#"))]
    assert heads
    assert [lines[index] for index in heads if not _PIN.match(lines[index])] == []
    assert [lines[index] for index in heads if not lines[index + 1].startswith("    --hash=sha256:")] == []
    assert [line for line in lines if "://" in line or " /" in line] == []


def test_run_requirements_are_the_projects_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = (ROOT / "requirements" / "run.in").read_text("utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == project["dependencies"]


@pytest.mark.parametrize("name", ["dev", "deploy", "bench", "temporal-oldest"])
def test_other_requirements_agree_with_the_run_pins(name: str) -> None:
    run, other = (_pins(ROOT / "requirements" / f"{stem}.txt") for stem in ("run", name))
    assert {package: other.get(package) for package in run} == run


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines()
    return {found[1]: found[2] for line in lines if (found := _PIN.match(line))}


def test_package_marks_itself_typed() -> None:
    assert (SRC / "py.typed").exists()


# The author's API. A name leaves this list only with a major version.
PUBLIC_NAMES = [
    "ActionContext",
    "ActionHandlers",
    "AnswerRefusedEvent",
    "ApiKey",
    "BadKeys",
    "BasicAuth",
    "BearerToken",
    "CannotHeal",
    "ChildRunCancelled",
    "ChildRunFailed",
    "Client",
    "ClientCredentials",
    "ClientError",
    "Context",
    "ContextSerdeError",
    "ContextStateError",
    "CorruptRecord",
    "DefinitionError",
    "DefinitionNotFound",
    "Event",
    "ExpressionError",
    "Flow",
    "FlowEvent",
    "FlowFailed",
    "FlowResult",
    "HistoryGone",
    "HumanResponseEvent",
    "InputRequiredEvent",
    "LoopIterationEvent",
    "MemoryExceeded",
    "NothingToSkip",
    "Problem",
    "Project",
    "Resource",
    "RetryInfo",
    "RetryPolicy",
    "RunActive",
    "RunBusy",
    "RunCancelledEvent",
    "RunExists",
    "RunFinished",
    "RunInfo",
    "RunNotFound",
    "ScheduleNotFound",
    "Secret",
    "StartEvent",
    "StepFailedEvent",
    "StopEvent",
    "StoreError",
    "StoreLocked",
    "StoreOutdated",
    "StoreTooNew",
    "StoreUnavailable",
    "StreamSupersededEvent",
    "SyncClient",
    "SyncHandler",
    "SyncRuntime",
    "Why",
    "Workflow",
    "WorkflowCancelledByUser",
    "WorkflowConfigurationError",
    "WorkflowHandler",
    "WorkflowRuntimeError",
    "WorkflowTimeoutError",
    "WorkflowValidationError",
    "WrongKeys",
    "action",
    "activity",
    "actor",
    "ai_provider",
    "catch_error",
    "connect",
    "connect_sync",
    "connector",
    "load",
    "load_project",
    "on_cancel",
    "retry_all",
    "retry_always",
    "retry_any",
    "retry_if_exception",
    "retry_if_exception_cause_type",
    "retry_if_exception_message",
    "retry_if_exception_type",
    "retry_if_not_exception_message",
    "retry_if_not_exception_type",
    "retry_never",
    "retry_policy",
    "retry_unless_exception_type",
    "step",
    "stop_after_attempt",
    "stop_after_delay",
    "stop_all",
    "stop_any",
    "stop_before_delay",
    "stop_never",
    "wait_chain",
    "wait_combine",
    "wait_exponential",
    "wait_exponential_jitter",
    "wait_fixed",
    "wait_full_jitter",
    "wait_incrementing",
    "wait_none",
    "wait_random",
    "wait_random_exponential",
]


def test_public_names_are_frozen() -> None:
    assert sorted(loom.__all__) == sorted(PUBLIC_NAMES)


def test_public_names_exist() -> None:
    assert [name for name in loom.__all__ if not hasattr(loom, name)] == []

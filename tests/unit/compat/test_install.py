"""`install()` changes what a whole process imports, so each test has a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def python(program: str, cwd: Path | None = None) -> str:
    """What a program prints; an assertion inside it that fails, fails the test."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_way_to_import_leads_to_loom() -> None:
    python("""
        import loom.compat
        loom.compat.install()
        import workflows
        import workflows.context.state_store
        import loom.steps.events, loom.steps.state_store, loom.steps.workflow
        from workflows import Workflow
        from workflows.events import StopEvent
        from workflows import retry_policy as policies
        assert Workflow is workflows.Workflow is loom.steps.workflow.Workflow
        assert StopEvent is loom.steps.events.StopEvent
        assert workflows.context.state_store.DictState is loom.steps.state_store.DictState
        assert policies.__name__ == "loom.compat.retry_policy"
        assert workflows is loom.compat
    """)


def test_submodules_are_attributes_of_a_plain_import() -> None:
    python("""
        import loom.compat
        loom.compat.install()
        import workflows
        for name in ("collect", "context", "decorators", "errors", "events", "handler", "plugins", "representation",
                     "resource", "retry_policy", "runtime", "testing", "types", "utils", "workflow"):
            assert getattr(workflows, name).__name__ == f"loom.compat.{name}"
    """)


def test_alias_of_the_package_is_the_same_modules() -> None:
    python("""
        import loom.compat
        loom.compat.install()
        import llama_agents.workflows.context.serializers as there
        import workflows.context.serializers as here
        from llama_agents.workflows import Context
        import workflows
        assert there is here
        assert Context is workflows.Context
    """)


def test_alias_needs_no_installed_parent() -> None:
    python("""
        import importlib.machinery, sys
        import loom.compat
        find = importlib.machinery.PathFinder.find_spec
        hidden = lambda name, *rest: None if name.split(".")[0] == "llama_agents" else find(name, *rest)
        importlib.machinery.PathFinder.find_spec = hidden
        loom.compat.install()
        from llama_agents.workflows.events import StopEvent
        assert StopEvent.__module__.startswith("loom.")
    """)


def test_second_install_changes_nothing() -> None:
    python("""
        import sys
        import loom.compat
        loom.compat.install()
        import workflows.events
        finders = list(sys.meta_path)
        loom.compat.install()
        assert sys.meta_path == finders
        assert sys.modules["workflows"] is loom.compat
    """)


@pytest.mark.parametrize("first", ["workflows", "workflows.errors", "llama_agents.workflows"])
def test_install_refuses_when_the_original_is_imported(first: str) -> None:
    printed = python(f"""
        import sys
        import {first}
        import loom.compat
        finders = list(sys.meta_path)
        try:
            loom.compat.install()
        except ImportError as error:
            print(error.name, error)
        assert sys.meta_path == finders
    """)
    assert "already imported as" in printed
    assert "Call loom.compat.install() before anything imports it." in printed


def test_install_refuses_any_other_package_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "workflows.py").write_text("MINE = True\n")
    printed = python(
        """
        import sys
        sys.path.insert(0, "")
        import workflows, loom.compat
        assert workflows.MINE
        try:
            loom.compat.install()
        except ImportError as error:
            print(error)
        """,
        cwd=tmp_path,
    )
    assert "Another package is already imported as 'workflows'" in printed
    assert "workflows.py" in printed


def test_what_is_not_re_exported_cannot_be_imported() -> None:
    python("""
        import loom.compat
        loom.compat.install()
        for name in ("server", "client", "protocol", "nonsense"):
            try:
                __import__(f"workflows.{name}")
            except ModuleNotFoundError as error:
                assert error.name == f"workflows.{name}", error.name
            else:
                raise AssertionError(name)
    """)


def test_modules_keep_their_own_names_and_specs() -> None:
    python("""
        import loom.compat
        loom.compat.install()
        import workflows.events
        assert workflows.events.__name__ == workflows.events.__spec__.name == "loom.compat.events"
        assert workflows.__spec__.name == "loom.compat"
    """)


def test_install_alone_loads_no_engine() -> None:
    python("""
        import sys
        import loom.compat
        loom.compat.install()
        assert "pydantic" not in sys.modules
        assert "asyncio" not in sys.modules
        assert "loom.steps.workflow" not in sys.modules
    """)

"""The front door of the core: its names, its example, and that it costs nothing until it is opened."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import loom.core
from loom.core import commands, ticks

SRC = Path(loom.core.__file__).parent


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", loom.core.__doc__ or "", re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_example_prints_what_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("python"), "loom.core.__doc__", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == block("text")


def test_the_example_is_short() -> None:
    driver, _, _ = block("python").partition("\n\n\ndef greet")
    assert len([line for line in driver.splitlines() if line]) <= 40


def test_every_name_is_what_its_module_calls_so() -> None:
    for name in loom.core.__all__:
        value = getattr(loom.core, name)
        assert not isinstance(value, ModuleType), name
        home = getattr(value, "__module__", "")
        if home.startswith("loom.core."):
            assert getattr(sys.modules[home], name) is value


def test_all_ticks_and_commands_are_there() -> None:
    offered = {getattr(loom.core, name) for name in loom.core.__all__ if name[0].isupper()}
    assert {*get_args(ticks.WorkflowTick), *get_args(commands.WorkflowCommand)} <= offered


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match=r"module 'loom.core' has no attribute 'Kernel'"):
        _ = loom.core.Kernel  # type: ignore[attr-defined]


def test_importing_one_module_loads_no_other() -> None:
    code = "import sys, loom.core.records; print(sorted(name for name in sys.modules if name.startswith('loom.core')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['loom.core', 'loom.core.records']"


def test_modules_of_the_core_do_not_use_the_door() -> None:
    offered = set(loom.core.__all__)
    through = [
        f"{path.name}:{node.lineno}"
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module == "loom.core"
        and offered & {each.name for each in node.names}
    ]
    assert through == []

"""The command answers at once: what is slow to import is left to the commands that need it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import loom

_SLOW = (
    *("pydantic", "asyncio", "rich", "sqlite3", "msgspec", "yaml", "lxml", "httpx2", "starlette", "uvicorn"),
    *("loom.runtime", "loom.store", "loom.core", "loom.flows", "loom.expressions", "loom.effects"),
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["workflow", "--help"],
        ["workflow", "send", "-h"],
        ["run", "-h"],
        ["eval", "-h"],
        ["validate", "-h"],
        ["graph", "-h"],
        ["serve", "-h"],
        ["keys", "create", "-h"],
        ["completion", "bash"],
    ],
)
def test_version_and_help_import_nothing_slow(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from loom.cli import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        f"print('SLOW', [name for name in {_SLOW!r} if name in sys.modules])\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("SLOW []\n")
    if arguments == ["--version"]:
        assert loom.__version__ in printed


def test_a_list_for_people_needs_no_engine(tmp_path: Path) -> None:
    engine = ("loom.runtime.durable.runtime", "loom.core", "loom.flows", "loom.effects", "pydantic", "httpx2")
    code = (
        "import sys\n"
        "from loom.cli import main\n"
        "main(['workflow', 'list', '--idle'], standalone_mode=False)\n"
        f"print('ENGINE', [name for name in {engine!r} if name in sys.modules])\n"
    )
    for command in (["-m", "loom", "db", "upgrade"], ["-c", code]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "No runs.\nENGINE []\n"


def test_shells_are_told_what_there_is() -> None:
    asked = {"_LOOM_COMPLETE": "bash_complete", "COMP_WORDS": "loom workflow list --wai", "COMP_CWORD": "3"}
    command = [sys.executable, "-m", "loom"]
    told = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False).stdout
    assert told == "plain,--waiting-for\n"


def test_every_command_has_a_help_text() -> None:
    from click import Group, Option

    from loom.cli import main

    def silent(group: Group) -> list[str]:
        found = []
        for name, command in group.commands.items():
            if not command.help or not all(option.help for option in command.params if isinstance(option, Option)):
                found.append(name)
            if isinstance(command, Group):
                found += silent(command)
        return found

    assert silent(main) == []

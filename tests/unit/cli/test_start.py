"""The command answers at once: what is slow to import is left to the commands that need it."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import loom
from loom.steps.events import WorkflowIdleEvent

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


_CLASSES = ("pydantic", "pydantic_core", "rich", "loom.runtime.durable.runtime", "loom.effects.event_codec", "httpx2")
"""What it takes to work on runs, and to draw on terminals."""
_FLOWS = ("loom.expressions", "loom.flows.compiler", "loom.flows.planner")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store, in which a run waits and another one has ended."""

    class Waiting(loom.Workflow):
        @loom.step
        async def wait(self, ctx: loom.Context, ev: loom.StartEvent) -> loom.StopEvent:
            if ev.get("ends", None):
                return loom.StopEvent(result={"all": "well"})
            await ctx.wait_for_event(loom.HumanResponseEvent)
            return loom.StopEvent()

    async def work() -> None:
        async with loom.connect(f"sqlite:///{place / 'loom.db'}") as runtime:
            runtime.register(Waiting(), "waiting")
            await (await runtime.start("waiting", {"ends": True}, run_id="ended"))
            handler = await runtime.start("waiting", run_id="waits")
            async for event in handler.stream_events(expose_internal=True):
                if isinstance(event, WorkflowIdleEvent):
                    return

    place = tmp_path_factory.mktemp("stored")
    asyncio.run(work())
    return place


def loaded(commands: list[str], place: Path, modules: tuple[str, ...]) -> dict[str, list[str]]:
    """Which of the modules are imported after each command, of those that import any."""
    code = (
        "import sys\n"
        "from loom.cli import main\n"
        f"for command in {commands!r}:\n"
        "    main(command.split(), standalone_mode=False)\n"
        f"    print(command, *[name for name in {modules!r} if name in sys.modules], sep='|', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True)
    told = [line.split("|") for line in done.stderr.splitlines()]
    found = {command: names for command, *names in told}
    assert list(found) == commands
    return {command: names for command, names in found.items() if names}


def test_whoever_looks_at_runs_or_tells_them_something_needs_no_engine(stored: Path) -> None:
    commands = [
        "workflow list --idle",
        "workflow list --json",
        "workflow status waits",
        "workflow status ended",
        "workflow events ended",
        "workflow history waits",
        "workflow replay ended",
        "workflow pause waits",
        "workflow resume waits",
        "workflow cancel waits",
        "workflow export ended",
        "workflow purge --ended-before 2020-01-01 --yes",
    ]
    assert loaded(commands, stored, (*_CLASSES, *_FLOWS)) == {}


def test_what_is_about_documents_alone_needs_no_runtime(tmp_path: Path) -> None:
    modules = (*_CLASSES, "loom.runtime", "loom.store", "asyncio", "sqlite3")
    assert loaded(["eval @add(1,2)", "schema"], tmp_path, modules) == {}


def test_shells_are_told_what_there_is() -> None:
    asked = {"_LOOM_COMPLETE": "bash_complete", "COMP_WORDS": "loom workflow list --waiting-", "COMP_CWORD": "3"}
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


def test_a_command_leaves_the_garbage_collector_as_it_was() -> None:
    from loom.cli import main

    before = gc.get_threshold()
    main(["completion", "bash"], standalone_mode=False)
    assert gc.get_threshold() == before

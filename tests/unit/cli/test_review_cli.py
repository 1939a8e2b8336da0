"""What a newcomer stumbles over: places in messages, past states, the Tab key, keys that are rotated twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_rig import data, failure, good, loom, started, until_end
from click.shell_completion import ShellComplete
from server_rig import Serving

from loom.cli import main

COMMAND = (sys.executable, "-m", "loom")


@pytest.fixture
def server(flows: Path) -> Iterator[Serving]:
    with Serving().running() as found:
        yield found


# --- targets --------------------------------------------------------------------------------------------------------


def test_a_syntax_error_has_its_place_once(shop: Path) -> None:
    (shop / "broken.py").write_text("class W\n    pass\n")
    told = failure(2, "worker", "broken.py:W")
    assert told.startswith("broken.py cannot be loaded: SyntaxError: expected ':' (")
    assert told.endswith("broken.py, line 1)")
    assert told.count("line 1") == 1


@pytest.mark.usefixtures("shop")
def test_a_file_without_a_name_is_told_what_is_missing() -> None:
    assert failure(2, "worker", "shop.py") == "'shop.py' lacks the name of a workflow in it: use shop.py:name."


# --- a run in the past ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
def test_a_past_state_is_not_mixed_with_how_the_run_ended() -> None:
    started("o")
    good("workflow", "send", "o", "Approval", '{"amount": 5}')
    until_end("o")
    past = good("workflow", "status", "o", "--tick", "1")
    assert "status:      running (idle)\n" in past
    assert "as of:       tick 1, " in past
    for word in ("completed", "result:", "ended:", "in memory:"):
        assert word not in past
    assert "status:      completed\n" in good("workflow", "status", "o")


@pytest.mark.usefixtures("shop")
def test_a_run_that_has_ended_waits_for_nothing() -> None:
    """`null`, as in the answers of the HTTP API."""
    started("o")
    good("workflow", "send", "o", "Approval", '{"amount": 5}')
    until_end("o")
    assert data("workflow", "status", "o")["active_waiters"] is None
    assert len(data("workflow", "status", "o", "--tick", "1")["active_waiters"]) == 1


# --- refusals of a server -------------------------------------------------------------------------------------------


def test_a_server_says_which_names_it_would_take(server: Serving) -> None:
    server.begun("o")
    told = failure(1, "workflow", "send", "o", "Aproval", "{}", "--url", server.url)
    assert "Did you mean 'Approval'? Known are Approval, " in told
    told = failure(1, "workflow", "start", "Ordr", "--url", server.url)
    assert told == "No workflow 'Ordr' is served here. Did you mean 'Order'?"
    server.key("admin")
    told = failure(4, "workflow", "list", "--url", server.url)
    assert told.startswith("This server asks for a key: ")


def test_an_address_without_a_server_says_what_to_look_at() -> None:
    told = failure(3, "workflow", "list", "--url", "http://127.0.0.1:9")
    assert told.startswith("http://127.0.0.1:9 gave no answer: ")
    assert told.endswith("Is a server running there?")


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
def test_a_key_that_is_rotated_twice_gives_keys_that_last() -> None:
    """What the first rotation left to the old key is not the life of the next one."""
    made = data("keys", "create", "ops", "--scope", "read")
    for _ in range(2):
        assert data("keys", "rotate", made["id"])["expires_at"] is None


@pytest.mark.usefixtures("shop")
def test_a_wrong_end_of_a_key_is_told_with_both_forms() -> None:
    told = failure(2, "keys", "create", "ops", "--scope", "read", "--expires", "soon")
    assert "'soon' is not a time: use a length such as 90d, or a date such as 2030-01-31" in told


# --- lists, streams and pipes ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
def test_a_list_that_is_cut_says_so() -> None:
    started("o1")
    started("o2")
    assert (
        loom("workflow", "list", "--limit", "1").stderr == "There are more runs: use a larger --limit, or a filter.\n"
    )


def test_following_ends_quietly_with_ctrl_c(shop: Path) -> None:
    started("o")
    follow = (*COMMAND, "workflow", "events", "o", "--follow")
    with subprocess.Popen(follow, cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Question" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (130, "")


# --- help and the Tab key -------------------------------------------------------------------------------------------


def groups(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        for name, below in command.commands.items():
            yield from groups(below, *path, name)


@pytest.mark.parametrize("path", list(groups(main)), ids=lambda path: " ".join(path) or "loom")
def test_no_summary_of_a_command_is_cut(path: tuple[str, ...]) -> None:
    assert "..." not in good(*path, "--help").partition("Commands:")[2]


@pytest.mark.parametrize(
    ("command", "begun", "kind"),
    [
        (["serve"], "re", "file"),
        (["worker"], "sh", "file"),
        (["run"], "sh", "file"),
        (["run", "shop.py:Order", "--also"], "fl", "file"),
        (["graph"], "sh", "file"),
        (["validate"], "fl", "file"),
        (["serve", "--handlers"], "ha", "file"),
        (["eval", "--context"], "co", "file"),
        (["run", "flow.json", "--parameters"], "pa", "file"),
        (["workflow", "replay", "r", "--target"], "sh", "file"),
        (["workflow", "import"], "ru", "file"),
        (["workflow", "list", "--status"], "comp", "plain"),
        (["keys", "create", "ops", "--scope"], "re", "plain"),
        (["keys", "create", "ops", "--scope"], "read,st", "plain"),
    ],
)
def test_the_tab_key_completes_files_and_values(command: list[str], begun: str, kind: str) -> None:
    found = ShellComplete(main, {}, "loom", "_LOOM_COMPLETE").get_completions(command, begun)
    assert [item.type for item in found] == [kind]
    assert str(found[0].value).startswith(begun)


def test_a_program_is_told_which_extra_the_server_is(shop: Path) -> None:
    (shop / "starlette.py").write_text("raise ModuleNotFoundError('no', name='starlette')\n")
    env = {**os.environ, "PYTHONPATH": str(shop)}
    done = subprocess.run(
        [sys.executable, "-c", "from loom.server import create_app"],
        env=env,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert "The server is an extra: pip install 'loom-workflows[server]'" in done.stderr

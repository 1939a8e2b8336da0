"""What a newcomer stumbles over: places in messages, past states, the Tab key, keys that are rotated twice."""

from __future__ import annotations

import json
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


def test_a_folder_tells_the_problems_of_all_its_files(shop: Path) -> None:
    (shop / "flows").mkdir()
    for name, says in (("a", "@nothing("), ("b", "hi"), ("c", "@nothing(")):
        (shop / "flows" / f"{name}.json").write_text(json.dumps({"say": {"type": "compose", "inputs": says}}))
    result = loom("worker", "flows")
    *problems, last = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in problems] == ["flows/a.json", "flows/c.json"]
    assert (result.exit_code, last) == (2, "Error: flows cannot be loaded: 2 of its files have problems.")


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


def test_a_past_state_of_a_flow_is_not_mixed_with_how_it_ended(server: Serving) -> None:
    server.begun("s", "secret", "--parameter", "key=hush")
    server.good("workflow", "send", "s", "Answer", "--data", '"yes"')
    server.until("s", "completed")
    past = server.good("workflow", "status", "s", "--tick", "0").splitlines()
    assert past[0] == "Workflow: secret"
    assert past[1].startswith("As of: tick 0, ")
    assert past[2] == "Status: Running"
    assert "Status: Succeeded\n" in server.good("workflow", "status", "s")


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


# --- moving runs ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_imported_is_told_with_a_way_out(shop: Path) -> None:
    started("o")
    good("workflow", "export", "o", "-o", "o.json")
    assert failure(1, "workflow", "import", "o.json").endswith("Delete that one first, or use another store.")
    (shop / "other.json").write_text('{"item": "tea"}')
    told = failure(1, "workflow", "import", "other.json")
    assert told == "This is not an exported run: it has no 'loom_run'."


# --- schedules ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("when", [[], ["--every", "5m", "--cron", "0 3 * * *"]], ids=["never", "twice"])
def test_a_schedule_without_a_time_is_told_the_options(when: list[str]) -> None:
    told = failure(2, "schedule", "create", "nightly", "Double", *when)
    assert told == "Say when, in one way: --every, --cron or --recurrence."


@pytest.mark.usefixtures("shop")
def test_what_a_schedule_gives_its_runs_is_shown_as_json() -> None:
    good("db", "upgrade")
    good("schedule", "create", "nightly", "Double", "--cron", "0 3 * * *", "--input", '{"number": true}')
    shown = good("schedule", "show", "nightly")
    assert 'recurrence: {"cron": "0 3 * * *"}\n' in shown
    assert 'input: {"number": true}\n' in shown


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


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)], ids=["serve", "worker"])
def test_logs_for_programs_have_no_other_lines(shop: Path, command: tuple[str, ...]) -> None:
    words = (*COMMAND, *command, "shop.py:Order", "--log-format", "json", "--store", "memory://")
    with subprocess.Popen(words, cwd=shop, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(line) for line in (first, *process.stderr)]
    assert process.returncode == 0
    assert lines[0]["message"].startswith(("Serving Order", "Working for Order"))
    assert lines[-1]["message"] == "Stopped. Unfinished runs are in the store."
    assert all(line["time"].endswith("Z") and line["level"] == "INFO" for line in lines)


def test_a_signal_that_is_sent_twice_stops_a_server_in_order(shop: Path) -> None:
    """As `timeout` does it."""
    words = (*COMMAND, "serve", "shop.py:Order", "--port", "0", "--store", "memory://")
    with subprocess.Popen(words, cwd=shop, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Serving Order")
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline().startswith("Stopping.")
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline() == "Stopped. Unfinished runs are in the store.\n"
    assert process.returncode == 0


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

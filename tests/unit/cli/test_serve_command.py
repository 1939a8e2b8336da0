"""`loom serve` before it serves, and `loom completion`. A server that runs is in tests/integration."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_rig import DOUBLE, failure, good, loom

from loom.cli.serve_command import _server_settings, serve
from loom.cli.work_commands import memory_options
from loom.flows.limits import Limits
from loom.runtime.durable.settings import Settings

pytestmark = pytest.mark.usefixtures("shop")


def test_a_port_that_is_taken_is_told_before_the_store_is_touched(shop: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} of 127.0.0.1 is in use" in failure(1, "serve", DOUBLE, "--port", str(port))
    assert "no address 192.0.2.1" in failure(1, "serve", "--host", "192.0.2.1", "--port", "0")
    assert not (shop / "loom.db").exists()


def test_without_a_key_others_cannot_be_served() -> None:
    message = failure(2, "serve", DOUBLE, "--host", "0.0.0.0", "--port", "0")
    assert "0.0.0.0 is open to others" in message
    assert "`loom keys create" in message
    assert "loom.example.com is open" in failure(2, "serve", "--allowed-host", "loom.example.com", "--port", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop.py:Nobody"], "has no 'Nobody'"),
        ([DOUBLE, "Double=shop.py:order"], f"Two targets are named Double, {DOUBLE} and Double=shop.py:order: give"),
        ([f"={DOUBLE}"], "there is no name before the '='"),
        ([f"loom.mine={DOUBLE}"], "are Loom's own"),
        (["--callback-url", "nowhere"], "'nowhere' is no address for callbacks"),
        (["--origin", "*"], "'*' is not an origin"),
        (["--max-body", "lots"], "'lots' is not a size"),
        (["--max-body", "0"], "'0' is not a size"),
        (["--rate", "0"], "--rate"),
        (["--max-connections", "0"], "--max-connections"),
        (["--max-memory", "much"], "'much' is not a size"),
        (["--health-port", "70000"], "--health-port"),
        (["--port", "70000"], "--port"),
        (["--store", "mysql://x"], "No store is known"),
    ],
)
def test_what_is_given_wrongly(arguments: list[str], message: str) -> None:
    assert message in failure(2, "serve", *arguments, *([] if "--port" in arguments else ["--port", "0"]))


def test_limits_of_the_server_are_options() -> None:
    given = serve.make_context("serve", ["--max-connections", "7", "--max-starts", "3", "--max-memory", "2G"]).params
    settings = _server_settings(given, Limits())
    assert (settings.max_connections, settings.max_starts) == (7, 3)
    assert (memory_options(given)["max_memory"], memory_options(given)["watchdog"]) == (2 * 1024**3, 1.0)
    without = serve.make_context("serve", ["--watchdog", "0"]).params
    assert memory_options(without)["watchdog"] is None
    assert _server_settings(without, Limits()).max_connections is None


def test_limits_without_an_option_are_those_of_connect() -> None:
    """A limit that an operator has not named must not be taken for none."""
    found = memory_options(serve.make_context("serve", []).params)
    for name in ("max_suspended", "max_in_memory", "max_descendants", "max_memory", "max_state", "probation"):
        assert found[name] == getattr(Settings(), name), name


def test_a_health_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in ("serve", "worker"):
            options = ("--port", "0") if command == "serve" else ()
            message = failure(1, command, DOUBLE, *options, "--health-port", port)
            assert f"The health port 127.0.0.1:{port} cannot be used: Address already in use." in message


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_the_extra_that_is_missing_is_named(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from loom.cli import main\n"
        "main(['serve', '--port', '0'], prog_name='loom')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: The server is an extra: pip install 'loom-workflows[server]'\n"


def test_shells_are_told_how_to_complete() -> None:
    for shell in ("bash", "zsh", "fish"):
        script = good("completion", shell)
        assert f"_LOOM_COMPLETE={shell}_complete" in script
    assert loom("completion", "cmd").exit_code == 2


def test_commands_and_options_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import BashComplete

    from loom.cli import main

    complete = BashComplete(main, {}, "loom", "_LOOM_COMPLETE")
    assert {found.value for found in complete.get_completions(["keys"], "")} == {"create", "list", "revoke", "rotate"}
    assert [found.value for found in complete.get_completions(["serve"], "--log-f")] == ["--log-format"]

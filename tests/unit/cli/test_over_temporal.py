"""The command line over a Temporal cluster: a worker, and the commands beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_rig import DOUBLE, ORDER, data, failure, good, wait_for, working

sys.path.insert(0, str(Path(__file__).parents[2]))
from temporal_server import fresh_temporal_url, session_server


@pytest.fixture
def cluster(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shop, with a namespace of its own for a store."""
    monkeypatch.setenv("LOOM_STORE", fresh_temporal_url())
    return shop


def waiting(run_id: str, item: str = "tea") -> None:
    good("workflow", "start", "Order", f'{{"item": "{item}"}}', "--run-id", run_id)
    wait_for("Approval")


def test_a_worker_and_the_commands_beside_it(cluster: Path) -> None:
    with working(cluster, ORDER, DOUBLE) as process:
        waiting("order-1")
        assert data("workflow", "status", "order-1")["active_waiters"][0]["event_type"].endswith("Approval")
        good("workflow", "pause", "order-1")
        good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
        assert data("workflow", "status", "order-1")["paused"]
        good("workflow", "resume", "order-1")
        last = good("workflow", "events", "order-1", "--follow").splitlines()[-1]
        assert last.endswith('StopEvent(result={"amount": 5, "note": ""})')
        assert data("workflow", "replay", "order-1")["replay"] == "same"
        assert len(data("workflow", "history", "order-1")) == data("workflow", "status", "order-1")["tick"] + 1
        good("workflow", "fork", "order-1", "--tick", "0", "--run-id", "order-2")
        good("workflow", "cancel", "order-2")
        assert good("workflow", "events", "order-2", "--follow").splitlines()[-1].endswith("cancelled")
        waiting("order-3")
        good("workflow", "send", "order-3", "Approval", '{"amount": -1}')
        good("workflow", "events", "order-3", "--follow")
        failed = data("workflow", "status", "order-3")
        assert failed["error"]["message"] == "-1 is negative"
        good("workflow", "retry", "order-3")
        assert data("workflow", "status", "order-3")["tick"] > failed["tick"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.usefixtures("cluster")
def test_runs_a_workflow_to_its_end_and_finds_it_again() -> None:
    assert good("run", DOUBLE, "--input", '{"number": 21}', "--run-id", "d", "--tag", "size=big") == "42\n"
    assert data("run", DOUBLE, "--input", '{"number": 21}', "--run-id", "d")["result"] == 42
    assert "with another input" in failure(1, "run", DOUBLE, "--run-id", "d", "--input", "{}")


def test_schedules_and_keys_are_kept_on_the_cluster(cluster: Path) -> None:
    with working(cluster, DOUBLE):
        good("schedule", "create", "nightly", "Double", "--cron", "0 3 * * *")
        assert [found["name"] for found in data("schedule", "list")] == ["nightly"]
        good("schedule", "delete", "nightly")
        assert data("schedule", "list") == []
        assert good("keys", "create", "ops", "--scope", "read", "-q").startswith("loom_")
        assert [key["name"] for key in data("keys", "list")] == ["ops"]


@pytest.mark.usefixtures("shop")
def test_search_attributes_are_added_once() -> None:
    store = ("--store", session_server().fresh_url(attributes=False))
    added = good("db", "upgrade", *store)
    assert added.splitlines() == [
        f"Added the search attribute Loom{name}." for name in ("IdleSince", "Tags", "WaitingFor")
    ]
    assert good("db", "upgrade", *store) == "The cluster is up to date.\n"
    assert data("db", "upgrade", *store)["search_attributes"] == []


@pytest.mark.parametrize(
    ("code", "command", "message"),
    [
        (2, ["db", "upgrade", "--sql", "--store", "temporal://localhost"], "takes no SQL"),
        (2, ["db", "verify", "--store", "temporal://localhost"], "there are no journals to check"),
        (2, ["workflow", "list", "--store", "temporal://"], "names its host: use temporal://host:7233/namespace"),
        (2, ["workflow", "list", "--store", "temporal://h?queue=x"], "'queue' is no option"),
        (3, ["workflow", "list", "--store", "temporal://127.0.0.1:1/n"], "temporal://127.0.0.1:1/n"),
        (3, ["run", DOUBLE, "--store", "temporal://127.0.0.1:1/n"], "temporal://127.0.0.1:1/n"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_cannot_be_is_told(code: int, command: list[str], message: str) -> None:
    assert message in failure(code, *command)


@pytest.mark.parametrize("store", ["temporal://me:s3cret@h/n", "temporal://h/n?api_key=s3cret"])
@pytest.mark.usefixtures("shop")
def test_secrets_in_an_address_are_refused_and_not_repeated(store: str) -> None:
    message = failure(2, "workflow", "list", "--store", store)
    assert "TEMPORAL_API_KEY" in message
    assert "s3cret" not in message


@pytest.mark.usefixtures("shop")
def test_encryption_keys_are_for_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_ENCRYPTION_KEYS", "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
    assert "payload codec" in failure(2, "workflow", "list", "--store", "temporal://localhost")


def test_without_the_extra_it_says_what_to_install(shop: Path) -> None:
    script = "import sys; sys.modules['temporalio'] = None; from loom.cli import main; main()"
    command = [sys.executable, "-c", script, "workflow", "list", "--store", "temporal://localhost"]
    done = subprocess.run(
        command, cwd=shop, env=dict(os.environ), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 3
    assert done.stderr == "Error: Temporal needs an extra: pip install 'loom-workflows[temporal]'\n"
